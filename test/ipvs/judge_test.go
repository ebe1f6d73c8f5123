// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// addClient adds the pod of the network's client, so that it is the one that stands for all pods of the node.
func addClient(c *snapshot.Cluster) {
	c.Pods = append(c.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "client"},
		Spec:       corev1.PodSpec{NodeName: nodeName},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{
			{IP: "10.244.1.254"}, {IP: "fd00:10:244:1:ffff:ffff:ffff:fffe"},
		}},
	})
}

// judged is the node as the helper's code collects it now, judged by the objects.
func judged(t *testing.T) report.NodeReport {
	t.Helper()
	cluster, files := captures(t)
	r := judge.Files(cluster, snapshot.NewNode(nodeName, files),
		judge.Request{Backwards: true, Matching: true, PerPathService: true})
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	return r
}

// TestEveryServiceIsRight: of what kube-proxy has written nothing is wrong, by the helper's code and by the plugin as a
// user runs it.
func TestEveryServiceIsRight(t *testing.T) {
	r := judged(t)
	if r.Mode.Actual != "ipvs" || r.Mode.Reported != "ipvs" || r.Mode.Health != "healthy" {
		t.Errorf("mode: %+v", r.Mode)
	}
	for _, f := range r.Findings {
		if f.Severity != report.Info {
			t.Errorf("node: %s %s: %s %v", f.Code, f.Subject, f.Message, f.Evidence)
		}
	}
	dropped := 0
	for _, p := range r.Paths {
		switch {
		case dropsAnyRange(&r) && p.Service.Name == "kitchen-sink" && p.Frontend.Kind == "LoadBalancerIP" &&
			p.Origin.Kind == "external":
			dropped++
			if p.Verdict != report.Mismatch || p.Actual.Outcomes[0].Action != "Drop" ||
				p.Findings[0].Code != judge.IPSetMissing {
				t.Errorf("%s: %s %+v", pathName(&p), p.Verdict, p.Findings)
			}
		case p.Verdict != report.Match && p.Verdict != report.ByDesign:
			t.Errorf("%s: %s %+v", pathName(&p), p.Verdict, p.Findings)
		}
	}
	t.Logf("%s: %+v", r.Mode.KubeProxyVersion, r.Summary)
	if r.Summary.Matched < 150 {
		t.Errorf("only %d paths match", r.Summary.Matched)
	}
	out, err := command(t.Context(), "", plugin, "verify", "-A", "--local", "--node", nodeName, "--kubeconfig", kubeconfig)
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case dropsAnyRange(&r) && (dropped != 2 || !ended || exit.ExitCode() != 1):
		t.Errorf("kube-proxy drops what comes on %d paths: %v\n%s", dropped, err, out)
	case !dropsAnyRange(&r) && (err != nil || !strings.Contains(out, "MATCH: all ")):
		t.Errorf("%v\n%s", err, out)
	}
	out, err = command(t.Context(), "", plugin, "mode", "--local", "--node", nodeName, "--kubeconfig", kubeconfig)
	if err != nil || !strings.Contains(out, "MATCH: ipvs (nft)") {
		t.Errorf("%v\n%s", err, out)
	}
}

// dropsAnyRange tells of a fault of kube-proxy's own: for loadBalancerSourceRanges of 0.0.0.0/0 those of 1.33 and
// before make an entry that no set takes, and so drop what comes from anywhere (pkg/proxy/serviceport.go of 1.35 has
// IsZeroCIDR). One of the captured Services has it.
func dropsAnyRange(r *report.NodeReport) bool {
	var minor int
	_, err := fmt.Sscanf(r.Mode.KubeProxyVersion, "v1.%d.", &minor)
	return err == nil && minor < 34
}

func pathName(p *report.Path) string {
	return fmt.Sprintf("%s/%s %s %s:%d/%s from %s %s", p.Service.Namespace, p.Service.Name, p.Frontend.Kind,
		p.Frontend.Address, p.Frontend.Port, p.Frontend.Protocol, p.Origin.Kind, p.Origin.Address)
}

