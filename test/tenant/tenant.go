// SPDX-License-Identifier: Apache-2.0

// Package tenant makes what one tenant of a cluster may write to harm the others: few Services and EndpointSlices, each
// accepted by the API server, whose product is large. Tests put them beside a captured cluster, whose other Services
// have to be judged as without them.
package tenant

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/netip"
	stdslices "slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Namespace is the tenant's.
const Namespace = "tenant"

// Objects are what a tenant has written.
type Objects struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Pods     []*corev1.Pod
}

// Case is one way to do harm.
type Case struct {
	Name string
	Make func() Objects
	// Rules: kube-proxy has written its rules for them.
	Rules bool
}

// Cases are all of them: first those of the issue, then products of other properties.
var Cases = []Case{
	{"100 ports, 20 slices of 1,000 endpoints", func() Objects { return one(ports(100), slices(20, 1000)) }, false},
	{"100 ports, 100 slices of 1,000 endpoints", func() Objects { return one(ports(100), slices(100, 1000)) }, false},
	{"1,000 ports, 1,000 external IPs", func() Objects { return one(ports(1000), externalIPs(1000)) }, false},
	{"250 Services at one external IP", func() Objects { return many(250, externalIPs(1), slices(1, 2)) }, false},
	{"1,000 Services at one external IP", func() Objects { return many(1000, externalIPs(1), slices(1, 2)) }, false},
	{"2,000 Services at one external IP", func() Objects { return many(2000, externalIPs(1), slices(1, 2)) }, false},
	{"250 Services at one external IP, with rules", func() Objects {
		return many(250, externalIPs(1), slices(1, 2))
	}, true},
	{"1,000 Services at one external IP, with rules", func() Objects {
		return many(1000, externalIPs(1), slices(1, 2))
	}, true},
	{"2,000 Services at one external IP, with rules", func() Objects {
		return many(2000, externalIPs(1), slices(1, 2))
	}, true},
	{"20,000 source ranges, 500 addresses", func() Objects {
		return one(ingress(500), ranges(20_000), slices(1, 2))
	}, false},
	{"1,000 Services with 200 external IPs", func() Objects { return many(1000, externalIPs(200), slices(1, 2)) }, false},

	{"100 ports, 1,000 source ranges", func() Objects {
		return one(ports(100), ingress(10), ranges(1000), slices(1, 2))
	}, false},
	{"100 slices of 1,000 endpoints in zones", func() Objects { return one(ports(10), slices(100, 1000), hints) }, false},
	{"2,000 Services on 1,000 nodes", func() Objects { return many(2000, nodePorts, slices(1, 40)) }, true},
	{"1,000 Services that select 2,000 pods", func() Objects {
		return many(1000, labels, slices(1, 2), pods(2000))
	}, false},
	{"names and annotations of all lengths", func() Objects {
		return many(500, ports(20), slices(1, 20), longNames)
	}, false},
	{"session affinity, 50 ports, 1,000 endpoints, with rules", func() Objects {
		return one(ports(50), slices(1, 1000), affinity)
	}, true},
	{"1,000 NodePorts at 50 external IPs", func() Objects {
		return many(1000, nodePorts, externalIPs(50), slices(1, 2))
	}, false},
	{"100 addresses, 100 ports, 100 source ranges", func() Objects {
		return one(ports(100), ingress(100), ranges(100), slices(1, 2))
	}, false},
	{"an endpoint in 5 slices, 100 ports", func() Objects { return one(ports(100), slices(5, 1000), overlapping) }, false},
	{"an endpoint in 100 slices, 100 ports", func() Objects {
		return one(ports(100), slices(100, 1000), overlapping)
	}, false},
	{"dual-stack, 500 Services of 50 ports", func() Objects {
		return many(500, ports(50), slices(1, 10), dualStack)
	}, false},
	{"1,000 endpoints, 5,000 addresses, with rules", func() Objects {
		return one(externalIPs(5000), slices(1, 1000))
	}, true},
	{"one Service of 20,000 endpoints, with rules", func() Objects { return one(slices(20, 1000)) }, true},
	{"5,000 endpoints on the node, with rules", func() Objects { return one(slices(5, 1000), here) }, true},
	{"20,000 endpoints on the node, with rules", func() Objects { return one(slices(20, 1000), here) }, true},
	{"session affinity, 3,000 endpoints, with rules", func() Objects { return one(slices(3, 1000), affinity) }, true},
}

