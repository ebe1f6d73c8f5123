// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

var updateIncidents = flag.Bool("update", false, "write the golden files of testdata/incidents again")

// incidents is where the first screens are: NAME.txt for each incident.
const incidents = "../../testdata/incidents"

// screenful is how many lines, and how wide, a person sees without scrolling.
const (
	screenLines   = 20
	screenColumns = 100
)

// incident is a Service that does not work, and what the first lines of trace must say of it.
type incident struct {
	name, symptom string // of docs/symptoms.md
	// fault is a recorded one (testdata/faults), else snapshot is a directory, or an archive, in whose files replaced
	// texts are, and of whose objects one Service is without.
	fault, snapshot string
	replaced        []replacement
	without         string // the name of a Service that has been deleted
	verify          bool   // the command is verify
	args            string
	code            string // of the first finding
	impact          string
	guilty          string // in the marked evidence
	remedy          string // in the first command after that which keeps the evidence
}

// replacement puts one text in the place of another one in a file; without another one it is a new file, or its whole
// text.
type replacement struct{ file, old, text string }

// captured is a node whose kube-proxy has written rules of many Services.
const captured = "../../testdata/snapshots/iptables"

// healthyFaults is the node of testdata/faults before its faults.
const healthyFaults = "../../testdata/faults/iptables/healthy"

const iptablesSave = "nodes/node1/iptables-nft-save.txt"

const (
	faultsService = "svcproxy-e2e/faults --node node1 --from "
	faultsClient  = faultsService + "pod/svcproxy-e2e/faults-client-node1"
)

// threeNodes is a snapshot of a connection from end to end.
const threeNodes = "../../testdata/endtoend/vxlan.tar.gz"

// The cluster's DNS, whose only endpoint is not ready, and what kube-proxy has of it.
const (
	kubeDNS = `{"apiVersion": "v1", "kind": "Service",
  "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
  "spec": {"type": "ClusterIP", "clusterIP": "10.97.0.10", "clusterIPs": ["10.97.0.10"], "ipFamilies": ["IPv4"],
    "internalTrafficPolicy": "Cluster", "selector": {"k8s-app": "kube-dns"}, "ports": [
    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53}]}}`
	kubeDNSSlice = `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
  "metadata": {"name": "kube-dns-x7k2v", "namespace": "kube-system",
    "labels": {"kubernetes.io/service-name": "kube-dns"}},
  "endpoints": [{"addresses": ["10.245.0.3"], "conditions": {"ready": false, "serving": false, "terminating": false},
    "nodeName": "node2", "targetRef": {"kind": "Pod", "namespace": "kube-system", "name": "coredns-5d78c9869d-4zq8c"}}],
  "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]}`
)

// noDNS is the rule that refuses what is sent to it.
func noDNS(protocol, port string) string {
	return fmt.Sprintf(`[0:0] -A KUBE-SERVICES -d 10.97.0.10/32 -p %s -m comment --comment "kube-system/kube-dns:%s `+
		`has no endpoints" -m %[1]s --dport 53 -j REJECT --reject-with icmp-port-unreachable`+"\n", protocol, port)
}

// legacyRules are those that kube-proxy in iptables mode writes of the Services of captured, on a node whose iptables
// is the legacy one.
const legacyRules = "../../testdata/snapshots/iptables-legacy/nodes/node1/iptables-legacy-save.txt"

