// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The client's pod of the captured node, and a Service there that has port 53 of UDP and TCP, as the cluster's DNS has.
const (
	nameClient = "shop/pod-14"
	nameServer = "10.96.250.135"
	kubeletDNS = "search shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\nnameserver "
)

// nameCase is a captured node with a pod that has a resolv.conf.
type nameCase struct {
	*capturedNode

	pod    map[string]string
	answer func(*snapshot.NameAnswer) // what a server answers, in place of NXDOMAIN; nil: nobody is asked
	of     string                     // the Service; shop/ep1 if empty
	named  string                     // the client, where it is on the host network
	last   report.NodeReport          // what judged has made
}

func newNameCase(t *testing.T, resolvConf string) *nameCase {
	t.Helper()
	const rules = `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},` +
		`{"priority":32767,"src":"all","table":"default"}]`
	w := openCaptured(t, "iptables")
	for name, text := range map[string]string{
		snapshot.LinkFile: `[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536}]`,
		snapshot.RuleFile: rules, snapshot.NeighbourFile: "[]", snapshot.SysctlFile: "net/ipv4/ip_forward=1\n",
		snapshot.BridgeFDBFile: `[{"mac":"33:33:00:00:00:01","ifname":"eth0","flags":["self"],"state":"permanent"}]`,
	} {
		if w.files[name] == nil {
			w.files[name] = []byte(text)
		}
	}
	return &nameCase{capturedNode: w, pod: map[string]string{
		snapshot.ResolvConfFile: resolvConf, snapshot.UnreadFile: "{}", snapshot.ListenFile: "\n",
		snapshot.AddrFile: `[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"addr_info":[` +
			`{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},{"ifindex":2,"ifname":"eth0",` +
			`"flags":["BROADCAST","UP","LOWER_UP"],"addr_info":[{"family":"inet","local":"10.244.1.19","prefixlen":24,` +
			`"scope":"global"}]}]`,
		snapshot.RouteFile: `[{"dst":"default","gateway":"10.244.1.1","dev":"eth0","flags":[]},{"dst":"10.244.1.0/24",` +
			`"dev":"eth0","protocol":"kernel","scope":"link","prefsrc":"10.244.1.19","flags":[]}]`,
		snapshot.LinkFile: `[{"ifindex":2,"ifname":"eth0","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500}]`,
		snapshot.RuleFile: rules, snapshot.NeighbourFile: "[]", snapshot.SysctlFile: "net/ipv4/ip_forward=0\n",
	}}
}

// judged returns the name's segment, and the codes of what was found of the name.
func (w *nameCase) judged() (s report.Segment, codes []string, verdict report.Verdict) {
	w.t.Helper()
	files := map[string][]byte{}
	maps.Copy(files, w.files)
	ends := &Ends{Client: "node1", Pod: nameClient, Named: nameClient}

	if w.named != "" {
		ends.Pod, ends.Named = "", w.named
	} else {
		for name, text := range w.pod {
			files["pods/shop_pod-14/"+name] = []byte(text)
		}
	}
	of := w.of
	if of == "" {
		of = "ep1"
	}
	ends.Service = types.NamespacedName{Namespace: "shop", Name: of}
	node := snapshot.NewNode("node1", files)
	ends.Visited = map[string]*Visited{"node1": {State: loadCaptured(w.t, node), Files: node}}
	index := NewCluster(w.cluster)
	if w.answer != nil {
		ends.Answers = &snapshot.NameAnswers{}
		for _, q := range NameQuestions(index, ends) {
			a := snapshot.NameAnswer{NameQuestion: q, Code: "NXDOMAIN"}
			w.answer(&a)
			ends.Answers.List = append(ends.Answers.List, a)
		}
	}
	r := Node(index, ends.Visited["node1"].State, Request{
		Services: []types.NamespacedName{ends.Service}, From: &From{Kind: expect.FromPod, Pod: nameClient}, Matching: true,
	})
	EndToEnd(index, ends, &r)
	w.last = r
	for i := range r.Paths {
		for k := range r.Paths[i].Segments {
			if r.Paths[i].Segments[k].Segment == report.SegmentName {
				s = r.Paths[i].Segments[k]
			}
		}
		for _, f := range r.Paths[i].Findings {
			if slices.Contains(nameCodes, f.Code) && !slices.Contains(codes, f.Code) {
				codes = append(codes, f.Code)
				if f.Remedy == "" || f.Message == "" {
					w.t.Errorf("%+v", f)
				}
			}
		}
		verdict = r.Paths[i].Verdict
	}
	return s, codes, verdict
}

