// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// variant is something else in the place of a file of evidence; nil of it is a file that is gone.
type variant struct {
	name string
	of   func(whole []byte) []byte
	gone bool // it is no damage: nothing of it is named but that it is not there
}

// variants are what may stand in the place of any file.
var variants = []variant{
	{name: "noise", of: text("\x00\x01\xff\xfe\x17=\x00\n\x80\x81 \x82\n")},
	{name: "404", of: text("404 page not found\n")},
	{name: "HTML", of: text("<!DOCTYPE html>\n<html lang=\"en\"><title>502</title>\n<body a=b>x</body></html>\n")},
	{name: "refused", of: text("curl: (7) Failed to connect to 127.0.0.1 port 10249: Connection refused")},
	{name: "forbidden", of: text(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":403}` + "\n")},
	{name: "a list", of: text(`[{"foo":1}]` + "\n")},
	{name: "empty list", of: text("[]\n")},
	{name: "null", of: text("null\n")},
	{name: "cut gzip", of: text("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01")},
	{name: "deep JSON", of: text(strings.Repeat("[", 300) + strings.Repeat("]", 300) + "\n")},
	{name: "a long line", of: text(strings.Repeat("a", 2<<20) + "\n")},
	{name: "empty", of: text("")},
	{name: "cut at a third", of: cutAt(1, 3)},
	{name: "cut in the middle", of: cutAt(1, 2)},
	{name: "its last two bytes gone", of: func(whole []byte) []byte { return bytes.Clone(whole[:len(whole)-2]) }},
	{name: "noise behind half", of: func(whole []byte) []byte {
		return append(slices.Clone(whole[:len(whole)/2]), "\xff\x00\x80\n"...)
	}},
	{name: "gone", of: func([]byte) []byte { return nil }, gone: true},
}

func text(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }

func cutAt(part, of int) func([]byte) []byte {
	return func(whole []byte) []byte { return bytes.Clone(whole[:len(whole)*part/of]) }
}

// oldFormats are what older and newer tools print.
var oldFormats = map[string][]variant{
	snapshot.HealthzFile: {
		{name: "1.24", gone: true, of: text(`{"lastUpdated": "2026-11-20 19:41:06.849806335 +0000 UTC m=+12.000000001",` +
			`"currentTime": "2026-11-20 19:41:06.849806335 +0000 UTC m=+12.000000001"}`)},
		{name: "1.32", gone: true, of: text(`{"lastUpdated": "2026-11-20 21:41:06.849806335 +0200 CEST m=+2.1",` +
			`"currentTime": "2026-11-20 21:41:06.849806335 +0200 CEST m=+2.1", "nodeEligible": true}`)},
		{name: "newer", gone: true, of: text(`{"lastUpdated":"2026-11-20T19:41:06Z","currentTime":"2026-11-20T19:41:06Z",` +
			`"nodeEligible":true,"healthy":true,"status":["a"],"more":{"a":1}}`)},
	},
	snapshot.LivezFile: {
		{name: "1.28", gone: true, of: text(`{"lastUpdated": "2026-11-20 19:41:06.849806335 -0330 -0330",` +
			`"currentTime": "2026-11-20 19:41:06.849806335 -0330 -0330"}`)},
	},
	snapshot.AddrFile:  {{name: "no JSON", of: text("1: lo: <LOOPBACK,UP> mtu 65536\n    inet 127.0.0.1/8 scope host\n")}},
	snapshot.RouteFile: {{name: "no JSON", of: text("default via 10.77.0.1 dev eth0\n10.77.0.0/16 dev eth0\n")}},
	snapshot.RuleFile:  {{name: "no JSON", of: text("0:\tfrom all lookup local\n32766:\tfrom all lookup main\n")}},
	snapshot.ListenFile: {{name: "netstat", of: text("Active Internet connections (only servers)\n" +
		"tcp        0      0 127.0.0.1:10249         0.0.0.0:*               LISTEN      812/kube-proxy\n")}},
	snapshot.ConfigzFile: {{name: "v1alpha2", of: text(`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration",` +
		`"apiVersion":"kubeproxy.config.k8s.io/v1alpha2","mode":"iptables"}}`)}, {
		name: "a mode that there is not",
		of: text(`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration",` +
			`"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","mode":"winkernel"}}`),
	}},
	snapshot.ProxyModeFile: {
		{name: "half a mode", of: text("ipta")}, {name: "a mode that there is not", of: text("kernelspace")},
	},
	snapshot.MetricsFile: {{name: "OpenMetrics", of: text("# TYPE a counter\n# EOF\n")}},
}

// intact completes a captured node by the files of evidence that were not captured, as it would have had them.
func (w *capturedNode) intact() {
	proxy := "812"
	if _, rest, ok := strings.Cut(string(w.files[snapshot.ListenFile]), `"kube-proxy",pid=`); ok {
		proxy, _, _ = strings.Cut(rest, ",") // the process that listens is the one that is listed
	}
	for file, data := range map[string]string{
		snapshot.LinkFile: string(w.files[snapshot.AddrFile]),
		snapshot.RuleFile: `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},` +
			`{"priority":32767,"src":"all","table":"default"}]` + "\n",
		snapshot.Rule6File: `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"}]` +
			"\n",
		snapshot.TimeFile:      "2026-11-20T19:41:06Z\ntz_minuteswest=-60\n",
		snapshot.ProcessesFile: "      1 systemd\n" + proxy + " kube-proxy\n    913 containerd\n",
		snapshot.JournalFile:   `{"records":[]}` + "\n",
		snapshot.ProbesFile:    `{"targets":[]}` + "\n",
		snapshot.HealthzFile: `{"lastUpdated":"2026-11-20T19:41:06Z","currentTime":"2026-11-20T19:41:06Z",` +
			`"nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-11-20T19:41:04Z","healthy":true}}}`,
		snapshot.LivezFile: `{"lastUpdated":"2026-11-20T19:41:06Z","currentTime":"2026-11-20T19:41:06Z","healthy":true,` +
			`"status":{"IPv4":{"lastUpdated":"2026-11-20T19:41:04Z","healthy":true}}}`,
		snapshot.ConntrackFile: "tcp 6 10 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=1 dport=80 src=10.0.0.2 " +
			"dst=10.0.0.1 sport=80 dport=1\n",
		snapshot.ListenFile: "tcp LISTEN 0 4096 127.0.0.1:10249 0.0.0.0:* users:((\"kube-proxy\",pid=812,fd=12))\n" +
			"tcp LISTEN 0 4096 *:31000 *:* users:((\"kube-proxy\",pid=812,fd=13))\n" +
			"tcp LISTEN 0 4096 *:31001 *:* users:((\"kube-proxy\",pid=812,fd=14))\n" +
			"tcp LISTEN 0 4096 *:31002 *:* users:((\"kube-proxy\",pid=812,fd=15))\n",
		snapshot.StoppedFile:   "4711 T\n",
		snapshot.NeighbourFile: `[{"dst":"10.77.0.1","dev":"eth9","lladdr":"02:00:00:00:00:01","state":["REACHABLE"]}]` + "\n",
		snapshot.BridgeFDBFile: `[{"mac":"33:33:00:00:00:01","ifname":"eth9","flags":["self"],"state":"permanent"}]` + "\n",
		snapshot.XfrmFile:      "src 192.0.2.0/24 dst 198.51.100.0/24 \n\tdir out priority 0 ptype main \n",
		snapshot.NFTHooksFile: "family ip {\n\thook prerouting {\n\t\t-0000000400 ipv4_conntrack_defrag [nf_defrag_ipv4]\n" +
			"\t}\n}\n",
		snapshot.ProgramsFile: "tc eth9 ingress filter protocol arp pref 1 u32 handle 0x1\n",
		snapshot.VersionsFile: "6.1.0\n",
		snapshot.FlagsFile:    "kube-proxy\n--v=2\n",
	} {
		if _, ok := w.files[file]; !ok {
			w.files[file] = []byte(data)
		}
	}
}

// depends says what may become Unknown without a file, with the reason, by fixture ("" for all). Of a file that is not
// in it no path may change.
var depends = map[string]map[string]string{
	snapshot.AddrFile: {
		"": "rules with -m addrtype, fib or a set of the node's addresses, and the node's source address for source ranges",
	},
	snapshot.ProgramsFile:  {"": "filters of tc and programs of BPF may be on every path"},
	snapshot.XfrmFile:      {"": "policies of IPsec may select the packets of every path"},
	snapshot.NeighbourFile: {"": "every path has a next hop"},
	snapshot.BridgeFDBFile: {"": "packets may leave by a tunnel, as the kinds of interfaces were not collected"},
	snapshot.SysctlFile:    {"ipvs": "whether IPVS keeps its connections in connection tracking (net/ipv4/vs/conntrack)"},
}

// evidenceRow is a row of the table that TestEvidence prints.
type evidenceRow struct {
	fixture, file      string
	variants, unknown  int // of those that change something: how many, and the most paths that are Unknown
	kept, paths, named int // the fewest paths that keep their verdict; of all paths; how many variants are named
}

// TestEvidence puts every other thing into the place of every file of evidence. No verdict is lost that does not need
// the file, none turns wrong, and a line names the file.
func TestEvidence(t *testing.T) {
	testutil.Long(t)
	for _, fixture := range []string{"iptables", "nftables", "ipvs", "iptables with a fault"} {
		t.Run(fixture, func(t *testing.T) {
			base := openCaptured(t, strings.Fields(fixture)[0])
			base.intact()
			if strings.HasSuffix(fixture, "fault") {
				base.drop(v4, "KUBE-SEP", "-j DNAT", "10.244.1.78")
			}
			before := base.run()
			if before.Error != "" {
				t.Fatal(before.Error)
			}
			t.Log("| fixture | file | variants | named | with a change | paths that become Unknown | paths kept | why |")
			for _, file := range nodestate.Evidence {
				if _, ok := base.files[file]; !ok {
					// What ebtables.txt lists may be on a path wherever an interface may be a bridge.
					// wireguard.txt is there where the node has such an interface.
					if file != snapshot.UnreadFile && file != snapshot.EbtablesFile && file != snapshot.WireGuardFile &&
						(fixture != "ipvs" || !strings.HasSuffix(file, "route.json")) {
						t.Errorf("%s is not in the fixture", file)
					}
					continue
				}
				row := evidenceRow{fixture: fixture, file: file, paths: len(before.Paths), kept: len(before.Paths)}
				all := append(slices.Clone(variants), oldFormats[file]...)
				for i, v := range all {
					// One in 24 where nothing depends on the file, unless all are asked for.
					if row.why() == "" && (i+len(file))%24 != 0 && os.Getenv("SVCPROXY_EVIDENCE") != "all" {
						continue
					}
					base.evidence(&row, v, &before)
				}
				if row.unknown == 0 && row.why() != "" {
					t.Errorf("%s: nothing depends on it, and something should: %s", file, row.why())
				}
				t.Logf("| %s | %s | %d | %d | %d | %d | %d of %d | %s |", fixture, file, len(all), row.named, row.variants,
					row.unknown, row.kept, row.paths, row.why())
			}
		})
	}
}

// why is the reason for which paths depend on the row's file; "" where none may.
func (r *evidenceRow) why() string {
	if why, ok := depends[r.file][""]; ok {
		return why
	}
	return depends[r.file][r.fixture]
}

// pathsByKey are a report's paths by their keys in [facts].
func pathsByKey(r *report.NodeReport) map[string]*report.Path {
	out := map[string]*report.Path{}
	for i := range r.Paths {
		for key := range facts(report.NodeReport{Paths: r.Paths[i : i+1]}) {
			out[key] = &r.Paths[i]
		}
	}
	return out
}

// evidence judges the node with another content of the row's file, and compares.
func (w *capturedNode) evidence(row *evidenceRow, v variant, intact *report.NodeReport) {
	w.t.Helper()
	o := &capturedNode{w.t, w.cluster, maps.Clone(w.files)}
	if data := v.of(w.files[row.file]); data != nil {
		o.files[row.file] = data
	} else {
		delete(o.files, row.file)
	}
	r := o.run()
	if r.Error != "" {
		w.t.Errorf("%s %s: nothing is judged: %s", row.file, v.name, r.Error)
		return
	}
	if namesFile(&r, row.file) {
		row.named++
	} else if costs[row.file] != "" && !v.gone && !undamaged(row.file, w.files[row.file], o.files[row.file]) {
		w.t.Errorf("%s %s: it is not named: %+v", row.file, v.name, r.Findings)
	}
	before, after, paths := facts(*intact), facts(r), pathsByKey(&r)
	if before["node"] != after["node"] {
		w.t.Errorf("%s %s: of the node %q becomes %q", row.file, v.name, before["node"], after["node"])
	}
	unknown := 0
	for _, key := range slices.Sorted(maps.Keys(before)) {
		switch p := paths[key]; {
		case key == "node" || before[key] == after[key]:
		case row.why() == "":
			w.t.Errorf("%s %s: it does not depend on it: %s: %q becomes %q", row.file, v.name, key, before[key], after[key])
		case p == nil || p.Verdict != report.Unknown || !strings.Contains(fmt.Sprint(p.Findings, p.Actual), row.file):
			w.t.Errorf("%s %s: Unknown, with the file, was expected: %s: %q becomes %q: %+v", row.file, v.name, key,
				before[key], after[key], p)
		default:
			unknown++
		}
	}
	// A pod on its way to itself has a path of its own where only that depends on the file.
	if own := len(after) - len(before); own < 0 || own > 0 && row.why() == "" {
		w.t.Errorf("%s %s: %d facts become %d", row.file, v.name, len(before), len(after))
	}
	if unknown > 0 {
		row.variants++
	}
	row.unknown, row.kept = max(row.unknown, unknown), min(row.kept, row.paths-unknown)
}

// namesFile tells whether a line of a report says of a file that it was not read.
func namesFile(r *report.NodeReport, file string) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == FileNotRead && strings.Contains(f.Message, file) && !strings.Contains(f.Message, "\n")
	})
}

