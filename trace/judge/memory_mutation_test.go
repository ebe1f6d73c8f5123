// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// jsonPlace is a value in a document, and how it is replaced.
type jsonPlace struct {
	key   string // that it has in the innermost object
	value any
	set   func(any)
}

// jsonPlaces are all values of a document, in order.
func jsonPlaces(doc any) []jsonPlace {
	var out []jsonPlace
	var visit func(key string, v any, set func(any))
	visit = func(key string, v any, set func(any)) {
		out = append(out, jsonPlace{key, v, set})
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				visit(k, v[k], func(x any) { v[k] = x })
			}
		case []any:
			for i := range v {
				visit(key, v[i], func(x any) { v[i] = x })
			}
		}
	}
	visit("", doc, func(any) {})
	return out
}

// mutateJSON changes one value of a JSON file: an element less, one twice, two exchanged, a value that is elsewhere
// under the same key, another number, a key less.
func (w *changingNode) mutateJSON(file string) string {
	var doc any
	if json.Unmarshal(w.files[file], &doc) != nil {
		return "nothing"
	}
	places := jsonPlaces(doc)
	if len(places) < 2 {
		return "nothing"
	}
	at := &places[1+w.IntN(len(places)-1)]
	what := fmt.Sprintf("%s %.150s", at.key, asJSON(w.t, at.value))
	switch v := at.value.(type) {
	case []any:
		if len(v) == 0 {
			return "nothing"
		}
		i, k := w.IntN(len(v)), w.IntN(len(v))
		switch w.IntN(3) {
		case 0:
			what += fmt.Sprintf(": without number %d", i)
			at.set(slices.Delete(slices.Clone(v), i, i+1))
		case 1:
			what += fmt.Sprintf(": number %d twice", i)
			at.set(slices.Insert(slices.Clone(v), k, v[i]))
		default:
			what += fmt.Sprintf(": numbers %d and %d exchanged", i, k)
			v[i], v[k] = v[k], v[i]
		}
	case map[string]any:
		if len(v) == 0 {
			return "nothing"
		}
		key := slices.Sorted(maps.Keys(v))[w.IntN(len(v))]
		what += ": without " + key
		delete(v, key)
	case bool:
		what += ": the opposite"
		at.set(!v)
	default:
		var like []any
		for _, p := range places {
			if _, isList := p.value.([]any); p.key == at.key && !isList {
				like = append(like, p.value)
			}
		}
		other := like[w.IntN(len(like))]
		if w.IntN(3) == 0 {
			switch x := at.value.(type) {
			case string:
				other = w.otherNumber(x)
			case float64:
				other = x + float64(w.IntN(5)-2)
			}
		}
		what += fmt.Sprintf(": %.100v", other)
		at.set(other)
	}
	w.files[file] = asJSON(w.t, doc)
	return what
}

// mutateWord gives an option of a line of text a value that it has in another one.
func (w *changingNode) mutateWord(file string) string {
	lines := strings.SplitAfter(string(w.files[file]), "\n")
	i := w.IntN(len(lines))
	words := strings.Split(lines[i], " ")
	if len(words) < 3 {
		return "nothing"
	}
	k := 1 + w.IntN(len(words)-1)
	var like []string
	for _, line := range lines {
		other := strings.Split(line, " ")
		for j := 1; j < len(other); j++ {
			if other[j-1] == words[k-1] && other[j] != words[k] && !slices.Contains(like, other[j]) {
				like = append(like, other[j])
			}
		}
	}
	if len(like) == 0 {
		return "nothing"
	}
	what := strings.TrimSpace(lines[i])
	words[k] = like[w.IntN(len(like))]
	lines[i] = strings.Join(words, " ")
	w.files[file] = []byte(strings.Join(lines, ""))
	return what + " is " + strings.TrimSpace(lines[i])
}

