// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/resolver"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about a Service's name, as the client's pod would resolve it. Nobody is asked for it here.
const (
	// DNSServerUnreachable says that the pod's name server cannot be asked.
	DNSServerUnreachable = "DNSServerUnreachable"
	// DNSOverTCPUnreachable says that it can be asked over UDP alone.
	DNSOverTCPUnreachable = "DNSOverTCPUnreachable"
	// NameServerUnknown says that nothing has the name server's address, while the cluster's DNS has another one.
	NameServerUnknown = "NameServerUnknown"
	// NameUnknown says that what the name is for the pod cannot be known without asking.
	NameUnknown = "NameUnknown"
	// ShortNames says that the pod's search list does not make the Service's name of a short one.
	ShortNames = "ShortNames"
)

var (
	_ = register(kind{
		code: DNSServerUnreachable, severity: mismatch, scope: onPath, by: segments,
		remedy: advice("the pod cannot resolve names: repair the path to its name server (the message says what is wrong "+
			"there); where the address is wrong, correct the kubelet's clusterDNS, or the pod's dnsConfig, and delete "+
			"the pod, so that it is created again",
			command{line: "kubectl get services,endpointslices -A -l k8s-app=kube-dns", when: "to see the cluster's DNS"}),
	})
	_ = register(kind{
		code: DNSOverTCPUnreachable, severity: warning, scope: onPath, by: segments,
		remedy: advice("a query whose answer is too large for UDP is repeated over TCP: let the DNS Service serve TCP port " +
			"53, too, and allow it in firewalls and NetworkPolicies"),
	})
	_ = register(kind{
		code: NameServerUnknown, severity: note, scope: onPath, by: segments,
		remedy: advice("compare the kubelet's clusterDNS with the ClusterIP of the cluster's DNS Service: the kubelet "+
			"writes it into a pod when the pod is made",
			command{line: "kubectl get services -A -l k8s-app=kube-dns", when: "to see the DNS Service's address"}),
	})
	_ = register(kind{
		code: NameUnknown, severity: note, scope: onPath, by: segments,
		remedy: advice("run trace with --end-to-end and --live, which asks in the pod's network namespace"),
	})
	_ = register(kind{
		code: ShortNames, severity: note, scope: onPath, by: segments,
		remedy: advice("use the full name, with a dot at its end, where the pod's DNS settings are as they should be; else " +
			"give the pod dnsPolicy ClusterFirst, and in its dnsConfig the option ndots:5, or none"),
	})
)

// dnsPort is where DNS is asked.
const dnsPort = 53

// maxForms is how many short forms of a name there are: web, web.shop, web.shop.svc.
const maxForms = 3

// named is what the client's pod does with the Service's name.
type named struct {
	segment report.Segment
	issues  []issue              // beside the segment's own
	server  types.NamespacedName // the Service that is the first name server; zero for none
}

// naming is what is known of the Service's name in the client's pod.
type naming struct {
	*tour

	svc   *corev1.Service
	state *nodestate.State // of the pod
	conf  *resolver.Config // nil where it could not be read
	full  string           // the Service's whole name, without the dot at its end
	want  []netip.Addr     // the addresses that the name has
	alias string           // the name that it is another one for
}

// aboutName judges the Service's name; nil where nothing that tells was collected.
func (t *tour) aboutName() *named {
	svc := t.cluster.services[t.ends.Service]
	if svc == nil {
		return nil
	}
	if t.ends.Pod == "" {
		return t.nameOnHost()
	}
	n, why := t.naming(svc)
	switch {
	case n == nil || n.conf == nil && why == "":
		return nil
	case n.conf == nil:
		return t.unknownName("resolv.conf of the pod could not be read: "+why, t.catResolvConf())
	}
	out := n.judge()
	if t.ends.Answers != nil {
		n.asked(out)
	}
	return out
}

// naming reads the resolv.conf of the client's pod, and finds the whole name; why says why it could not be read, where
// somebody has tried. nil where the pod was not read: its segment says so.
func (t *tour) naming(svc *corev1.Service) (n *naming, why string) {
	pod := t.nodes[t.ends.Client].Pods[t.ends.Pod]
	if pod == nil || pod.State == nil {
		return nil, ""
	}
	n = &naming{tour: t, svc: svc, state: pod.State}
	files := t.ends.Visited[t.ends.Client].Files.Pod(t.ends.Pod)
	data, ok, err := files.File(snapshot.ResolvConfFile)
	why = pod.Unread(snapshot.ResolvConfFile)
	switch {
	case err != nil:
		why = snapshot.Reason(err)
	case ok:
		if n.conf, err = resolver.Parse(data); err != nil {
			why = err.Error()
		}
	}
	if n.conf != nil {
		n.full = svc.Name + "." + svc.Namespace + ".svc." + n.clusterDomain()
		n.want, n.alias = n.records()
	}
	return n, why
}