// undamaged tells whether nobody can see that a file was cut: between two lines of which nothing says that more follow.
func undamaged(file string, whole, cut []byte) bool {
	if file == snapshot.NeighbourFile && bytes.Equal(bytes.TrimSpace(cut), []byte("[]")) {
		return true // a node may have talked to nobody
	}
	return file != snapshot.ConfigzFile && bytes.HasPrefix(whole, cut) && bytes.HasSuffix(cut, []byte("\n"))
}

// TestHalfAFileClaimsNothing: what a file does not show because it was cut, or is no such file, is not taken for absent
// on the node.
func TestHalfAFileClaimsNothing(t *testing.T) {
	stale := "udp 17 100 src=10.244.9.9 dst=10.96.0.10 sport=1 dport=53 [UNREPLIED] src=10.244.7.7 dst=10.244.9.9 " +
		"sport=53 dport=1\n"
	for _, tt := range []struct {
		name  string
		do    func(w *capturedNode)
		codes []string // of the node's findings, and of paths, that may not be there
	}{
		{"half a list of processes", func(w *capturedNode) {
			w.stop()
			w.files[snapshot.ProcessesFile] = []byte("      1 systemd\n    812 kube-pr")
		}, []string{KubeProxyDown}},
		{"an error page in the place of the processes", func(w *capturedNode) {
			w.stop()
			w.files[snapshot.UnreadFile] = []byte("{\"kind\":\"Status\"}")
			w.files[snapshot.ProcessesFile] = []byte("404 page not found\n")
		}, []string{KubeProxyDown}},
		{"an empty list of processes made by hand", func(w *capturedNode) {
			w.stop()
			delete(w.files, snapshot.UnreadFile)
			w.files[snapshot.ProcessesFile] = nil
		}, []string{KubeProxyDown}},
		{"a journal that is none, with chains of the command program", func(w *capturedNode) {
			w.addTable(v4, "*raw\n:SVCPROXY-0a1b2c3d - [0:0]\nCOMMIT\n")
			w.files[snapshot.JournalFile] = []byte(`{"kind":"Status"}`)
		}, []string{OrphanChain}},
		{"a cut time of the last write", func(w *capturedNode) {
			w.queue()
			w.health(time.Minute, false)
			i := bytes.Index(w.files["metrics.txt"], []byte("last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1.79"))
			w.files["metrics.txt"] = w.files["metrics.txt"][:i+50]
		}, []string{NotSyncing, RestoreFailing}},
		{"half the number of connections that there may be", func(w *capturedNode) {
			w.files["sysctl.txt"] = []byte("net/netfilter/nf_conntrack_count=26000\nnet/netfilter/nf_conntrack_max=26")
		}, []string{ConntrackFull}},
		{"forwarding of an interface that may be in the missing half", func(w *capturedNode) {
			w.files["sysctl.txt"] = []byte("net/ipv4/ip_forward=0\nnet/ipv4/conf/")
		}, []string{ForwardingOff}},
		{"a connection whose last number is cut", func(w *capturedNode) {
			w.files["conntrack.txt"] = []byte(stale[:strings.Index(stale, "53 dport=1\n")+1])
		}, []string{ConntrackStale}},
		{"addresses of no interface", func(w *capturedNode) { w.files["ip-addr.json"] = []byte("[]") }, nil},
		{"interfaces that are none", func(w *capturedNode) { w.files["ip-link.json"] = []byte(`[{"a":1}]`) }, nil},
		{"routes that are none", func(w *capturedNode) {
			w.files["ip-route.json"] = []byte(`[{"a":1}]`)
			w.files["ip6-route.json"] = []byte("[]")
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.do(w)
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			found := slices.Clone(r.Findings)
			for i := range r.Paths {
				found = append(found, r.Paths[i].Findings...)
				if r.Paths[i].Verdict == report.Mismatch {
					t.Errorf("%s: %+v", pathKey(&r.Paths[i]), r.Paths[i].Findings)
				}
			}
			for _, f := range found {
				if slices.Contains(tt.codes, f.Code) || f.Severity == report.Error {
					t.Errorf("%+v", f)
				}
			}
			if !slices.ContainsFunc(found, func(f report.Finding) bool { return f.Code == FileNotRead }) {
				t.Error("nothing is named")
			}
		})
	}
}