// option changes the i-th Service, which is the last of the objects; its slices are the last ones.
type option func(o *Objects, svc *corev1.Service, i int)

// Crowd calls put with one Service after the other, as all of them are more than a test should have in memory: one of
// 100 ports and 100,000 endpoints, and 60 of 22,000 endpoints each.
func Crowd(put func(Objects)) {
	put(one(ports(100), slices(100, 1000)))
	for i := range 60 {
		put(from(i+1, 1, slices(22, 1000)))
	}
}

func one(options ...option) Objects { return many(1, options...) }

func many(count int, options ...option) Objects { return from(0, count, options...) }

// from makes so many Services, the first of which is the first-th.
func from(first, count int, options ...option) Objects {
	var out Objects
	for i := first; i < first+count; i++ {
		ip := address("10.97.0.1", i)
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: fmt.Sprintf("t%04d", i)},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: map[string]string{"app": "t"},
				Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
			},
		}
		out.Services = append(out.Services, svc)
		for _, apply := range options {
			apply(&out, svc, i)
		}
	}
	return out
}

// address is the i-th address from another on.
func address(first string, i int) string {
	b := netip.MustParseAddr(first).As4()
	n := binary.BigEndian.Uint32(b[:]) + uint32(i) //nolint:gosec // small
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b).String()
}

func ports(count int) option {
	return func(_ *Objects, svc *corev1.Service, _ int) {
		svc.Spec.Ports = nil
		for i := range int32(count) { //nolint:gosec // small
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
				Name: fmt.Sprintf("p%d", i), Port: 1000 + i, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080 + i),
			})
		}
	}
}

// slices gives each Service its own endpoints, on 1,000 nodes.
func slices(count, size int) option {
	return func(o *Objects, svc *corev1.Service, i int) {
		for k := range count {
			s := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: Namespace, Name: fmt.Sprintf("%s-%d", svc.Name, k),
					Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
				},
				AddressType: discoveryv1.AddressTypeIPv4,
			}
			for _, p := range svc.Spec.Ports {
				number := p.TargetPort.IntVal
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &p.Protocol})
			}
			for e := range size {
				at, on := (i*count+k)*size+e, fmt.Sprintf("node-of-tenant-%d", e%1000)
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{address("10.128.0.1", at)}, NodeName: &on,
				})
			}
			o.Slices = append(o.Slices, s)
		}
	}
}

func slicesOf(o *Objects, svc *corev1.Service) []*discoveryv1.EndpointSlice {
	at := len(o.Slices)
	for at > 0 && o.Slices[at-1].Labels[discoveryv1.LabelServiceName] == svc.Name {
		at--
	}
	return o.Slices[at:]
}

func externalIPs(count int) option {
	return func(_ *Objects, svc *corev1.Service, _ int) {
		for i := range count {
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, address("198.18.128.1", i))
		}
	}
}

func ingress(count int) option {
	return func(_ *Objects, svc *corev1.Service, _ int) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		for i := range count {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: address("198.18.64.1", i)})
		}
	}
}

// ranges are networks of two addresses, apart from each other: each has its edges.
func ranges(count int) option {
	return func(_ *Objects, svc *corev1.Service, _ int) {
		for i := range count {
			svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, address("100.64.0.0", 8*i)+"/31")
		}
	}
}

func nodePorts(_ *Objects, svc *corev1.Service, i int) {
	svc.Spec.Type = corev1.ServiceTypeNodePort
	first := 30200 + i
	if first >= 30900 {
		first += 200 // others have ports from 31000 on
	}
	for k := range svc.Spec.Ports {
		svc.Spec.Ports[k].NodePort = int32(first + k) //nolint:gosec // small
	}
}

func affinity(_ *Objects, svc *corev1.Service, _ int) {
	svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
}

// here has all endpoints of a Service on the node that is judged.
func here(o *Objects, svc *corev1.Service, _ int) {
	node := "node1"
	for _, s := range slicesOf(o, svc) {
		for i := range s.Endpoints {
			s.Endpoints[i].NodeName = &node
		}
	}
}

func hints(o *Objects, svc *corev1.Service, _ int) {
	zone := "zone-a"
	for _, s := range slicesOf(o, svc) {
		for i := range s.Endpoints {
			s.Endpoints[i].Zone = &zone
			s.Endpoints[i].Hints = &discoveryv1.EndpointHints{}
			for z := range 8 {
				s.Endpoints[i].Hints.ForZones = append(s.Endpoints[i].Hints.ForZones,
					discoveryv1.ForZone{Name: fmt.Sprintf("zone-%c", 'a'+(z+i)%8)})
			}
		}
	}
}

