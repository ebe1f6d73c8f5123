// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ep3Chains lead from cluster IP 10.96.77.154, port 80, of shop/ep3 to its endpoints, as the command program writes it
// (nodehelper/program/iptables.go).
const ep3Chains = `-A SVCPROXY-0123abcd-NAT -d 10.96.77.154/32 -p tcp -m tcp --dport 80 -j SVCPROXY-0123abcd-F0
-A SVCPROXY-0123abcd-F0 ! -s 10.244.0.0/16 -j MARK --set-xmark 0x4000/0x4000
-A SVCPROXY-0123abcd-F0 -m statistic --mode random --probability 0.3333333333 -j SVCPROXY-0123abcd-Eaaaaaaaaa
-A SVCPROXY-0123abcd-F0 -m statistic --mode random --probability 0.5000000000 -j SVCPROXY-0123abcd-Ebbbbbbbbb
-A SVCPROXY-0123abcd-F0 -j SVCPROXY-0123abcd-Eccccccccc
-A SVCPROXY-0123abcd-Eaaaaaaaaa -s 10.244.1.19/32 -j MARK --set-xmark 0x4000/0x4000
-A SVCPROXY-0123abcd-Eaaaaaaaaa -p tcp -m tcp -j DNAT --to-destination 10.244.1.19:8080
-A SVCPROXY-0123abcd-Ebbbbbbbbb -p tcp -m tcp -j DNAT --to-destination 10.244.2.20:8080
-A SVCPROXY-0123abcd-Eccccccccc -p tcp -m tcp -j DNAT --to-destination 10.244.3.21:8080`

// programEp3 puts these chains on the node, and jumps to them.
func (w *capturedNode) programEp3(rules string) {
	w.t.Helper()
	w.table(v4, "nat", func(l string) []string {
		switch l {
		case "*nat":
			return []string{
				l, ":SVCPROXY-0123abcd-NAT - [0:0]", ":SVCPROXY-0123abcd-F0 - [0:0]", ":SVCPROXY-0123abcd-Eaaaaaaaaa - [0:0]",
				":SVCPROXY-0123abcd-Ebbbbbbbbb - [0:0]", ":SVCPROXY-0123abcd-Eccccccccc - [0:0]",
			}
		case "COMMIT":
			return append(strings.Split(rules, "\n"), l)
		}
		return []string{l}
	})
	w.first(v4, "nat", "PREROUTING", `-m comment --comment "kubectl-svcproxy program" -j SVCPROXY-0123abcd-NAT`)
	w.first(v4, "nat", "OUTPUT", `-m comment --comment "kubectl-svcproxy program" -j SVCPROXY-0123abcd-NAT`)
}

// bindIPVS gives the node the device with an address.
func (w *capturedNode) bindIPVS() {
	w.files["ip-addr.json"] = append(bytes.TrimSuffix(bytes.TrimSpace(w.files["ip-addr.json"]), []byte("]")),
		`,{"ifindex":99,"ifname":"svcproxy-ipvs","flags":["NOARP"],"addr_info":[`+
			`{"family":"inet","local":"192.0.2.9","prefixlen":32,"scope":"global"}]}]`...)
}