// foreignMatches and foreignTargets are what rules of others have.
var (
	foreignMatches = []string{
		"", "", "-p tcp -m tcp --dport 8080", "-p tcp -m multiport --dports 80,443,8080", "-i cni0", "-o eth0", "! -i lo",
		"-m mark --mark 0x4000/0x4000", "-m mark --mark 0x80/0x80", "-m connmark --mark 0x7/0x7",
		"-m conntrack --ctstate NEW", "-m conntrack --ctstate RELATED,ESTABLISHED", "-m conntrack --ctstate DNAT",
		"-m statistic --mode random --probability 0.50000000000", "-m limit --limit 5/sec", "-m physdev --physdev-is-bridged",
		"-m addrtype --dst-type LOCAL", "-m comment --comment mine", "-m recent --rcheck --seconds 60 --name X --rsource",
		"-m set --match-set KUBE-CLUSTER-IP dst,dst", "-m owner --uid-owner 0", "-m u32 --u32 0x0=0x0", "-m unheard-of",
		"-m hashlimit --hashlimit-upto 5/sec --hashlimit-burst 5 --hashlimit-name h", "-p udp -m udp --dport 53",
		"-m tcpmss --mss 1000:1500", "-m length --length 0:100", "-p tcp -m tcp --tcp-flags SYN,RST SYN", "-m socket",
	}
	foreignTargets = []string{
		"DROP", "ACCEPT", "RETURN", "REJECT --reject-with icmp-port-unreachable", "MARK --set-xmark 0x4000/0x4000",
		"MARK --set-xmark 0x80/0x80", "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "LOG",
		"CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff", "MASQUERADE", "NFQUEUE --queue-num 1", "CT --notrack",
		"DNAT --to-destination 10.244.1.9:8080", "SNAT --to-source 10.77.0.9", "REDIRECT --to-ports 9999", "TTL --ttl-set 3",
		"TCPMSS --clamp-mss-to-pmtu", "TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1", "DSCP --set-dscp 0x08",
		"UNHEARD-OF", "SET --add-set X src", "CLASSIFY --set-class 1:1",
	}
)

// insertForeignRule puts a rule of somebody else into a chain of a file of iptables-save.
func (w *changingNode) insertForeignRule(file string) string {
	lines := strings.SplitAfter(string(w.files[file]), "\n")
	var chains []int // the lines of their rules
	for i, line := range lines {
		if strings.HasPrefix(line, "-A ") {
			chains = append(chains, i)
		}
	}
	if len(chains) == 0 {
		return "nothing"
	}
	i := chains[w.IntN(len(chains))]
	chain := strings.Fields(lines[i])[1]
	var parts []string
	if w.IntN(2) == 0 {
		parts = append(parts, "-d "+w.someAddress(strings.HasPrefix(file, "ip6")))
	}
	if w.IntN(4) == 0 {
		parts = append(parts, "-s "+w.someAddress(strings.HasPrefix(file, "ip6")))
	}
	parts = append(parts, foreignMatches[w.IntN(len(foreignMatches))])
	if w.IntN(4) == 0 {
		parts = append(parts, "-j "+strings.Fields(lines[chains[w.IntN(len(chains))]])[1])
	} else {
		parts = append(parts, "-j "+foreignTargets[w.IntN(len(foreignTargets))])
	}
	rule := "-A " + chain + " " + strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	w.files[file] = []byte(strings.Join(slices.Insert(lines, i, rule+"\n"), ""))
	return rule
}

// someAddress is one that decides something: of an endpoint, a Service, or a Node, or a prefix with it.
func (w *changingNode) someAddress(v6 bool) string {
	var all []netip.Addr
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && a.Is6() == v6 {
			all = append(all, a)
		}
	}
	for _, s := range w.objects.EndpointSlices {
		for _, e := range s.Endpoints {
			add(e.Addresses[0])
		}
	}
	for _, s := range w.objects.Services {
		add(s.Spec.ClusterIP)
	}
	for _, n := range w.objects.Nodes {
		for _, a := range n.Status.Addresses {
			add(a.Address)
		}
	}
	if len(all) == 0 {
		return "::/0"
	}
	a := all[w.IntN(len(all))]
	bits := []int{a.BitLen(), a.BitLen(), a.BitLen() - 8, a.BitLen() - 16}[w.IntN(4)]
	return netip.PrefixFrom(a, bits).Masked().String()
}