// notAsked are the findings of a name server that queries, or answers, do not come to.
var notAsked = []string{DNSServerUnreachable, DNSOverTCPUnreachable, DNSNoAnswer}

// addName adds what was judged of the name to a path that it is a name for: one to a ClusterIP, and that of a Service
// without one. The connection by address is what the path's other segments are about: a name that is not known takes
// nothing from them.
func (t *tour) addName(p *report.Path, of *named) {
	if of == nil || p.Frontend.Port != 0 && p.Frontend.Kind != string(expect.ClusterIP) {
		return
	}
	p.Segments = slices.Insert(p.Segments, 0, of.segment)
	found := slices.Clone(of.issues)
	if of.segment.Code != "" {
		found = t.add(found, &of.segment)
		if of.server.Name != "" && slices.Contains(notAsked, of.segment.Code) {
			last := &found[len(found)-1]
			last.remedy.Commands = append(last.remedy.Commands, report.Command{
				When: "to see where queries are lost",
				Line: report.ShellLine("kubectl", "svcproxy", "trace", of.server.Name, "-n", of.server.Namespace,
					"--from", "pod/"+t.ends.Pod, "--end-to-end", "--live"),
			})
		}
	}
	more := t.findings(found)
	p.Findings = append(p.Findings, more...)
	p.Verdict = report.WithFindings(p.Verdict, more)
	report.Complete(p)
}

// unknownName is a name of which nothing can be said without asking; command tells.
func (t *tour) unknownName(message, command string) *named {
	return &named{segment: report.Segment{
		Segment: report.SegmentName, Place: t.clientPlace(), Verdict: report.SegmentUnknown, Code: NameUnknown,
		Message: message, Command: command,
	}}
}

func (t *tour) clientPlace() string { return "pod " + t.ends.Named }

// catResolvConf is a command that prints the pod's resolv.conf.
func (t *tour) catResolvConf() string {
	ns, name, _ := strings.Cut(t.ends.Named, "/")
	return report.ShellLine("kubectl", "exec", "-n", ns, "pod/"+name, "--", "cat", "/etc/resolv.conf")
}

// nameOnHost judges the name in a pod that has its node's network namespace. Its resolv.conf is not read, and what
// the kubelet makes of its policy is known (getPodDNSType in pkg/kubelet/network/dns/dns.go): ClusterFirst counts as
// Default there.
func (t *tour) nameOnHost() *named {
	p := t.cluster.podObject(t.ends.Named)
	if p == nil {
		return nil
	}
	switch p.Spec.DNSPolicy {
	case corev1.DNSClusterFirst:
		return t.unknownName("the pod is on the host network, and there the kubelet takes dnsPolicy ClusterFirst for "+
			"Default: it asks the resolvers of node "+t.Name+", which know no Services unless they ask the cluster's DNS "+
			"(ClusterFirstWithHostNet would ask that)", t.catResolvConf())
	case corev1.DNSDefault:
		return t.unknownName("the pod has dnsPolicy Default: it asks the resolvers of node "+t.Name+", which know no "+
			"Services unless they ask the cluster's DNS", t.catResolvConf())
	case corev1.DNSClusterFirstWithHostNet, corev1.DNSNone:
		return t.unknownName("resolv.conf of a pod on the host network is not read", t.catResolvConf())
	}
	return nil
}

// namespace is that of the client's pod.
func (t *tour) namespace() string {
	ns, _, _ := strings.Cut(t.ends.Pod, "/")
	return ns
}

// clusterDomain finds the cluster's domain in the search list of the client's pod, else in that of another pod that was
// read; else it is the kubelet's default.
func (n *naming) clusterDomain() string {
	if d := n.conf.ClusterDomain(n.namespace()); d != "" {
		return d
	}
	for _, node := range slices.Sorted(maps.Keys(n.ends.Visited)) {
		files := n.ends.Visited[node].Files
		if files == nil {
			continue
		}
		for _, name := range files.Pods() {
			data, ok, err := files.Pod(name).File(snapshot.ResolvConfFile)
			if !ok || err != nil {
				continue
			}
			ns, _, _ := strings.Cut(name, "/")
			if other, err := resolver.Parse(data); err == nil && other.ClusterDomain(ns) != "" {
				return other.ClusterDomain(ns)
			}
		}
	}
	return "cluster.local"
}