// TestNobodyListensInAListThatIsNone: a frontend that kube-proxy serves itself is Unknown where the sockets cannot be
// read, and the reason is said.
func TestNobodyListensInAListThatIsNone(t *testing.T) {
	for _, listen := range []string{
		"", "\n", "404 page not found\n", "Connection refused", "tcp LISTEN 0 4096 127.0.0.1:300",
		"tcp LISTEN 0 4096 127.0.0.1:22 0.0.0.0:* users:((\"sshd\",pid=1,fd=3))\ntcp LISTEN 0 4096 127.0.0.1:3008",
	} {
		w := openCaptured(t, "nftables")
		w.localhostNodePorts()
		w.files[snapshot.ListenFile] = []byte(listen)
		r := w.run()
		seen := 0
		for i := range r.Paths {
			p := &r.Paths[i]
			if p.Expected.Action != string(expect.Proxy) {
				continue
			}
			seen++
			if p.Verdict != report.Unknown || !strings.Contains(fmt.Sprint(p.Findings), snapshot.ListenFile) {
				t.Errorf("%q: %s: %s %+v", listen, pathKey(p), p.Verdict, p.Findings)
			}
		}
		if seen == 0 || r.Error != "" || !namesFile(&r, snapshot.ListenFile) {
			t.Errorf("%q: %d paths, %q", listen, seen, r.Error)
		}
	}
}