var allIncidents = []incident{
	{
		name: "hangs", symptom: "connections hang, every time",
		fault: "iptables/a-mark-of-mangle-leads-to-a-blackhole", args: faultsClient,
		code: "RefusingRoute", impact: "all connections to", guilty: "blackhole", remedy: "ip rule del",
	},
	{
		name: "refused", symptom: "connections are refused, every time",
		snapshot: captured, replaced: []replacement{
			{
				iptablesSave, `[0:0] -A KUBE-SERVICES -d 10.96.121.73/32 `,
				`[0:0] -A KUBE-SERVICES -d 10.96.77.154/32 -p tcp -m comment --comment "shop/ep3 has no endpoints" ` +
					`-m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable` + "\n" +
					`[0:0] -A KUBE-SERVICES -d 10.96.121.73/32 `,
			},
			{
				iptablesSave, `-A KUBE-SERVICES -d 10.96.77.154/32 -p tcp -m comment --comment "shop/ep3 cluster IP"`,
				`-A KUBE-SERVICES -d 10.96.77.155/32 -p tcp -m comment --comment "shop/ep3 cluster IP"`,
			},
		},
		args: "shop/ep3 --node node1",
		code: "RefusedWithEndpoints", impact: "all connections to", guilty: "filter KUBE-SERVICES rule 2", remedy: "kubectl",
	},
	{
		name: "one-in-three-fails", symptom: "one connection in two or three fails",
		fault: "iptables/the-answers-of-an-endpoint-are-dropped-in-forward", args: "svcproxy-e2e/faults --node node1",
		code: "AnswerDropped", impact: "1 of 3 connections to",
		guilty: "filter FORWARD rule 1", remedy: "iptables-nft -t filter -S",
	},
	{
		name: "no-load", symptom: "one endpoint gets no load, or too much",
		snapshot: broken, args: "shop/web",
		code: "MissingEndpoint", impact: "1 of 3 endpoints of shop/web gets no connections",
		guilty: "nat KUBE-SVC-67NZLRHBNDSAWJRO", remedy: "kubectl -n kube-system delete pod/kube-proxy-x2v9p",
	},
	{
		name: "since-a-deployment", symptom: "it fails since a deployment",
		snapshot: broken, args: "shop/api",
		code: "MissingEndpoint", impact: "1 of 2 connections to shop/api", guilty: "nat KUBE-SVC-RUKNB3TURLFC6SGL",
		remedy: "kubectl -n kube-system delete pod/kube-proxy-x2v9p",
	},
	{
		name: "large-answers", symptom: "only large requests or answers hang",
		fault: "iptables/answers-longer-than-those-of-the-handshake-are-dropped", args: faultsClient,
		code: "", impact: "",
		guilty: "filter FORWARD rule 1", remedy: "iptables-nft -t filter -S",
	},
	{
		name: "not-from-pods", symptom: "it works from the node, not from pods",
		fault: "iptables/a-rule-leads-what-comes-in-by-the-bridge-to-a-blackhole", args: "svcproxy-e2e/faults --node node1",
		code: "RefusingRoute", impact: "all connections to", guilty: "blackhole", remedy: "ip rule del",
	},
	{
		name: "not-from-the-node", symptom: "it works from pods, not from the node",
		fault: "iptables/the-answers-of-an-endpoint-are-dropped-in-input", args: "svcproxy-e2e/faults --node node1",
		code: "AnswerDropped", impact: "1 of 3 connections to",
		guilty: "filter INPUT rule 1", remedy: "iptables-nft -t filter -S",
	},
	{
		name: "dropped", symptom: "one connection in two or three fails",
		snapshot: broken, args: "shop/checkout",
		code: "Dropped", impact: "1 of 2 connections to shop/checkout from pods of worker-1 hangs: dropped",
		guilty: "filter FORWARD rule 1", remedy: "iptables-nft -t filter -S FORWARD",
	},
	{
		name: "connections-break", symptom: "established connections break",
		fault: "iptables/later-packets-of-the-client-are-dropped-in-forward", args: faultsClient,
		code: "ConnectionCut", impact: "1 of 3 connections to",
		guilty: "filter FORWARD rule 1", remedy: "iptables-nft -t filter -S",
	},
	{
		name: "ipv6", symptom: "IPv6 fails, IPv4 works",
		fault: "iptables/an-unreachable-route-to-an-endpoint-ipv6", args: "svcproxy-e2e/faults --node node1",
		code: "RefusingRoute", impact: "1 of 3 connections to", guilty: "unreachable", remedy: "ip -6 route del",
	},
	{
		name: "not-from-outside", symptom: "it works inside the cluster, not from outside",
		snapshot: captured, replaced: []replacement{{
			iptablesSave, `[0:0] -A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall"`,
			`[0:0] -A FORWARD ! -s 10.244.0.0/16 -m conntrack --ctstate NEW -j DROP` + "\n" +
				`[0:0] -A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall"`,
		}},
		args: "shop/affinity-np --node node1",
		code: "Dropped", impact: "all connections to shop/affinity-np at NodePort 10.77.0.11:30099 from outside",
		guilty: "filter FORWARD rule 1", remedy: "iptables-nft -t filter -S FORWARD",
	},
	{
		name: "another-server", symptom: "a NodePort answers with something else",
		snapshot: captured, replaced: []replacement{{
			iptablesSave, `[0:0] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
			`[0:0] -A PREROUTING -p tcp -m tcp --dport 30099 -j DNAT --to-destination 10.244.1.250:9999` + "\n" +
				`[0:0] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		}},
		args: "10.77.0.11:30099 --node node1",
		code: "Shadowed", impact: "all connections to shop/affinity-np from outside the cluster go to",
		guilty: "nat PREROUTING rule 1", remedy: "iptables-nft -t nat -S PREROUTING",
	},
	{
		name: "not-the-same-endpoint", symptom: "a client does not stay with its endpoint",
		snapshot: captured, replaced: []replacement{{
			iptablesSave, `--rcheck --seconds 600 --reap --name KUBE-SEP-7AFPUWGPVHEYFVOP`,
			`--rcheck --seconds 10 --reap --name KUBE-SEP-7AFPUWGPVHEYFVOP`,
		}},
		args: "shop/affinity --node node1",
		code: "AffinityTimeout", impact: "1 of 3 connections to shop/affinity", guilty: "nat KUBE-SVC-2P5UX4GDSMXEBYXA",
		remedy: "kubectl",
	},
	{
		name: "wrong-client-address", symptom: "the server sees the wrong client address",
		snapshot: captured, replaced: []replacement{{
			iptablesSave, `! -s 10.244.0.0/16 -d 10.96.21.191/32`, `-d 10.96.21.191/32`,
		}},
		args: "10.96.21.191 --node node1",
		code: "WrongMasquerade", impact: "all connections to shop/ep2 from pods of node1",
		guilty: "nat KUBE-SVC-LW44NJRZRAXF5AKR rule 1", remedy: "kubectl",
	},
	{
		name: "own-service", symptom: "a pod does not reach its own Service",
		snapshot: healthyFaults, replaced: slices.Repeat([]replacement{ // of each of five ports
			{"nodes/node1/ip-link.json", `"hairpin":true`, `"hairpin":false`},
		}, 5),
		args: "svcproxy-e2e/faults --node node1",
		code: "HairpinOff", impact: "connections to svcproxy-e2e/faults at 2 of its 5 frontends from an endpoint's pod",
		guilty: "no port of cni0 is in hairpin mode", remedy: "echo 1 | tee /sys/class/net/cni0/brif/*/hairpin_mode",
	},
	{
		name: "same-node", symptom: "pods of one node do not reach each other through a Service",
		snapshot: healthyFaults, replaced: []replacement{{
			"nodes/node1/sysctl.txt", "net/bridge/bridge-nf-call-iptables=1", "net/bridge/bridge-nf-call-iptables=0",
		}},
		args: faultsClient,
		code: "BridgeNetfilterOff", impact: "1 of 3 connections to", guilty: "net/bridge/bridge-nf-call-iptables=0",
		remedy: "modprobe br_netfilter",
	},
	{
		name: "lost-udp", symptom: "DNS is slow, or UDP is lost",
		snapshot: captured, replaced: []replacement{{
			"nodes/node1/conntrack.txt", "ipv4     2 tcp ",
			"ipv4     2 udp      17 29 src=10.244.1.56 dst=10.96.178.81 sport=40000 dport=53 src=10.244.9.9 " +
				"dst=10.244.1.56 sport=5353 dport=40000 [ASSURED] mark=0 use=1\nipv4     2 tcp ",
		}},
		args: "shop/udp --node node1",
		code: "ConntrackStale", impact: "1 UDP connection to shop/udp from 10.244.1.56:40000 still goes to",
		guilty: "conntrack: udp src=10.244.1.56 dst=10.96.178.81 sport=40000",
		remedy: "conntrack -D -f ipv4 -p udp --orig-dst 10.96.178.81",
	},
	{
		name: "not-answered", symptom: "connections are accepted, and nothing is answered",
		snapshot: threeNodes, replaced: []replacement{
			{file: "nodes/node2/pods/shop_web-76bbf6d6cc-pdcpk/stopped.txt", text: "429 T\n"},
		},
		args: "shop/web --from pod/shop/web-76bbf6d6cc-m4dxw --end-to-end",
		code: "ProcessStopped", impact: "1 of 3 connections to shop/web from pod shop/web-76bbf6d6cc-m4dxw",
		guilty: "ss: tcp *:8080", remedy: "kubectl delete -n shop pod/web-76bbf6d6cc-pdcpk",
	},
	{
		name: "only-from-outside", symptom: "it works from outside, not inside",
		snapshot: captured, replaced: []replacement{{
			"cluster/services.json", `"name": "lb",`, `"name": "lb", "annotations": ` +
				`{"service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol": "true"},`,
		}},
		args: "203.0.113.10 --node node1 --from pod",
		code: "LoadBalancerBypassed", impact: "all connections to shop/lb", guilty: "annotation service.beta",
		remedy: "kubectl get -n shop service/lb",
	},
	{
		name: "name-not-resolved", symptom: "a pod does not resolve a name, or it takes seconds",
		snapshot: threeNodes, replaced: []replacement{
			{
				file: "nodes/node1/pods/shop_web-76bbf6d6cc-rjf7z/resolv.conf",
				text: "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.97.0.10\noptions ndots:5\n",
			},
			{"cluster/services.json", `"items": [`, `"items": [` + kubeDNS + ","},
			{"cluster/endpointslices.json", `"items": [`, `"items": [` + kubeDNSSlice + ","},
			{
				iptablesSave, "[0:0] -A KUBE-FIREWALL ",
				noDNS("udp", "dns") + noDNS("tcp", "dns-tcp") + "[0:0] -A KUBE-FIREWALL ",
			},
		},
		args: "shop/web --from pod/shop/web-76bbf6d6cc-rjf7z --end-to-end",
		code: "DNSServerUnreachable", impact: "all connections by name to shop/web",
		guilty: "resolv.conf: nameserver 10.97.0.10", remedy: "kubectl get services,endpointslices -A -l k8s-app=kube-dns",
	},
	{
		name: "deleted", symptom: "a deleted Service still answers", verify: true,
		snapshot: captured, without: "shop/ep2", args: "-A --node node1",
		code: "StaleService", impact: "rules of node1 still take connections to Services that do not exist",
		guilty: "nat KUBE-SERVICES rule 12", remedy: "kubectl",
	},
	{
		name: "mode-changed", symptom: "the proxy mode was changed, and Services fail",
		snapshot: "../../testdata/snapshots/nftables", replaced: []replacement{
			{file: "nodes/node1/iptables-legacy-save.txt", text: fileText(legacyRules)},
		},
		args: "shop/ep2 --node node1",
		code: "ModeLeftover", impact: "no path to shop/ep2 is wrong, but ModeLeftover on node1 may affect",
		guilty: "nat PREROUTING rule 1",
		remedy: "kubectl get pods -A -o wide",
	},
	{
		name: "one-node", symptom: "it fails from one node only",
		fault: "iptables-neighbours/a-next-hop-that-is-nobody", args: "svcproxy-e2e/faults --node node1",
		code: "NeighbourFailed", impact: "1 of 3 connections to", guilty: "10.79.0.99", remedy: "ip neigh show",
	},
}

