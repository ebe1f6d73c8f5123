// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// emptied takes the rules of chains of nftables mode, whose names begin and end in a way.
func (w *capturedNode) emptied(prefix, suffix string) {
	w.t.Helper()
	var listing struct {
		NFTables []json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(w.files[snapshot.NFTFile], &listing); err != nil {
		w.t.Fatal(err)
	}
	before := len(listing.NFTables)
	listing.NFTables = slices.DeleteFunc(listing.NFTables, func(raw json.RawMessage) bool {
		var object struct {
			Rule *struct {
				Family, Chain string
			}
		}
		if err := json.Unmarshal(raw, &object); err != nil {
			w.t.Fatal(err)
		}
		r := object.Rule
		return r != nil && r.Family == "ip" && strings.HasPrefix(r.Chain, prefix) && strings.HasSuffix(r.Chain, suffix)
	})
	if len(listing.NFTables) == before {
		w.t.Fatalf("no rule of %s…%s", prefix, suffix)
	}
	text, err := json.Marshal(listing)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files[snapshot.NFTFile] = text
}

// A chain on the path of a Service that translates nothing is named, at whatever stage it stands, and there is one
// finding on each path: what becomes of the packet (KUBE-FIREWALL, a policy, a reject, no route) is a part of it.
func TestChainThatTranslatesNothingIsNamed(t *testing.T) {
	np := kubeproxy.ChainNames("shop/np", corev1.ProtocolTCP)
	local := kubeproxy.ChainNames("shop/np-etp-local", corev1.ProtocolTCP)
	ranges := kubeproxy.ChainNames("shop/lb-ranges", corev1.ProtocolTCP)
	x := openCaptured(t, "iptables")
	sep1, sep2 := x.sep("shop/np", "10.244.1.32:8080"), x.sep("shop/np", "10.244.2.33:8080")
	const v4Drop, firewall = "policy drops it", "filter KUBE-FIREWALL rule 1 drops it"
	const restart = "restart kube-proxy on node1: it rewrites all its rules"
	for _, tt := range []struct {
		name, base string
		do         func(w *capturedNode)
		service    string
		paths      int // of the Service that are wrong
		code       string
		says       []string // each in at least one message
		every      string   // in all of them
	}{
		{
			name: "the only endpoint's DNAT rule", service: "default/kubernetes", paths: 2, code: ServiceNotProgrammed,
			do:    func(w *capturedNode) { w.drop(v4, "KUBE-SEP", "DNAT", "default/kubernetes") },
			every: "holds no DNAT rule: nothing translates the packet",
		},
		{
			name: "the DNAT rules of all endpoints", service: "shop/np", paths: 5, code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-SEP", "DNAT", "shop/np\"") },
			says: []string{sep1, sep2, firewall}, every: "holds no DNAT rule",
		},
		{
			name: "all rules of all endpoints", service: "shop/np", paths: 5, code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-SEP", "shop/np\"") },
			says: []string{sep1, sep2, firewall}, every: "is empty: nothing translates the packet",
		},
		{
			name: "one of two DNAT rules", service: "shop/np", paths: 5, code: MissingEndpoint,
			do:    func(w *capturedNode) { w.drop(v4, "-A "+sep2, "DNAT") },
			every: "nat " + sep2 + " holds no DNAT rule: what nat " + np.Cluster + " sends there is not translated",
		},
		{
			name: "one of two endpoints' chains", service: "shop/np", paths: 5, code: MissingEndpoint,
			do:    func(w *capturedNode) { w.drop(v4, "-A "+sep2) },
			every: "nat " + sep2 + " is empty: what nat " + np.Cluster + " sends there is not translated",
		},
		{
			name: "the Service's chain", service: "shop/np", paths: 5, code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.drop(v4, "-A "+np.Cluster) },
			says: []string{firewall}, every: "nat " + np.Cluster + " is empty: nothing translates the packet",
		},
		{
			name: "the Service's chain but for the mark", service: "shop/np", paths: 5, code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.drop(v4, "-A "+np.Cluster, "KUBE-SEP") },
			says: []string{firewall}, every: "nat " + np.Cluster + " has no rule that leads to an endpoint",
		},
		{
			name: "the chain of external traffic", service: "shop/np", paths: 3, code: ServiceNotProgrammed,
			do: func(w *capturedNode) { w.drop(v4, "-A "+np.External) }, every: "nat " + np.External + " is empty",
		},
		{
			name: "the chain of external traffic but for the mark", service: "shop/np", paths: 3, code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.drop(v4, "-A "+np.External, "-j KUBE-SVC") },
			says: []string{firewall}, every: "nat " + np.External + " has no rule that leads to the endpoints",
		},
		{
			name: "the chain of local endpoints", service: "shop/np-etp-local", paths: 1, code: ServiceNotProgrammed,
			do: func(w *capturedNode) { w.drop(v4, "-A "+local.Local) }, every: "nat " + local.Local + " is empty",
		},
		{
			name: "the chain of source ranges", service: "shop/lb-ranges", paths: 2, code: SourceRangesMismatch,
			do:   func(w *capturedNode) { w.drop(v4, "-A "+ranges.Firewall) },
			says: []string{"filter KUBE-PROXY-FIREWALL rule 2 drops it"}, every: "nat " + ranges.Firewall + " is empty",
		},
		{
			name: "the endpoints behind source ranges", service: "shop/lb-ranges", paths: 7, code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.drop(v4, "-A KUBE-SEP", "DNAT", "shop/lb-ranges\"") },
			says: []string{"filter KUBE-PROXY-FIREWALL rule 2 drops it"}, every: "holds no DNAT rule",
		},
		{
			name: "the jump to the Service, and a policy that drops", service: "shop/ep3", paths: 2, code: ServiceNotProgrammed,
			do: func(w *capturedNode) {
				w.drop(v4, "-A KUBE-SERVICES", "shop/ep3 cluster IP")
				w.policy(v4, "filter", "FORWARD")
			},
			says: []string{v4Drop}, every: "no rule of KUBE-SERVICES or KUBE-NODEPORTS leads from this frontend",
		},
		{
			name: "the Service's chain, and a rule of others that rejects", service: "shop/ep3", paths: 2,
			code: ServiceNotProgrammed,
			do: func(w *capturedNode) {
				w.drop(v4, "-A "+kubeproxy.ChainNames("shop/ep3", corev1.ProtocolTCP).Cluster)
				w.first(v4, "filter", "OUTPUT", "-d 10.96.0.0/16 -j REJECT")
			},
			says: []string{"filter OUTPUT rule 1 rejects it"}, every: "is empty: nothing translates the packet",
		},
		{
			name: "nftables: a Service's chain", base: "nftables", service: "shop/np", paths: 4, code: ServiceNotProgrammed,
			do: func(w *capturedNode) { w.emptied("service-", "-shop/np/tcp/") }, every: "-shop/np/tcp/ is empty",
		},
		{
			name: "nftables: the chain of external traffic", base: "nftables", service: "shop/np", paths: 2,
			code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.emptied("external-", "-shop/np/tcp/") }, every: "-shop/np/tcp/ is empty",
		},
		{
			name: "nftables: all endpoints' chains", base: "nftables", service: "shop/affinity", paths: 2,
			code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.emptied("endpoint-", "/8080") }, every: "10.244.1.56/8080 is empty",
		},
		{
			name: "nftables: one endpoint's chain", base: "nftables", service: "shop/affinity", paths: 2, code: MissingEndpoint,
			do:    func(w *capturedNode) { w.emptied("endpoint-", "shop/affinity/tcp/__10.244.2.57/8080") },
			every: "10.244.2.57/8080 is empty: what nft kube-proxy service-",
		},
		{
			name: "nftables: the chain of local endpoints", base: "nftables", service: "shop/np-etp-local", paths: 1,
			code: ServiceNotProgrammed,
			do:   func(w *capturedNode) { w.emptied("local-", "shop/np-etp-local/tcp/") }, every: "is empty",
		},
		{
			name: "ipvs: a virtual server without real servers", base: "ipvs", service: "shop/np", paths: 2,
			code:  MissingEndpoint,
			do:    func(w *capturedNode) { w.drop(snapshot.IPVSFile, "-a -t 10.77.0.11:30080") },
			every: "ipvs TCP 10.77.0.11:30080 rr has no real server: IPVS refuses all connections",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, base(tt.base))
			tt.do(w)
			r := w.run()
			said, wrong := "", 0
			for _, p := range r.Paths {
				if p.Verdict != report.Mismatch || p.Service.Namespace+"/"+p.Service.Name != tt.service {
					continue
				}
				wrong++
				if len(p.Findings) != 1 || p.Findings[0].Code != tt.code || !strings.HasPrefix(p.Findings[0].Remedy, restart) {
					t.Errorf("%+v from %s: %+v, want %s alone", p.Frontend, p.Origin.Kind, p.Findings, tt.code)
					continue
				}
				message := p.Findings[0].Message
				if said += message + "\n"; !strings.Contains(message, tt.every) {
					t.Errorf("%q does not say %q", message, tt.every)
				}
			}
			for _, text := range tt.says {
				if !strings.Contains(said, text) {
					t.Errorf("nothing says %q: %s", text, said)
				}
			}
			if wrong != tt.paths {
				t.Errorf("%d paths are wrong, want %d", wrong, tt.paths)
			}
		})
	}
}