var nameCodes = []string{
	DNSServerUnreachable, DNSOverTCPUnreachable, NameServerUnknown, NameUnknown, ShortNames, DNSAnswer, DNSNoAnswer,
}

// A name that is not answered is no endpoint's fault: no endpoint is marked, and the sentence of impact says so. What
// is lost on the way to the server is traced by the command that is given.
func TestNameIsNoEndpointsFault(t *testing.T) {
	w := newNameCase(t, kubeletDNS+nameServer)
	w.answer = func(a *snapshot.NameAnswer) {
		if a.Code = ""; a.TCP {
			a.Code = "NXDOMAIN"
		} else {
			a.Error = "no answer in time"
		}
	}
	s, codes, _ := w.judged()
	if strings.Join(codes, " ") != DNSNoAnswer || !strings.Contains(s.Message, "over TCP "+nameServer+" does answer") {
		t.Errorf("%v %s", codes, s.Message)
	}
	for i := range w.last.Paths {
		p := &w.last.Paths[i]
		for _, r := range p.Rows {
			if r.Code != "" {
				t.Errorf("%s is marked %s", r.Address, r.Code)
			}
		}
		for _, f := range p.Findings {
			if want := "kubectl svcproxy trace multiport -n shop --from pod/" + nameClient + " --end-to-end --live"; f.Code ==
				DNSNoAnswer && f.Commands[len(f.Commands)-1].Line != want {
				t.Errorf("%+v", f.Commands)
			}
		}
	}
	r := report.Report{Verdict: report.Mismatch, Nodes: []report.NodeReport{w.last}}
	if got := report.Impact(&r); !strings.Contains(got, "all connections by name to the Service") {
		t.Error(got)
	}
}