// changeAny changes any of the node's files.
func (w *changingNode) changeAny() string {
	files := slices.DeleteFunc(slices.Sorted(maps.Keys(w.files)), func(f string) bool { return len(w.files[f]) == 0 })
	file := files[w.IntN(len(files))]
	if w.IntN(25) == 0 {
		delete(w.files, file)
		return "without " + file
	}
	if strings.HasSuffix(file, ".json") {
		return file + ": " + w.mutateJSON(file)
	}
	if strings.Contains(file, "tables") && w.IntN(2) == 0 {
		return file + ": " + w.insertForeignRule(file)
	}
	return file + ": " + w.mutateWord(file)
}

// addSlice adds a slice of a Service, as a person may write it.
func (w *changingNode) addSlice() string {
	if len(w.objects.Services) == 0 {
		return "nothing"
	}
	of := w.objects.Services[w.IntN(len(w.objects.Services))]
	protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[w.IntN(3)]
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: of.Name + "-by-hand-" + strconv.Itoa(w.clock),
			Labels: map[string]string{discoveryv1.LabelServiceName: of.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range of.Spec.Ports {
		name, port := p.Name, int32(8080+w.IntN(2))
		e := discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &p.Protocol}
		switch w.IntN(6) {
		case 0:
			e.Protocol = &protocol
		case 1:
			e.Port = nil
		case 2:
			e.Protocol = nil
		}
		s.Ports = append(s.Ports, e)
	}
	for range w.IntN(3) {
		a := w.oneAddress()
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	if w.IntN(3) == 0 {
		s.Labels["service.kubernetes.io/headless"] = ""
	}
	w.objects.EndpointSlices = append(w.objects.EndpointSlices, s)
	return fmt.Sprintf("another slice of %s/%s: %.300s", of.Namespace, of.Name, asJSON(w.t, s.Endpoints))
}

// serviceChanges are what may be changed of a Service.
var serviceChanges = []func(w *changingNode, s *corev1.Service){
	func(w *changingNode, s *corev1.Service) {
		all := w.objects.Services
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, all[w.IntN(len(all))].Spec.ClusterIP)
	},
	func(_ *changingNode, s *corev1.Service) {
		if len(s.Spec.Ports) > 0 {
			s.Spec.Ports[0].Port++
		}
	},
	func(_ *changingNode, s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	},
	func(_ *changingNode, s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
	func(_ *changingNode, s *corev1.Service) {
		if len(s.Spec.Ports) > 0 {
			s.Spec.Ports[0].TargetPort = intstr.FromInt32(9999)
		}
	},
	func(w *changingNode, s *corev1.Service) {
		s.Spec.Type = []corev1.ServiceType{
			corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
			corev1.ServiceTypeExternalName,
		}[w.IntN(4)]
	},
	func(w *changingNode, s *corev1.Service) {
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 30000 + int32(w.IntN(50))
		}
	},
	func(w *changingNode, s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = []corev1.ServiceExternalTrafficPolicy{"", "Local", "Cluster"}[w.IntN(3)]
		s.Spec.HealthCheckNodePort = 31000 + int32(w.IntN(9))
	},
	func(w *changingNode, s *corev1.Service) {
		mode := []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}[w.IntN(2)]
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: w.oneAddress(), IPMode: &mode}}
	},
	func(w *changingNode, s *corev1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{w.someAddress(false)}
	},
	func(_ *changingNode, s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
	},
	func(w *changingNode, s *corev1.Service) {
		s.Spec.ClusterIP = w.oneAddress()
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	},
	func(_ *changingNode, s *corev1.Service) {
		s.Spec.PublishNotReadyAddresses = !s.Spec.PublishNotReadyAddresses
	},
	func(_ *changingNode, s *corev1.Service) { s.Spec.Selector = nil },
	func(_ *changingNode, s *corev1.Service) {
		s.Spec.TrafficDistribution = new(string(corev1.ServiceTrafficDistributionPreferClose))
	},
	func(w *changingNode, s *corev1.Service) {
		s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": []string{"", "other"}[w.IntN(2)]}
	},
	func(w *changingNode, s *corev1.Service) { s.Spec.ExternalIPs = []string{w.oneAddress()} },
	func(w *changingNode, s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: "more", Port: 80 + int32(w.IntN(3)), Protocol: []corev1.Protocol{"TCP", "UDP", "SCTP"}[w.IntN(3)],
		})
	},
	func(_ *changingNode, s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{
			TimeoutSeconds: new(int32(77)),
		}}
	},
	func(_ *changingNode, s *corev1.Service) { s.UID = types.UID(string(s.UID) + "x") },
}