// Where the source of packets is not translated, the chain is named that should set the mark or translate what has it,
// or the rule of others that comes in between.
func TestCauseOfMissingMasquerade(t *testing.T) {
	np := kubeproxy.ChainNames("shop/np", corev1.ProtocolTCP)
	x := openCaptured(t, "iptables")
	const (
		anew    = "restart kube-proxy on node1: it"
		foreign = "find who owns "
	)
	for _, tt := range []struct {
		name, base   string
		do           func(w *capturedNode)
		says, remedy string
	}{
		{
			name: "the rule that marks", do: func(w *capturedNode) { w.drop(v4, "-A KUBE-MARK-MASQ") },
			says: "nat KUBE-MARK-MASQ is empty", remedy: anew,
		},
		{
			name: "MASQUERADE", do: func(w *capturedNode) { w.drop(v4, "-A KUBE-POSTROUTING", "MASQUERADE") },
			says: "nat KUBE-POSTROUTING has no rule that translates a source", remedy: anew,
		},
		{
			name: "all of KUBE-POSTROUTING", do: func(w *capturedNode) { w.drop(v4, "-A KUBE-POSTROUTING") },
			says: "nat KUBE-POSTROUTING is empty", remedy: anew,
		},
		{
			name: "the jump to it", do: func(w *capturedNode) { w.drop(v4, "-A POSTROUTING", "KUBE-POSTROUTING") },
			says: "nat POSTROUTING does not lead to kube-proxy's rules", remedy: anew,
		},
		{name: "another mark ahead of it", do: func(w *capturedNode) {
			w.first(v4, "mangle", "POSTROUTING", "-j MARK --set-xmark 0x0/0xffffffff")
		}, says: "mangle POSTROUTING rule 1, which is not kube-proxy's, changes its mark", remedy: foreign},
		{name: "an endpoint's own rule", do: func(w *capturedNode) {
			w.drop(v4, "-A "+x.sep("shop/np", "10.244.1.32:8080"), "KUBE-MARK-MASQ")
		}, says: "a pod that reaches itself through the Service gets no answer", remedy: anew},
		{
			name: "the mark of external traffic", do: func(w *capturedNode) { w.drop(v4, "-A "+np.External, "KUBE-MARK-MASQ") },
			says: "the source address is not translated", remedy: anew,
		},
		{
			name: "the mark of traffic to the cluster IP",
			do:   func(w *capturedNode) { w.drop(v4, "-A "+np.Cluster, "KUBE-MARK-MASQ") },
			says: "the source address is not translated", remedy: anew,
		},
		{
			name: "nftables: masquerading", base: "nftables", do: func(w *capturedNode) { w.emptied("masquerading", "") },
			says: "nft kube-proxy masquerading is empty", remedy: anew,
		},
		{
			name: "nftables: the jump to it", base: "nftables", do: func(w *capturedNode) { w.emptied("nat-postrouting", "") },
			says: "nft kube-proxy nat-postrouting does not lead to", remedy: anew,
		},
		{
			name: "ipvs: the rule that marks", base: "ipvs", do: func(w *capturedNode) { w.drop(v4, "-A KUBE-MARK-MASQ") },
			says: "nat KUBE-MARK-MASQ is empty", remedy: anew,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, base(tt.base))
			tt.do(w)
			said := 0
			for _, p := range w.run().Paths {
				for _, f := range p.Findings {
					if f.Code != WrongMasquerade {
						continue
					}
					if strings.Contains(f.Message, tt.says) {
						said++
					} else if p.Frontend.Kind != "ClusterIP" {
						t.Errorf("%+v: %s", p.Frontend, f.Message)
					}
					if !strings.HasPrefix(f.Remedy, tt.remedy) {
						t.Errorf("%s: %s", f.Message, f.Remedy)
					}
				}
			}
			if said == 0 {
				t.Errorf("nothing says %q", tt.says)
			}
		})
	}
}