// The first lines of trace hold the verdict, what it means, its cause, the evidence and a remedy that begins with
// keeping the evidence.
func TestFirstScreen(t *testing.T) {
	for i := range allIncidents {
		in := &allIncidents[i]
		t.Run(in.name, func(t *testing.T) {
			screen := in.screen(t)
			lines := strings.Split(screen, "\n")
			find := func(what, pattern string) string {
				t.Helper()
				re := regexp.MustCompile(pattern)
				for _, line := range lines {
					if re.MatchString(line) {
						return line
					}
				}
				t.Errorf("%s is not in the first %d lines (%s):\n%s", what, screenLines, pattern, screen)
				return ""
			}
			find("verdict and impact", `^Impact   (MISMATCH|UNKNOWN|WARNING): `+regexp.QuoteMeta(in.impact))
			find("the finding", `^(MISMATCH|UNKNOWN|WARNING)  `+in.code)
			find("the cause", `^  why    `)
			find("the marked evidence", `^  where  > .*`+regexp.QuoteMeta(in.guilty))
			find("how to keep the evidence", `^  keep   kubectl svcproxy dump `)
			find("the remedy", `^  fix    `)
			find("the command of the remedy", `^ {11}`+regexp.QuoteMeta(in.remedy))
			file := filepath.Join(incidents, in.name+".txt")
			if *updateIncidents {
				if err := os.WriteFile(file, []byte(screen), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if screen != string(want) {
				t.Errorf("%s differs (go test ./plugin/command -run FirstScreen -update writes it again); got:\n%s", file, screen)
			}
		})
	}
}

// Every incident is a symptom of the page, which is where a person begins.
func TestIncidentsAreSymptoms(t *testing.T) {
	page, err := os.ReadFile("../../docs/symptoms.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range allIncidents {
		if in := &allIncidents[i]; !strings.Contains(string(page), "| "+in.symptom+" |") {
			t.Errorf("%s: %q is not in docs/symptoms.md", in.name, in.symptom)
		}
	}
}

// screen is the first screen of trace for an incident, as it is on a cluster whose node was just read.
func (in *incident) screen(t *testing.T) string {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	env := newEnvironment(streams, System{})
	env.out = terminal.Live(out, terminal.Style{Width: screenColumns})
	args := append(strings.Fields(in.args), "--snapshot", in.dir(t))
	judged := tracedOf
	if in.verify {
		judged = verifiedOf
	}
	printer, r, v := judged(t, env, args)
	r.Source, v.Age = &report.Source{Context: "prod", Cluster: "prod", ReadAt: "2026-11-22T19:55:00Z"}, ""
	out.Reset() // what was said meanwhile
	if err := conclude(env, printer, r, v); err == nil {
		t.Error("nothing is wrong")
	}
	lines := bytes.SplitAfter(out.Bytes(), []byte("\n"))
	return string(bytes.Join(lines[:min(len(lines), screenLines)], nil))
}

// tracedOf is what trace says of a snapshot, as if its nodes had been read.
func tracedOf(t *testing.T, env *environment, args []string) (*print.Printer, *report.Report, print.View) {
	t.Helper()
	o := &traceOptions{}
	flags := parsed(t, env, o.add, args)
	c, err := o.config(env, flags, flags.Args())
	fatal(t, err)
	c.live, c.again = true, nil
	r, v, err := traced(context.Background(), env, &c, opened(t, c.session))
	fatal(t, err)
	return c.printer, r, v
}

// verifiedOf is the same of verify.
func verifiedOf(t *testing.T, env *environment, args []string) (*print.Printer, *report.Report, print.View) {
	t.Helper()
	o := &verifyOptions{}
	flags := parsed(t, env, o.add, args)
	c, err := o.config(env, flags, flags.Args())
	fatal(t, err)
	c.live, c.again = true, nil
	r, v, err := verified(context.Background(), env, &c, opened(t, c.session))
	fatal(t, err)
	return c.printer, r, v
}

// parsed are the flags of a command, and its arguments.
func parsed(t *testing.T, env *environment, add func(*cobra.Command, *environment), args []string) *pflag.FlagSet {
	t.Helper()
	cmd := &cobra.Command{}
	add(cmd, env)
	fatal(t, cmd.ParseFlags(args))
	return cmd.Flags()
}

func opened(t *testing.T, c run.Config) *run.Session {
	t.Helper()
	s, err := run.Open(c)
	fatal(t, err)
	t.Cleanup(s.Close)
	return s
}

func fileText(path string) string {
	data, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		panic(err)
	}
	return string(data)
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