// judge judges the name without asking for it: the first server decides, as it is asked first.
func (n *naming) judge() *named {
	first := n.server(n.conf.Servers[0])
	out := &named{segment: first}
	out.server, _ = n.serviceAt(n.conf.Servers[0])
	s := &out.segment
	s.Segment, s.Place = report.SegmentName, n.clientPlace()
	command := "nsenter -t PID -n dig +short " + report.ShellWord(n.full+".") + " @" + n.conf.Servers[0].String()
	switch {
	case s.Verdict == report.SegmentRight:
		s.Message = fmt.Sprintf("the query for %s goes to %s; expected: %s; the answer is not known (--live asks)",
			n.full, s.Message, n.expected())
		s.Command, s.Node = command, n.Name
		out.issues = n.shortNames()
	case len(n.dnsServices()) == 0:
		s.Verdict, s.Code, s.Owner = report.SegmentUnknown, NameUnknown, ""
		s.Message = "no Service of the cluster serves DNS (UDP port 53); " + s.Message
	case s.Verdict == report.SegmentUnknown && s.Code == "":
		s.Code = NameUnknown
	}
	if s.Verdict == report.SegmentUnknown {
		s.Command, s.Node = command, n.Name
	}
	if s.Verdict != report.SegmentRight && !n.conf.NoServer {
		s.Evidence = append(say("resolv.conf: nameserver "+n.conf.Servers[0].String()), s.Evidence...)
	}
	for _, a := range n.conf.Servers[1:] {
		if other := n.server(a); other.Verdict != report.SegmentRight {
			s.Evidence = append(s.Evidence, say("resolv.conf names "+a.String()+", too: "+other.Message)...)
		}
	}
	s.Evidence = s.Evidence[:min(len(s.Evidence), maxEvidence)]
	return out
}

// expected says what the cluster's DNS has to answer (the specification of DNS for Services, kubernetes/dns).
func (n *naming) expected() string {
	switch {
	case n.alias != "":
		return "CNAME " + n.alias + ", and no virtual IP to trace"
	case n.svc.Spec.ClusterIP == corev1.ClusterIPNone && len(n.want) == 0:
		return "no address, as the Service is headless and no endpoint is ready"
	case n.svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return "the endpoints' own addresses (" + cut(texts(n.want), 4) + "), and no virtual IP to trace"
	}
	return cut(texts(n.want), 4)
}

// records are the addresses that the name has, or the name that it is another one for.
func (n *naming) records() (want []netip.Addr, alias string) {
	if n.svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, strings.TrimSuffix(n.svc.Spec.ExternalName, ".")
	}
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(want, a.Unmap()) {
			want = append(want, a.Unmap())
		}
	}
	if n.svc.Spec.ClusterIP != corev1.ClusterIPNone {
		for _, ip := range clusterIPs(n.svc) {
			add(ip)
		}
		return want, ""
	}
	for _, slice := range n.cluster.EndpointSlices {
		if expect.ServiceOf(slice) != expect.NameOf(n.svc) {
			continue
		}
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; expect.IsReady(e) {
				for _, ip := range e.Addresses {
					add(ip)
				}
			}
		}
	}
	return want, ""
}

func clusterIPs(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) > 0 {
		return svc.Spec.ClusterIPs
	}
	return []string{svc.Spec.ClusterIP}
}

func texts(list []netip.Addr) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.String()
	}
	return out
}

// shortNames says which short forms of the name do not lead to the whole one.
func (n *naming) shortNames() []issue {
	forms := make([]string, 0, maxForms)
	if n.namespace() == n.svc.Namespace {
		forms = append(forms, n.svc.Name)
	}
	within := n.svc.Name + "." + n.svc.Namespace
	forms = append(forms, within, within+".svc")
	var never, musl []string
	for _, form := range forms {
		switch w := n.conf.Leads(form, n.full); {
		case !w.Glibc:
			never = append(never, form)
		case !w.Musl:
			musl = append(musl, form)
		}
	}
	var parts []string
	if len(never) > 0 {
		parts = append(parts, "by its search list "+strings.Join(never, ", ")+" does not become "+n.full)
	}
	if len(musl) > 0 {
		parts = append(parts, fmt.Sprintf("as ndots is %d, musl (Alpine) asks for %s as it is, and glibc does so first",
			n.conf.Ndots, strings.Join(musl, ", ")))
	}
	if len(parts) == 0 {
		return nil
	}
	return []issue{{
		code: ShortNames, message: n.clientPlace() + ": " + strings.Join(parts, "; "),
		evidence: say("resolv.conf: search "+cut(n.conf.Search, 8), fmt.Sprintf("resolv.conf: ndots:%d", n.conf.Ndots)),
	}}
}
