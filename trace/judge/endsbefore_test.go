// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"testing"
)

func endsBeforeFaults() []fault {
	const ep3Dst = "-d 10.96.77.154/32 -p tcp "
	shadowedFrom := func(origin string) []string { return []string{ep3 + origin + " → Mismatch: Shadowed"} }
	// chain puts a chain of others into nat and a rule that leads to it before kube-proxy's.
	chain := func(base, target string, rules ...string) func(w *capturedNode) {
		return func(w *capturedNode) {
			w.first(v4, "nat", base, ep3Dst+target)
			for _, r := range rules {
				w.last(v4, "nat", "-A FIREWALL "+r)
			}
			w.table(v4, "nat", func(l string) []string {
				if l == "*nat" {
					return []string{l, ":FIREWALL - [0:0]"}
				}
				return []string{l}
			})
		}
	}
	return []fault{
		{
			name: "ACCEPT before KUBE-SERVICES in PREROUTING",
			do:   func(w *capturedNode) { w.first(v4, "nat", "PREROUTING", ep3Dst+"-j ACCEPT") },
			want: shadowedFrom("pod"),
		},
		{
			name: "RETURN before KUBE-SERVICES in OUTPUT",
			do:   func(w *capturedNode) { w.first(v4, "nat", "OUTPUT", ep3Dst+"-j RETURN") },
			want: shadowedFrom("node"),
		},
		{
			name: "a jump to a chain that accepts",
			do:   chain("PREROUTING", "-j FIREWALL", "-j ACCEPT"),
			want: shadowedFrom("pod"),
		},
		{
			name: "a goto to a chain that returns: what follows in PREROUTING is not asked",
			do:   chain("PREROUTING", "-g FIREWALL", "-j RETURN"),
			want: shadowedFrom("pod"),
		},
		{
			name: "a goto to a chain that has no rule for the packet",
			do:   chain("OUTPUT", "-g FIREWALL", "-p udp -j ACCEPT"),
			want: shadowedFrom("node"),
		},
		{
			name: "ACCEPT of half of the packets",
			do: func(w *capturedNode) {
				w.first(v4, "nat", "PREROUTING", ep3Dst+"-m statistic --mode random --probability 0.50000000000 -j ACCEPT")
			},
			want: shadowedFrom("pod"),
		},
		{
			name: "a jump to a chain that returns",
			do:   chain("PREROUTING", "-j FIREWALL", "-j RETURN"),
		},
		{
			name: "ACCEPT of another port",
			do: func(w *capturedNode) {
				w.first(v4, "nat", "PREROUTING", "-d 10.96.77.154/32 -p tcp -m tcp --dport 81 -j ACCEPT")
			},
		},
		{
			name: "ACCEPT behind KUBE-SERVICES",
			do:   func(w *capturedNode) { w.last(v4, "nat", "-A PREROUTING -j ACCEPT") },
		},
		{
			name: "ACCEPT in a table nat of the other backend: either is asked",
			do: func(w *capturedNode) {
				w.files["iptables-legacy-save.txt"] = []byte("*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n" +
					":OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A PREROUTING -j ACCEPT\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
				w.files["iptables-nft-save.txt"] = w.files[v4]
				delete(w.files, v4)
			},
		},
		{
			name: "ACCEPT, and no jump to KUBE-SERVICES behind it",
			do: func(w *capturedNode) {
				w.drop(v4, "-A PREROUTING", "-j KUBE-SERVICES")
				w.first(v4, "nat", "PREROUTING", ep3Dst+"-j ACCEPT")
			},
			all: every(func(path, was string) string {
				if strings.HasPrefix(was, "Match") && !isV6(path) && !strings.HasSuffix(path, "node") {
					return "Mismatch: NotProgrammed"
				}
				return ""
			}),
		},
		{
			name: "RETURN before KUBE-POSTROUTING: nothing is masqueraded",
			do:   func(w *capturedNode) { w.first(v4, "nat", "POSTROUTING", "-d 10.244.1.32/32 -j RETURN") },
			all: every(func(path, _ string) string {
				switch {
				case !strings.HasPrefix(path, np) && !strings.HasPrefix(path, "shop/np ClusterIP"):
					return ""
				case strings.HasSuffix(path, " from node") && !strings.Contains(path, "127.0.0.1"):
					return "Warning: Shadowed (warning)" // answers to the node's own address come all the same
				}
				return "Mismatch: Shadowed"
			}),
		},
		{
			name: "ACCEPT in FORWARD before what refuses Services without endpoints",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "FORWARD", "-d 10.96.128.57/32 -p tcp -j ACCEPT")
			},
			want: []string{"shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from pod → Mismatch: Shadowed"},
		},
		{
			name: "ACCEPT in FORWARD, and nothing that refuses behind it",
			do: func(w *capturedNode) {
				w.first(v4, "filter", "FORWARD", "-d 10.96.128.57/32 -p tcp -j ACCEPT")
				w.drop(v4, "-A KUBE-SERVICES", "10.96.128.57/32")
			},
			want: both("shop/ep0-empty ClusterIP 10.96.128.57:80/TCP from ", "Mismatch: AcceptedWithoutEndpoints"),
		},
	}
}