func (w *changingNode) oneAddress() string {
	a, _, _ := strings.Cut(w.someAddress(false), "/")
	return a
}

// changeService changes what decides of a Service, takes it away, or adds one with an address that another has.
func (w *changingNode) changeService() string {
	all := w.objects.Services
	if len(all) == 0 {
		return "nothing: there is no Service"
	}
	i := w.IntN(len(all))
	s := all[i].DeepCopy()
	what := "Service " + s.Namespace + "/" + s.Name
	switch w.IntN(10) {
	case 0:
		w.objects.Services = slices.Delete(slices.Clone(all), i, i+1)
		return what + ": gone"
	case 1:
		s.Name += "-copy"
		w.objects.Services = append(w.objects.Services, s)
		return what + ": a copy"
	}
	k := w.IntN(len(serviceChanges))
	serviceChanges[k](w, s)
	all[i] = s
	return fmt.Sprintf("%s: change %d: %.300s", what, k, asJSON(w.t, s.Spec))
}

// changeNode changes what decides of a Node, or takes it away.
func (w *changingNode) changeNode() string {
	i := w.IntN(len(w.objects.Nodes))
	o := w.objects.Nodes[i].DeepCopy()
	what := ""
	switch w.IntN(7) {
	case 0:
		w.objects.Nodes = slices.Delete(slices.Clone(w.objects.Nodes), i, i+1)
		if len(w.objects.Nodes) == 0 {
			w.restore()
		}
		return "Node " + o.Name + ": gone"
	case 1:
		o.Spec.PodCIDR = w.someAddress(false)
		o.Spec.PodCIDRs, what = []string{o.Spec.PodCIDR}, "podCIDR "+o.Spec.PodCIDR
	case 2:
		if len(o.Status.Addresses) > 0 {
			o.Status.Addresses[0].Address, what = w.oneAddress(), "address"
		}
	case 3:
		o.Annotations, what = map[string]string{snapshot.NodeAnnotations[0]: w.oneAddress()}, "annotation"
	case 4:
		for k := range o.Status.Conditions {
			if c := &o.Status.Conditions[k]; c.Type == corev1.NodeReady {
				c.Status, what = corev1.ConditionUnknown, "not ready"
			}
		}
	case 5:
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelTopologyZone], what = "zone-"+string(rune('a'+w.IntN(3))), "zone"
	default:
		o.Status.NodeInfo.KubeProxyVersion, what = "v1.33.0", "kube-proxy's version" //nolint:staticcheck // it is read
		o.Status.NodeInfo.KernelVersion = "5.4.0"
	}
	w.objects.Nodes[i] = o
	return "Node " + o.Name + ": " + what
}