// overlapping gives all slices of a Service the endpoints of the first, with conditions of their own.
func overlapping(o *Objects, svc *corev1.Service, _ int) {
	all := slicesOf(o, svc)
	for k, s := range all {
		for i := range s.Endpoints {
			ready := (i+k)%3 == 0
			s.Endpoints[i].Addresses = all[0].Endpoints[i].Addresses
			s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}
		}
	}
}

func labels(_ *Objects, svc *corev1.Service, _ int) {
	svc.Labels, svc.Spec.Selector = map[string]string{}, map[string]string{}
	for i := range 50 {
		svc.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("v", 63)
		svc.Spec.Selector[fmt.Sprintf("label-%d", i)] = strings.Repeat("v", 63)
	}
	svc.Spec.Ports[0].TargetPort = intstr.FromString("named")
}

// pods makes pods that every Service of the tenant selects.
func pods(count int) option {
	return func(o *Objects, svc *corev1.Service, i int) {
		for k := 0; i == 0 && k < count; k++ {
			ip := address("10.129.0.1", k)
			o.Pods = append(o.Pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: fmt.Sprintf("pod-%d", k), Labels: svc.Labels},
				Spec:       corev1.PodSpec{NodeName: "node2", Containers: []corev1.Container{{Name: "c"}}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
			})
		}
	}
}

func longNames(o *Objects, svc *corev1.Service, _ int) {
	svc.Annotations = map[string]string{"a": strings.Repeat("a", 1000)}
	long := strings.Repeat("n", 253)
	for _, s := range slicesOf(o, svc) {
		s.Annotations = map[string]string{"a": strings.Repeat("a", 1000)}
		for i := range s.Endpoints {
			s.Endpoints[i].NodeName, s.Endpoints[i].Zone = &long, &long
			s.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: Namespace, Name: long}
		}
	}
}

func dualStack(o *Objects, svc *corev1.Service, _ int) {
	six := func(s string) string { return "fd00:10:96::" + strings.ReplaceAll(s, ".", ":") }
	svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPv6Protocol)
	svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, six(svc.Spec.ClusterIP))
	for _, s := range slicesOf(o, svc) {
		c := s.DeepCopy()
		c.Name, c.AddressType = "v6-"+c.Name, discoveryv1.AddressTypeIPv6
		for k := range c.Endpoints {
			c.Endpoints[k].Addresses = []string{six(c.Endpoints[k].Addresses[0])}
		}
		o.Slices = append(o.Slices, c)
	}
}

// Beside returns a cluster with the objects added. The node's rules are changed to those of kube-proxy in iptables mode
// where the case has them.
func (c *Case) Beside(cluster *snapshot.Cluster, files map[string][]byte) (*snapshot.Cluster, map[string][]byte) {
	o, out := c.Make(), *cluster
	out.Services = append(stdslices.Clip(out.Services), o.Services...)
	out.EndpointSlices = append(stdslices.Clip(out.EndpointSlices), o.Slices...)
	out.Pods = append(stdslices.Clip(out.Pods), o.Pods...)
	if !c.Rules {
		return &out, files
	}
	changed := map[string][]byte{}
	for name, data := range files {
		if strings.HasPrefix(name, "iptables-") {
			data = o.rules(data)
		}
		changed[name] = data
	}
	delete(changed, snapshot.NFTFile) // the same rules, as nft lists them
	return &out, changed
}