// What a pod does with a Service's name, by its resolv.conf: what is wrong before anybody is asked, and what cannot be
// known.
func TestNames(t *testing.T) {
	wrong, right, unknown := report.SegmentWrong, report.SegmentRight, report.SegmentUnknown
	local := func(address, listen string) func(*nameCase) {
		return func(w *nameCase) {
			w.files[snapshot.AddrFile] = []byte(strings.Replace(string(w.files[snapshot.AddrFile]), `"addr_info":[`,
				`"addr_info":[{"family":"inet","local":"`+address+`","prefixlen":32,"scope":"global"},`, 1))
			w.files[snapshot.ListenFile] = append(w.files[snapshot.ListenFile], []byte(listen)...)
		}
	}
	both := "udp UNCONN 0 0 169.254.20.10:53 0.0.0.0:* users:((\"node-cache\",pid=7,fd=3))\n" +
		"tcp LISTEN 0 128 169.254.20.10:53 0.0.0.0:* users:((\"node-cache\",pid=7,fd=4))\n"
	for _, c := range []struct {
		name    string
		conf    string
		do      func(w *nameCase)
		verdict report.SegmentVerdict // "": there is no segment
		codes   string
		has     string // the segment's message
	}{
		{
			name: "the cluster's DNS", conf: kubeletDNS + nameServer, verdict: right,
			has: "the query for ep1.shop.svc.cluster.local goes to 10.96.250.135 (Service shop/multiport): " +
				"UDP and TCP get as far as node node1; expected: 10.96.219.55; the answer is not known (--live asks)",
		},
		{name: "trap: resolv.conf was not collected", do: func(w *nameCase) { delete(w.pod, snapshot.ResolvConfFile) }},
		{
			name: "resolv.conf could not be read", verdict: unknown, codes: NameUnknown, has: "permission denied",
			do: func(w *nameCase) {
				delete(w.pod, snapshot.ResolvConfFile)
				w.pod[snapshot.UnreadFile] = `{"resolv.conf":"permission denied"}`
			},
		},
		{
			name: "no rule for the cluster's DNS", conf: kubeletDNS + nameServer, verdict: wrong,
			codes: DNSServerUnreachable, has: "UDP to 10.96.250.135:53 (Service shop/multiport) on node node1",
			do: func(w *nameCase) { w.drop(snapshot.IPTablesFile, "KUBE-SERVICES", "shop/multiport:dns cluster IP") },
		},
		{
			name: "a Service without port 53 of TCP", conf: kubeletDNS + "10.96.178.81", verdict: unknown,
			codes: DNSOverTCPUnreachable, has: "and no port 53 of TCP",
		},
		{
			name: "a Service without port 53", conf: kubeletDNS + ep3At.Addr().String(), verdict: wrong,
			codes: DNSServerUnreachable, has: "Service shop/ep3 has 10.96.77.154, and no port 53 of UDP",
		},
		{
			name: "an address that nothing has", conf: kubeletDNS + "10.96.0.99", verdict: unknown, codes: NameServerUnknown,
			has: "the name server 10.96.0.99 is the address of no Service, pod or node; the cluster's DNS is at ",
		},
		{
			name: "trap: a server outside that the pod asks for", conf: kubeletDNS + "192.0.2.53", verdict: unknown,
			codes: NameUnknown, has: "(dnsPolicy None)", do: func(w *nameCase) {
				w.cluster.Pods = append(w.cluster.Pods, clientPod(corev1.DNSNone, false))
			},
		},
		{
			name: "trap: the node's resolver", conf: "nameserver 192.0.2.53\nsearch example.org", verdict: unknown,
			codes: NameUnknown, has: "is not a Service of the cluster",
		},
		{
			name: "the node's DNS cache", conf: kubeletDNS + "169.254.20.10", verdict: right,
			do: local("169.254.20.10", both), has: "169.254.20.10 on node node1 itself (a DNS cache, process node-cache)",
		},
		{
			name: "the node's DNS cache is gone", conf: kubeletDNS + "169.254.20.10", verdict: wrong,
			codes: DNSServerUnreachable, do: local("169.254.20.10", ""), has: "nothing listens there at port 53 of UDP",
		},
		{
			name: "the node's DNS cache is stopped", conf: kubeletDNS + "169.254.20.10", verdict: wrong,
			codes: DNSServerUnreachable, has: "process node-cache (7), which listens at 169.254.20.10:53, is stopped",
			do: func(w *nameCase) {
				local("169.254.20.10", both)(w)
				w.files[snapshot.StoppedFile] = []byte("7 T node-cache\n")
			},
		},
		{
			name: "the node drops the answers of its DNS cache", conf: kubeletDNS + "169.254.20.10", verdict: wrong,
			codes: DNSServerUnreachable, has: "the answer: dropped by filter OUTPUT",
			do: func(w *nameCase) {
				local("169.254.20.10", both)(w)
				w.first(v4, "filter", "OUTPUT", "-p udp -m udp --sport 53 -j DROP")
			},
		},
		{
			name: "a server that both libraries pass over", conf: "search svc.cluster.local\n nameserver " + nameServer,
			verdict: wrong, codes: DNSServerUnreachable, has: "resolv.conf names no server",
		},
		{
			name: "no server, and none in the pod", conf: "search shop.svc.cluster.local\n", verdict: wrong,
			codes: DNSServerUnreachable, has: "resolv.conf names no server",
		},
		{
			name: "a resolver in the pod", conf: kubeletDNS + "127.0.0.1", verdict: unknown, codes: NameUnknown,
			has: "the pod asks process dnsmasq, in the pod itself, at 127.0.0.1", do: func(w *nameCase) {
				w.pod[snapshot.ListenFile] = "udp UNCONN 0 0 127.0.0.1:53 0.0.0.0:* users:((\"dnsmasq\",pid=7,fd=3))\n"
			},
		},
		{
			name: "the pod has no route to its server", conf: kubeletDNS + nameServer, verdict: wrong,
			codes: DNSServerUnreachable, has: "the pod has no usable route to 10.96.250.135",
			do: func(w *nameCase) {
				w.pod[snapshot.RouteFile] = `[{"dst":"10.244.1.0/24","dev":"eth0","protocol":"kernel","scope":"link",` +
					`"prefsrc":"10.244.1.19","flags":[]}]`
			},
		},
		{
			name: "no search list", conf: "nameserver " + nameServer, verdict: right, codes: ShortNames,
			has: "the query for ep1.shop.svc.cluster.local goes to",
		},
		{
			name: "few ndots", verdict: right, codes: ShortNames, has: "goes to",
			conf: strings.Replace(kubeletDNS, "ndots:5", "ndots:1", 1) + nameServer,
		},
		{
			name: "no Service serves DNS", conf: kubeletDNS + "192.0.2.1", verdict: unknown, codes: NameUnknown,
			has: "no Service of the cluster serves DNS (UDP port 53); ", do: func(w *nameCase) {
				w.cluster.Services = slices.DeleteFunc(w.cluster.Services, func(s *corev1.Service) bool {
					return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == dnsPort })
				})
			},
		},
		{
			name: "a headless Service", conf: kubeletDNS + nameServer, verdict: right,
			has: "the endpoints' own addresses (10.244.1.71, 10.244.2.72), and no virtual IP to trace",
			do:  func(w *nameCase) { w.of = "headless" },
		},
		{
			name: "an ExternalName Service", conf: kubeletDNS + nameServer, verdict: right,
			has: "and no virtual IP to trace", do: func(w *nameCase) { w.of = "extname" },
		},
		{
			name: "a pod on the host network", verdict: unknown, codes: NameUnknown,
			has: "takes dnsPolicy ClusterFirst for Default", do: func(w *nameCase) {
				w.named = nameClient
				w.cluster.Pods = append(w.cluster.Pods, clientPod(corev1.DNSClusterFirst, true))
			},
		},
		{
			name: "trap: a pod on the host network whose policy was not collected", do: func(w *nameCase) {
				w.named = nameClient
				w.cluster.Pods = append(w.cluster.Pods, clientPod("", true))
			},
		},
		{
			name: "a second server that nobody has", conf: kubeletDNS + nameServer + "\nnameserver 127.0.0.1", verdict: right,
			has: "goes to 10.96.250.135",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newNameCase(t, c.conf)
			if c.do != nil {
				c.do(w)
			}
			s, codes, verdict := w.judged()
			if s.Verdict != c.verdict || strings.Join(codes, " ") != c.codes || !strings.Contains(s.Message, c.has) || s.Lost {
				t.Errorf("%v %+v", codes, s)
			}
			if (s.Verdict == wrong) != (verdict == report.Mismatch) {
				t.Errorf("the path is %s", verdict)
			}
		})
	}
}