func TestWhatEndsAChainBeforeKubeProxysIsNamed(t *testing.T) {
	putIn(t, "iptables", endsBeforeFaults(), 14)
	w := openCaptured(t, "iptables")
	w.first(v4, "nat", "PREROUTING", "-d 10.96.77.154/32 -p tcp -j ACCEPT")
	for _, p := range w.run().Paths {
		if p.Service.Name != "ep3" || p.Origin.Kind != "pod" {
			continue
		}
		if len(p.Findings) == 0 || len(p.Findings[0].Evidence) == 0 {
			t.Fatalf("%+v", p.Findings)
		}
		f := p.Findings[0]
		if f.Evidence[0].Text != "-A PREROUTING -d 10.96.77.154/32 -p tcp -j ACCEPT" ||
			!strings.Contains(f.Remedy, "does not move the rules") || len(f.Commands) != 1 ||
			f.Commands[0].Line != "iptables-nft -t nat -S PREROUTING" {
			t.Errorf("%+v", f)
		}
	}
}

// TestWhatEndsAChainInIPVSModeIsNamed: there the chain of all Services only marks what is to be masqueraded.
func TestWhatEndsAChainInIPVSModeIsNamed(t *testing.T) {
	w := openCaptured(t, "ipvs")
	before := facts(openCaptured(t, "ipvs").run())
	w.first(v4, "nat", "PREROUTING", "-j ACCEPT")
	got := changes(before, facts(w.run()))
	other := func(s string) bool { return !strings.Contains(s, "Mismatch: Shadowed") }
	if len(got) == 0 || slices.ContainsFunc(got, other) {
		t.Errorf("got %q", got)
	}
}

// TestAcceptInAnEarlierChainEndsNothingInNFTablesMode: every base chain of a hook is run, unless the destination is
// settled.
func TestAcceptInAnEarlierChainEndsNothingInNFTablesMode(t *testing.T) {
	putIn(t, "nftables", []fault{
		{
			name: "accept in a nat chain of a lower priority",
			do:   func(w *capturedNode) { w.foreign("ip", "nat", "prerouting", "-110", jToEp3+`,{"accept":null}`) },
		},
		{
			name: "return in a filter chain of a lower priority",
			do:   func(w *capturedNode) { w.foreign("ip", "filter", "prerouting", "-300", jToEp3+`,{"return":null}`) },
		},
		{
			name: "redirect in a nat chain of a lower priority",
			do: func(w *capturedNode) {
				w.foreign("ip", "nat", "prerouting", "-110", jToEp3+`,{"redirect":{"port":15001}}`)
			},
			want: []string{ep3 + "pod → Mismatch: Shadowed"},
		},
	}, 3)
}