// refusalWait is for packets that are dropped.
const refusalWait = 2 * time.Second

// TestWalkAgainstTheKernel opens connections on every path that was judged: where they come to, whom the endpoint sees,
// and whether they are refused or dropped, is what the walk says.
func TestWalkAgainstTheKernel(t *testing.T) {
	listen(t)
	r := judged(t)
	places := map[string]testutil.Thread{
		"node": threadAt(t, ""), "pod": threadAt(t, "client"), "external": threadAt(t, "outside"),
	}
	arrived := map[string]bool{}
	asked, packets := 0, 0
	for i := range r.Paths {
		p := &r.Paths[i]
		if p.Origin.Address == "" || p.Frontend.Protocol == "SCTP" { // nobody listens at SCTP's endpoints
			continue
		}
		from := netip.MustParseAddr(p.Origin.Address)
		if p.Origin.Kind == "external" && !arrived[p.Origin.Address] {
			arrived[p.Origin.Address] = true
			fromOutside(t, from)
		}
		asked++
		n, problem := compare(places[p.Origin.Kind], p, from)
		packets += n
		if problem != "" {
			t.Errorf("%s: %s; the walk says %s", pathName(p), problem, outcomes(p))
		}
	}
	t.Logf("%d paths, %d connections", asked, packets)
	if asked < 180 {
		t.Errorf("only %d paths were asked", asked)
	}
}

// fromOutside gives an address to whoever is beyond the router.
func fromOutside(t *testing.T, a netip.Addr) {
	t.Helper()
	bind(t, "outside", a)
	via := "172.31.255.2"
	if a.Is6() {
		via = "fd00:ff::2"
	}
	do(t, fmt.Sprintf("ip -netns router route replace %s via %s", a, via))
}