// TestAModeThatIsNone: what stands in the place of /proxyMode does not choose the mode.
func TestAModeThatIsNone(t *testing.T) {
	for _, mode := range []string{"iptab", "404 page not found", "kernelspace", "", "\x00", "ok"} {
		for _, fixture := range []string{"nftables", "ipvs"} {
			w := openCaptured(t, fixture)
			w.files[snapshot.ProxyModeFile] = []byte(mode)
			r := w.run()
			if r.Error != "" || r.Mode.Actual != fixture || r.Mode.Reported != "" || r.Summary.Mismatched > 0 ||
				r.Summary.Unknown > 0 || !namesFile(&r, snapshot.ProxyModeFile) {
				t.Errorf("%s with %q: %q %+v %+v", fixture, mode, r.Error, r.Mode, r.Summary)
			}
		}
	}
}

// TestObjectsThatAreEvidence: Pods, Nodes and the ConfigMap that could not be read are named, and make no mismatch.
func TestObjectsThatAreEvidence(t *testing.T) {
	for kind, cost := range clusterCosts {
		w := openCaptured(t, "iptables")
		w.cluster.Missing = append(w.cluster.Missing, kind)
		w.cluster.Unread = map[string]string{"cluster/" + kind + ".json": "the JSON is cut off"}
		switch kind {
		case "pods":
			w.cluster.Pods = nil
		case "nodes":
			w.cluster.Nodes = nil
		case "configmaps":
			w.cluster.ConfigMaps = nil
		}
		r := w.run()
		if r.Error != "" || r.Summary.Mismatched > 0 {
			t.Errorf("%s: %q %+v", kind, r.Error, r.Summary)
		}
		i := slices.IndexFunc(r.Findings, func(f report.Finding) bool { return f.Code == FileNotRead })
		if i < 0 || r.Findings[i].Message != "cluster/"+kind+".json was not read: the JSON is cut off; "+cost {
			t.Errorf("%s: %+v", kind, r.Findings)
		}
	}
}