func clientPod(policy corev1.DNSPolicy, host bool) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1", DNSPolicy: policy, HostNetwork: host}}
	p.Namespace, p.Name, _ = strings.Cut(nameClient, "/")
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.19"}}
	return p
}

// What name servers answer goes before what can be said without asking: it is compared with the Service as glibc takes
// it, name by name and server by server.
func TestNameAnswers(t *testing.T) {
	wrong, right, unknown := report.SegmentWrong, report.SegmentRight, report.SegmentUnknown
	is := func(name string, addresses ...string) func(*snapshot.NameAnswer) {
		return func(a *snapshot.NameAnswer) {
			if a.Name != name {
				return
			}
			a.Code = "NOERROR"
			for _, text := range addresses {
				a.Addresses = append(a.Addresses, netip.MustParseAddr(text))
			}
		}
	}
	fails := func(reason string) func(*snapshot.NameAnswer) {
		return func(a *snapshot.NameAnswer) { a.Code, a.Error = "", reason }
	}
	const full, ip = "ep1.shop.svc.cluster.local", "10.96.219.55"
	for _, c := range []struct {
		name    string
		conf    string // behind that of the kubelet
		of      string
		answer  func(*snapshot.NameAnswer)
		verdict report.SegmentVerdict
		codes   string
		has     string
	}{
		{name: "the ClusterIP", answer: is(full, ip), verdict: right, has: full + " is " + ip + ", as 10.96.250.135 answers"},
		{
			name: "another address", answer: is(full, "10.96.219.56"), verdict: wrong, codes: DNSAnswer,
			has: full + " is 10.96.219.56 by 10.96.250.135, expected: " + ip,
		},
		{
			name: "an old address beside the right one", answer: is(full, ip, "10.96.219.56"), verdict: wrong,
			codes: DNSAnswer, has: "10.96.219.56",
		},
		{name: "no such name", answer: func(*snapshot.NameAnswer) {}, verdict: wrong, codes: DNSAnswer, has: "NXDOMAIN"},
		{name: "nothing answers", answer: fails("no answer in time"), verdict: wrong, codes: DNSNoAnswer, has: "in time"},
		{
			name: "the server fails", verdict: wrong, codes: DNSNoAnswer, has: "SERVFAIL",
			answer: func(a *snapshot.NameAnswer) { a.Code = "SERVFAIL" },
		},
		{
			name:    "a search domain answers before",
			conf:    "\nsearch example.org shop.svc.cluster.local svc.cluster.local cluster.local",
			verdict: wrong, codes: DNSAnswer, has: "ep1.example.org is 192.0.2.80",
			answer: func(a *snapshot.NameAnswer) {
				is("ep1.example.org", "192.0.2.80")(a)
				is(full, ip)(a)
			},
		},
		{
			name: "the second server answers", conf: "\nnameserver 10.96.178.81", verdict: right,
			has: full + " is " + ip + ", as 10.96.178.81 answers (before: 10.96.250.135: no answer in time)",
			answer: func(a *snapshot.NameAnswer) {
				is(full, ip)(a)
				if a.Server.Addr().String() == nameServer && !a.TCP {
					fails("no answer in time")(a)
				}
			},
		},
		{
			name: "UDP alone", verdict: unknown, codes: DNSOverTCPUnreachable, has: "over TCP 10.96.250.135 does not answer",
			answer: func(a *snapshot.NameAnswer) {
				is(full, ip)(a)
				if a.TCP {
					fails("connection refused")(a)
				}
			},
		},
		{
			name: "trap: a headless Service of which one endpoint is not known yet", of: "headless", verdict: right,
			answer: is("headless.shop.svc.cluster.local", "10.244.2.72", "10.244.9.9"), has: "10.244.2.72",
		},
		{
			name: "a headless Service with the addresses of others", of: "headless", verdict: wrong, codes: DNSAnswer,
			answer: is("headless.shop.svc.cluster.local", "10.244.9.9"), has: "10.244.9.9",
		},
		{
			name: "an ExternalName", of: "extname", verdict: wrong, codes: DNSAnswer, has: "other.example",
			answer: func(a *snapshot.NameAnswer) {
				if a.Name == "extname.shop.svc.cluster.local" {
					a.Code, a.Alias = "NOERROR", "other.example"
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newNameCase(t, kubeletDNS+nameServer+c.conf)
			w.of, w.answer = c.of, c.answer
			s, codes, _ := w.judged()
			if s.Verdict != c.verdict || strings.Join(codes, " ") != c.codes || !strings.Contains(s.Message, c.has) {
				t.Errorf("%v %+v", codes, s)
			}
		})
	}
}