func outcomes(p *report.Path) string {
	var out []string
	for _, o := range p.Actual.Outcomes {
		s := o.Action
		if o.Endpoint != nil {
			s += " " + net.JoinHostPort(o.Endpoint.Address, fmt.Sprint(o.Endpoint.Port))
		}
		if o.Masquerade {
			s += " masqueraded"
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// compare asks until every endpoint had its turn, and says what the walk has not predicted.
func compare(at testutil.Thread, p *report.Path, from netip.Addr) (asked int, problem string) {
	to := netip.AddrPortFrom(netip.MustParseAddr(p.Frontend.Address), uint16(p.Frontend.Port))
	wait, times := answerWait, max(1, len(p.Actual.Outcomes)*rounds)
	if !slices.ContainsFunc(p.Actual.Outcomes, func(o report.Outcome) bool { return o.Action == "DNAT" }) ||
		p.Verdict == report.ByDesign {
		wait, times = refusalWait, 1
	}
	seenAt := map[string]bool{}
	for range times {
		asked++
		s, err := ask(at, p.Frontend.Protocol, from, to, wait)
		var was string
		switch {
		case err == nil && s.Client != from:
			was = "DNAT " + s.Server.String() + " masqueraded"
		case err == nil:
			was = "DNAT " + s.Server.String()
		case errors.Is(err, syscall.ECONNREFUSED):
			was = "Reject"
		case errors.Is(err, syscall.ECONNRESET) || isTimeout(err):
			was = "Drop"
		default:
			return asked, err.Error()
		}
		seenAt[was] = true
	}
	for was := range seenAt {
		if !predicted(p, was) {
			return asked, "the kernel: " + was
		}
	}
	return asked, ""
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// predicted tells whether the walk has an outcome that looks like this to the client. Where the endpoint's answer does
// not come back, by design, it is a drop; a packet that is let through untranslated finds nobody at the node, who says
// so.
func predicted(p *report.Path, was string) bool {
	// What the node sends from its own address keeps it when it is masqueraded.
	own := p.Origin.Kind == "node" && slices.Contains(nodeAddresses, p.Origin.Address)
	for _, o := range p.Actual.Outcomes {
		text := o.Action
		if o.Action == "DNAT" {
			text += " " + net.JoinHostPort(o.Endpoint.Address, fmt.Sprint(o.Endpoint.Port))
		}
		if o.Masquerade {
			text += " masqueraded"
		}
		switch {
		case text == was:
			return true
		case own && text == was+" masqueraded":
			return true
		case o.Action == "DNAT" && p.Verdict == report.ByDesign && was == "Drop":
			return true
		case o.Action == "Accept" && was == "Reject":
			return true
		}
	}
	return false
}

// fault is one that is made on the node as it happens, and undone.
type fault struct {
	name     string
	do, undo []string
	want     []string // "CODE SUBJECT", all that comes to be
}

// faults are made together, group by group, each of a Service of its own.
var faults = [][]fault{
	{
		{
			"weight 0",
			[]string{"ipvsadm -e -t 10.96.180.79:80 -r 10.244.2.20:8080 -m -w 0"},
			[]string{"ipvsadm -e -t 10.96.180.79:80 -r 10.244.2.20:8080 -m -w 1"},
			[]string{"RealServerWeightZero 10.244.2.20:8080"},
		},
		{
			"a real server deleted",
			[]string{"ipvsadm -d -t 10.96.163.119:80 -r 10.244.2.122:8080"},
			[]string{"ipvsadm -a -t 10.96.163.119:80 -r 10.244.2.122:8080 -m -w 1"},
			[]string{"MissingEndpoint 10.244.2.122:8080"},
		},
		{
			"a real server too many",
			[]string{"ipvsadm -a -t 10.96.174.0:80 -r 10.244.2.99:8080 -m -w 1"},
			[]string{"ipvsadm -d -t 10.96.174.0:80 -r 10.244.2.99:8080"},
			[]string{"StaleEndpoint 10.244.2.99:8080"},
		},
		{
			// Of a Service whose ports are the same: ipvsadm takes no other for that.
			"direct routing",
			[]string{"ipvsadm -e -t 10.96.36.27:9100 -r 10.77.0.12:9100 -g -w 1"},
			[]string{"ipvsadm -e -t 10.96.36.27:9100 -r 10.77.0.12:9100 -m -w 1"},
			[]string{"ForwardMethod 10.77.0.12:9100"},
		},
		{
			"the scheduler changed",
			[]string{"ipvsadm -E -t 10.96.199.130:80 -s lc"},
			[]string{"ipvsadm -E -t 10.96.199.130:80 -s rr"},
			[]string{"SchedulerMismatch TCP 10.96.199.130:80"},
		},
		{
			"persistence",
			[]string{"ipvsadm -E -t 10.96.61.250:80 -s rr -p 60"},
			[]string{"ipvsadm -E -t 10.96.61.250:80 -s rr"},
			[]string{"PersistenceMismatch TCP 10.96.61.250:80"},
		},
		{
			"the virtual server deleted",
			[]string{"ipvsadm -D -t 10.96.191.136:80"},
			[]string{"ipvsadm -A -t 10.96.191.136:80 -s rr", "ipvsadm -a -t 10.96.191.136:80 -r 10.244.1.16:8080 -m -w 1"},
			[]string{"VirtualServerMissing TCP 10.96.191.136:80"},
		},
		{
			"a virtual server too many",
			[]string{"ipvsadm -A -u 10.96.9.9:53 -s rr"},
			[]string{"ipvsadm -D -u 10.96.9.9:53"},
			[]string{"VirtualServerStale UDP 10.96.9.9:53"},
		},
		{
			"the address taken off",
			[]string{"ip address del 10.96.186.109/32 dev kube-ipvs0"},
			[]string{"ip address add 10.96.186.109/32 dev kube-ipvs0"},
			[]string{"VIPMissing 10.96.186.109"},
		},
		{
			"an address too many",
			[]string{"ip address add 198.51.100.200/32 dev kube-ipvs0"},
			[]string{"ip address del 198.51.100.200/32 dev kube-ipvs0"},
			[]string{"VIPStale 198.51.100.200"},
		},
		{
			"an entry deleted from KUBE-CLUSTER-IP",
			[]string{"ipset del KUBE-CLUSTER-IP 10.96.118.125,tcp:80"},
			[]string{"ipset add KUBE-CLUSTER-IP 10.96.118.125,tcp:80"},
			[]string{"IPSetMissing KUBE-CLUSTER-IP"},
		},
		{
			"an entry deleted from KUBE-NODE-PORT-TCP",
			[]string{"ipset del KUBE-NODE-PORT-TCP 30080"},
			[]string{"ipset add KUBE-NODE-PORT-TCP 30080"},
			[]string{"IPSetMissing KUBE-NODE-PORT-TCP"},
		},
		{
			"a rule of someone else's",
			[]string{"iptables -I OUTPUT -d 10.244.3.21 -j DROP"},
			[]string{"iptables -D OUTPUT -d 10.244.3.21 -j DROP"},
			[]string{"Dropped 10.244.3.21:8080"},
		},
	},
	{
		{
			"no connection tracking",
			[]string{"sysctl -qw net.ipv4.vs.conntrack=0"},
			[]string{"sysctl -qw net.ipv4.vs.conntrack=1"},
			// Later answers of TCP, without a connection, meet the rules for new ones.
			[]string{
				"IPVSConntrackOff *", "AnswerDropped *", "ConnectionCut 10.244.1.114:8080, 10.244.1.115:8080",
				"ConnectionCut 10.244.1.47:8080, 10.244.1.49:8080", "ConnectionCut 10.244.1.54:8080",
			},
		},
	},
}

// TestFaultsAreFound breaks the node in many ways: each is found, with nothing beside it, and gone when it is repaired.
func TestFaultsAreFound(t *testing.T) {
	before := codes(t)
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(work, "kube-proxy.log")); t.Failed() && err == nil {
			t.Logf("kube-proxy's log ends with\n%s", text[max(0, len(text)-6000):])
		}
	})
	for _, group := range faults {
		for _, f := range group {
			for _, line := range f.do {
				do(t, line)
			}
		}
		found := codes(t)
		for _, f := range group {
			for _, line := range f.undo {
				do(t, line)
			}
		}
		for _, f := range group {
			t.Run(f.name, func(t *testing.T) {
				for _, want := range f.want {
					at := slices.IndexFunc(found, func(got string) bool { return matches(got, want) })
					if at < 0 {
						t.Fatalf("not found: %s", want)
					}
					found = slices.Delete(found, at, at+1)
				}
			})
		}
		for _, got := range found {
			if !slices.Contains(before, got) {
				t.Errorf("found, and not made: %s", got)
			}
		}
	}
	if after := codes(t); !slices.Equal(before, after) {
		t.Errorf("after all: %q, before: %q", after, before)
	}
}

// matches compares "CODE SUBJECT"; a wanted subject of "*" stands for any number of endpoints.
func matches(got, want string) bool {
	code, ok := strings.CutSuffix(want, "*")
	return got == want || ok && strings.HasPrefix(got, code)
}

// codes are all findings that are errors, each once; of one code with many subjects the first.
func codes(t *testing.T) []string {
	t.Helper()
	r := judged(t)
	found := map[string]bool{}
	add := func(list []report.Finding) {
		for _, f := range list {
			if f.Severity == report.Error {
				subject := f.Subject
				if f.Code == judge.IPVSConntrackOff {
					subject = "*"
				}
				found[f.Code+" "+subject] = true
			}
		}
	}
	add(r.Findings)
	for i := range r.Paths {
		add(r.Paths[i].Findings)
	}
	var out []string
	for c := range found {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}