func orphanFaults() []fault {
	journal := func(w *capturedNode, text string) { w.files[snapshot.JournalFile] = []byte(text) }
	const (
		none  = `{"records":[]}`
		other = `{"records":[{"plan":"ffff0000","mode":"iptables","frontends":["10.96.77.154:80/TCP"]}]}`
	)
	programmed := both(ep3, "Match: Programmed")
	orphan := append(both(ep3, "Warning: ProgrammedOrphan 0123abcd"), "node → ProgrammedOrphan 0123abcd")
	return []fault{
		{name: "programmed, and recorded", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			journal(w, `{"records":[{"plan":"0123abcd","mode":"iptables"}]}`)
		}, want: programmed},
		{name: "programmed, and the record cannot be read", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			journal(w, `{"records":[{"plan":"0123abcd","unread":"unexpected end of JSON input"}]}`)
		}, want: programmed},
		{name: "programmed, and the journal was not collected", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
		}, want: programmed},
		{name: "programmed, and the journal is damaged", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			journal(w, `{"records":`)
		}, want: programmed},
		{name: "programmed, and too many records are there", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			journal(w, `{"records":[],"more":3}`)
		}, want: programmed},
		{name: "restored after the end", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			journal(w, none)
		}, want: orphan},
		{name: "restored beside another plan", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			journal(w, other)
		}, want: orphan},
		{name: "restored, with an endpoint that is gone", do: func(w *capturedNode) {
			w.programEp3(strings.ReplaceAll(ep3Chains, "10.244.3.21:8080", "10.244.3.99:8080"))
			journal(w, none)
		}, want: append(both(ep3, "Mismatch: MissingEndpoint 10.244.3.21:8080; ProgrammedOrphan 0123abcd; "+
			"StaleEndpoint 10.244.3.99:8080"), "node → ProgrammedOrphan 0123abcd")},
		{name: "chains that no rule leads to", do: func(w *capturedNode) {
			w.programEp3(ep3Chains)
			w.drop(v4, "-j SVCPROXY-0123abcd-NAT")
			journal(w, none)
		}, want: []string{"node → ProgrammedOrphan 0123abcd"}},
		{name: "the device of IPVS", do: func(w *capturedNode) {
			w.bindIPVS()
			journal(w, other)
		}, want: []string{"node → ProgrammedOrphan svcproxy-ipvs"}},
		{name: "the device of IPVS, and a record of that mode", do: func(w *capturedNode) {
			w.bindIPVS()
			journal(w, `{"records":[{"plan":"ffff0000","mode":"ipvs"}]}`)
		}},
		{name: "the device of IPVS, and a record that cannot be read", do: func(w *capturedNode) {
			w.bindIPVS()
			journal(w, `{"records":[{"plan":"ffff0000","unread":"damaged"}]}`)
		}},
		{name: "a journal without rules", do: func(w *capturedNode) { journal(w, other) }},
	}
}

// What outlives the journal of the command program is found on the node and on the paths that it leads, and only where
// the journal was collected.
func TestFaultsOfOrphans(t *testing.T) { putIn(t, "iptables", orphanFaults(), 10) }

// A table of nftables that was restored, beside one whose path is programmed, one by which probes are traced, and
// one of somebody else.
func TestOrphanTable(t *testing.T) {
	w := openCaptured(t, "nftables")
	table := func(family, name, chain string) string {
		return `{"table":{"family":"` + family + `","name":"` + name + `","handle":9000}},{"chain":{"family":"` + family +
			`","table":"` + name + `","name":"` + chain + `","handle":1,` +
			`"type":"nat","hook":"prerouting","prio":-115,"policy":"accept"}}`
	}
	w.files[snapshot.NFTFile] = append(bytes.TrimSuffix(bytes.TrimSpace(w.files[snapshot.NFTFile]), []byte("]}")),
		","+table("ip", "svcproxy-0123abcd", "prerouting")+","+table("ip6", "svcproxy-0123abcd", "prerouting")+
			","+table("ip", "svcproxy-ffff0000", "prerouting")+","+table("inet", "svcproxy-trace-77", "output")+
			","+table("ip", "svcproxy-metrics", "output")+"]}"...)
	w.files[snapshot.JournalFile] = []byte(`{"records":[{"plan":"ffff0000","mode":"nftables"}]}`)
	r := w.run()
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	i := slices.IndexFunc(r.Findings, func(f report.Finding) bool { return f.Code == ProgrammedOrphan })
	if i < 0 {
		t.Fatalf("%+v", r.Findings)
	}
	got := r.Findings[i]
	if got.Subject != "0123abcd" || got.Actual != "2 chains" || got.Severity != report.Warn || len(got.Evidence) != 2 ||
		len(got.Commands) != 1 || got.Commands[0].Line != "kubectl svcproxy cleanup --node node1" {
		t.Errorf("%+v", got)
	}
	if slices.ContainsFunc(r.Findings[i+1:], func(f report.Finding) bool { return f.Code == ProgrammedOrphan }) {
		t.Errorf("more than once: %+v", r.Findings)
	}
}