// chain computes the name that kube-proxy gives a chain (pkg/proxy/iptables, portProtoHash and
// servicePortEndpointChainName).
func chain(kind, port, endpoint string) string {
	sum := sha256.Sum256([]byte(port + "tcp" + endpoint))
	return "KUBE-" + kind + "-" + base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// rules adds kube-proxy's rules for the Services to what iptables-save has printed (pkg/proxy/iptables,
// syncProxyRules): for cluster IPs, external IPs, NodePorts and session affinity.
func (o *Objects) rules(save []byte) []byte {
	var chains, services, nodePorts, rules bytes.Buffer
	bySlice := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range o.Slices {
		name := s.Labels[discoveryv1.LabelServiceName]
		bySlice[name] = append(bySlice[name], s)
	}
	for _, svc := range o.Services {
		for _, p := range svc.Spec.Ports {
			name := Namespace + "/" + svc.Name
			if p.Name != "" {
				name += ":" + p.Name
			}
			to, ext := chain("SVC", name, ""), chain("EXT", name, "")
			comment := func(before, after string) string {
				return `-m comment --comment "` + before + name + after + `"`
			}
			fmt.Fprintf(&chains, ":%s - [0:0]\n", to)
			at := fmt.Sprintf("-d %s/32 -p tcp %s -m tcp --dport %d", svc.Spec.ClusterIP, comment("", " cluster IP"), p.Port)
			fmt.Fprintf(&services, "-A KUBE-SERVICES %s -j %s\n", at, to)
			fmt.Fprintf(&rules, "-A %s ! -s 10.244.0.0/16 %s -j KUBE-MARK-MASQ\n", to, at)
			if len(svc.Spec.ExternalIPs) > 0 || p.NodePort != 0 {
				fmt.Fprintf(&chains, ":%s - [0:0]\n", ext)
				fmt.Fprintf(&rules, "-A %s %s -j KUBE-MARK-MASQ\n-A %s -j %s\n", ext,
					comment("masquerade traffic for ", " external destinations"), ext, to)
			}
			for _, ip := range svc.Spec.ExternalIPs {
				fmt.Fprintf(&services, "-A KUBE-SERVICES -d %s/32 -p tcp %s -m tcp --dport %d -j %s\n", ip,
					comment("", " external IP"), p.Port, ext)
			}
			if p.NodePort != 0 {
				for _, loopback := range []string{"-d 127.0.0.0/8 ", ""} {
					accepted := ""
					if loopback != "" {
						accepted = " -m nfacct --nfacct-name  localhost_nps_accepted_pkts"
					}
					fmt.Fprintf(&nodePorts, "-A KUBE-NODEPORTS %s-p tcp %s -m tcp --dport %d%s -j %s\n", loopback, comment("", ""),
						p.NodePort, accepted, ext)
				}
			}
			endpointRules(&chains, &rules, svc, &p, name, to, bySlice[svc.Name])
		}
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(save)) {
		switch {
		case strings.HasPrefix(line, ":KUBE-SERVICES "): // of nat: that of filter has no endpoints
		case strings.HasPrefix(line, "*nat"):
			out.WriteString(line)
			out.Write(chains.Bytes())
			continue
		case strings.Contains(line, "-m comment --comment \"kubernetes service nodeports;"):
			out.Write(services.Bytes())
			out.Write(nodePorts.Bytes())
			out.Write(rules.Bytes())
		}
		out.WriteString(line)
	}
	return out.Bytes()
}

func endpointRules(
	chains, rules *bytes.Buffer, svc *corev1.Service, p *corev1.ServicePort, name, to string,
	all []*discoveryv1.EndpointSlice,
) {
	var endpoints []string
	for _, s := range all {
		for i := range s.Endpoints {
			endpoints = append(endpoints, fmt.Sprintf("%s:%d", s.Endpoints[i].Addresses[0], p.TargetPort.IntVal))
		}
	}
	recent := func(sep, what string) string {
		return " -m recent " + what + " --name " + sep + " --mask 255.255.255.255 --rsource"
	}
	sticky := svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	for pass := range 2 {
		for i, e := range endpoints {
			sep := chain("SEP", name, e)
			text := fmt.Sprintf(`-A %s -m comment --comment "%s -> %s"`, to, name, e)
			switch {
			case pass == 0 && sticky:
				fmt.Fprintf(rules, "%s%s -j %s\n", text, recent(sep, "--rcheck --seconds 10800 --reap"), sep)
			case pass == 1 && i < len(endpoints)-1:
				fmt.Fprintf(rules, "%s -m statistic --mode random --probability %.11f -j %s\n", text,
					1/float64(len(endpoints)-i), sep)
			case pass == 1:
				fmt.Fprintf(rules, "%s -j %s\n", text, sep)
			}
		}
	}
	for _, e := range endpoints {
		sep := chain("SEP", name, e)
		ip, _, _ := strings.Cut(e, ":")
		fmt.Fprintf(chains, ":%s - [0:0]\n", sep)
		set := ""
		if sticky {
			set = recent(sep, "--set")
		}
		fmt.Fprintf(rules, "-A %s -s %s/32 -m comment --comment \"%s\" -j KUBE-MARK-MASQ\n", sep, ip, name)
		fmt.Fprintf(rules, "-A %s -p tcp -m comment --comment \"%s\"%s -m tcp -j DNAT --to-destination %s\n",
			sep, name, set, e)
	}
}
