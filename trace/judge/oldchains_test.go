// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// chains declares chains of nat, and adds rules to it.
func (w *capturedNode) chains(rules string, names ...string) {
	w.t.Helper()
	w.table(v4, "nat", func(l string) []string {
		switch l {
		case "*nat":
			out := []string{l}
			for _, name := range names {
				out = append(out, ":"+name+" - [0:0]")
			}
			return out
		case "COMMIT":
			return append(strings.Split(strings.TrimSpace(rules), "\n"), l)
		}
		return []string{l}
	})
}

// oldChains are what kube-proxy 1.23 and its kubelet leave on a node that goes to 1.28 or later in one step: a chain of
// a load balancer whose traffic policy is Local, and the marking for drop.
const (
	oldChains = `-A KUBE-XLB-AAAAAAAAAAAAAAAA -s 10.244.0.0/16 -m comment --comment "Redirect pods" -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-XLB-AAAAAAAAAAAAAAAA -m comment --comment "shop/gone has no local endpoints" -j KUBE-MARK-DROP
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000`
	removeOld = `printf '%s\n' '*nat' ':KUBE-XLB-AAAAAAAAAAAAAAAA - [0:0]' ':KUBE-MARK-DROP - [0:0]' ` +
		`'-X KUBE-XLB-AAAAAAAAAAAAAAAA' '-X KUBE-MARK-DROP' COMMIT | iptables-nft-restore --noflush`
)

// A chain that nothing gets to and that refers to one of a Service keeps kube-proxy from deleting that: it is a
// warning, it says what refers to what, and the command removes what refers to others first.
func TestChainsThatOthersReferTo(t *testing.T) {
	const gone = "KUBE-SVC-AAAAAAAAAAAAAAAA"
	for _, tt := range []struct {
		name     string
		do       func(w *capturedNode)
		want     []string // SEVERITY SUBJECT
		says     string   // in the last of them
		remedy   string
		commands []string
	}{
		{
			name: "none refers to it", do: func(w *capturedNode) { w.chains("", gone) },
			want: []string{"info " + gone}, says: "no packet gets to them", remedy: "nothing to do",
		},
		{
			name: "another one that kube-proxy deletes with it", do: func(w *capturedNode) {
				w.chains("-A "+gone+" -j KUBE-SEP-AAAAAAAAAAAAAAAA", gone, "KUBE-SEP-AAAAAAAAAAAAAAAA")
			},
			want: []string{"info KUBE-SEP-AAAAAAAAAAAAAAAA, " + gone}, says: "no packet gets to them", remedy: "nothing to do",
		},
		{
			name: "one of an old kube-proxy's", do: func(w *capturedNode) {
				w.chains(oldChains, gone, "KUBE-XLB-AAAAAAAAAAAAAAAA", "KUBE-MARK-DROP")
			},
			want:   []string{"info " + gone, "warning KUBE-XLB-AAAAAAAAAAAAAAAA"},
			says:   "they refer to " + gone + ": as long as they do, kube-proxy cannot delete these",
			remedy: "remove them first", commands: []string{removeOld + " @node1"},
		},
		{
			name: "one of an old kube-proxy's that refers to nothing", do: func(w *capturedNode) {
				w.chains("", "KUBE-XLB-AAAAAAAAAAAAAAAA")
			},
			want: []string{"info KUBE-XLB-AAAAAAAAAAAAAAAA"}, says: "none since 1.28 removes them", remedy: "remove them;",
			commands: []string{
				`printf '%s\n' '*nat' ':KUBE-XLB-AAAAAAAAAAAAAAAA - [0:0]' '-X KUBE-XLB-AAAAAAAAAAAAAAAA' COMMIT | ` +
					"iptables-nft-restore --noflush @node1",
			},
		},
		{
			name: "the chain that is referred to is of a Service that there is", do: func(w *capturedNode) {
				w.chains("-A KUBE-XLB-B -j KUBE-SVC-5WEV5APYAFGEJUWJ", "KUBE-XLB-B")
			},
			want: []string{"warning KUBE-XLB-B"}, says: "they refer to KUBE-SVC-5WEV5APYAFGEJUWJ", remedy: "remove them first",
			commands: []string{
				`printf '%s\n' '*nat' ':KUBE-XLB-B - [0:0]' '-X KUBE-XLB-B' COMMIT | iptables-nft-restore --noflush @node1`,
			},
		},
		{
			name: "others refer to the marking for drop, too", do: func(w *capturedNode) {
				w.chains(oldChains+"\n-A MINE -j KUBE-MARK-DROP", gone, "KUBE-XLB-AAAAAAAAAAAAAAAA", "KUBE-MARK-DROP", "MINE")
			},
			want: []string{"info " + gone, "warning KUBE-XLB-AAAAAAAAAAAAAAAA"}, says: "they refer to",
			remedy: "remove them first",
			commands: []string{
				`printf '%s\n' '*nat' ':KUBE-XLB-AAAAAAAAAAAAAAAA - [0:0]' '-X KUBE-XLB-AAAAAAAAAAAAAAAA' COMMIT | ` +
					"iptables-nft-restore --noflush @node1",
			},
		},
		{
			name: "one of others", do: func(w *capturedNode) { w.chains("-A MINE -j "+gone, gone, "MINE") },
			want:   []string{"info " + gone, "warning MINE"},
			says:   "nat MINE, which is not kube-proxy's and which no packet gets to",
			remedy: "find who wrote nat MINE",
		},
		{
			name: "the marking for drop alone, which a kubelet before 1.28 keeps", do: func(w *capturedNode) {
				w.chains("-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000", "KUBE-MARK-DROP")
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.do(w)
			r := w.run()
			var got []string
			var last report.Finding
			for _, f := range r.Findings {
				if f.Code == OrphanChain {
					got = append(got, string(f.Severity)+" "+f.Subject)
					last = f
				}
			}
			if strings.Join(got, "; ") != strings.Join(tt.want, "; ") {
				t.Fatalf("%q, want %q", got, tt.want)
			}
			if !strings.Contains(last.Message, tt.says) || !strings.HasPrefix(last.Remedy, tt.remedy) {
				t.Errorf("%q; %q", last.Message, last.Remedy)
			}
			compareCommands(t, last.Commands, tt.commands)
		})
	}
}
