// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// forwarding is a table of nftables with a flowtable and rules at forward.
func forwarding(dev string, rules ...string) []byte {
	out := fmt.Sprintf(`{"nftables":[{"metainfo":{"json_schema_version":1}},{"table":{"family":"inet","name":"fw"}},
		{"flowtable":{"family":"inet","name":"f","table":"fw","handle":1,"hook":"ingress","prio":0,"dev":%q}},
		{"chain":{"family":"inet","table":"fw","name":"c","type":"filter","hook":"forward","prio":-10,"policy":"accept"}}`,
		dev)
	for _, r := range rules {
		out += `,{"rule":{"family":"inet","table":"fw","chain":"c","expr":[` + r + `]}}`
	}
	return []byte(out + "]}")
}

// What a connection meets that a rule may hand to a flowtable depends on when it is handed over. Linux 6.1 was
// measured: its later packets pass a rule of FORWARD that drops them, whether that stands before the rule with
// "flow add" or behind it, unless they come in by an interface that is not the flowtable's; a SYN,ACK does not pass.
func TestFlowtables(t *testing.T) {
	const (
		flow   = `{"flow":{"op":"add","flowtable":"@f"}}`
		client = `{"match":{"op":"==","left":{"ct":{"key":"direction"}},"right":"original"}}`
		old    = `{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":"established"}}`
		reply  = `{"match":{"op":"==","left":{"ct":{"key":"direction"}},"right":"reply"}}`
		other  = `{"match":{"op":"==","left":{"meta":{"key":"l4proto"}},"right":"sctp"}}`
		drop   = `{"drop":null}`
		file   = "nft-ruleset.json"
	)
	cut := strings.Join([]string{old, client, drop}, ",")
	for _, c := range []struct {
		name    string
		do      func(w *capturedNode)
		verdict report.Verdict
		code    string
		says    string
	}{
		{"nothing is dropped", func(w *capturedNode) { w.files[file] = forwarding("cni0", flow) }, report.Match, "", ""},
		{
			"later packets are dropped behind it", func(w *capturedNode) { w.files[file] = forwarding("cni0", flow, cut) },
			report.Unknown, AnswerNotEvaluated, "flowtable",
		},
		{
			"later packets are dropped before it", func(w *capturedNode) { w.files[file] = forwarding("cni0", cut, flow) },
			report.Unknown, AnswerNotEvaluated, "nft list flowtables",
		},
		{
			"a flowtable of another interface", func(w *capturedNode) { w.files[file] = forwarding("eth9", flow, cut) },
			report.Mismatch, ConnectionCut, "",
		},
		{
			"a flowtable for another protocol",
			func(w *capturedNode) { w.files[file] = forwarding("cni0", other+","+flow, cut) },
			report.Mismatch, ConnectionCut, "",
		},
		{
			"the handshake's answer is dropped",
			func(w *capturedNode) { w.files[file] = forwarding("cni0", flow, reply+","+drop) },
			report.Mismatch, AnswerDropped, "",
		},
		{"FLOWOFFLOAD", func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL -j DROP")
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctstate RELATED,ESTABLISHED -j FLOWOFFLOAD --hw")
		}, report.Unknown, AnswerNotEvaluated, "FLOWOFFLOAD"},
		{"FLOWOFFLOAD where nothing is dropped", func(w *capturedNode) {
			w.first(v4, "filter", "FORWARD", "-m conntrack --ctstate RELATED,ESTABLISHED -j FLOWOFFLOAD")
		}, report.Match, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, base("real-2node-iptables"))
			c.do(w)
			w.judgesPods(t, c.verdict, c.code, c.says, func(f *report.Finding) string { return fmt.Sprint(*f) })
		})
	}
}
