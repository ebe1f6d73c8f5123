// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The objects of the matrix. Its pods have no readiness probe: an endpoint that a fault cuts off stays one.
const (
	matrixService = "faults"                  // TCP, both families, NodePort
	matrixUDP     = matrixService + "-udp"    // UDP, IPv4
	matrixHealth  = matrixService + "-health" // a load balancer's, with a health-check port
	matrixByHand  = matrixService + "-by-hand"
	outsider      = "10.79.0.1" // this machine, for the nodes of test/cluster
)

func matrixClient(node string) string { return matrixService + "-client-" + node }

// setUpMatrix makes the pods and Services of the matrix.
func setUpMatrix(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": matrixService}
	d := deployment()
	d.Name, d.Spec.Replicas = matrixService, new(int32(len(nodes)))
	d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = labels, labels
	d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels = labels
	d.Spec.Template.Spec.Containers[0].ReadinessProbe = nil
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, svc := range matrixServices(labels) {
		if _, err := client.CoreV1().Services(namespace).Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		clientOn(t, n, matrixClient(n))
	}
	t.Cleanup(func() { tearDownMatrix(t) })
	byHand(t)
	wait(t, "the pods of the matrix run", func() (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := 0
		for i := range pods.Items {
			if p := &pods.Items[i]; strings.HasPrefix(p.Name, matrixService+"-") && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == 2*len(nodes), fmt.Errorf("%d do", running)
	})
	for _, n := range nodes {
		wait(t, "the matrix's Services are right on "+n, func() (bool, error) {
			r := svcproxy(t, "trace", matrixService, "--node", n)
			return r.code == 0, fmt.Errorf("%s", r)
		})
	}
}

// clientOn makes a pod to send from on a node, until the test ends. It need not run yet.
func clientOn(t *testing.T, node, name string) {
	t.Helper()
	p := clientPod()
	p.Name, p.Spec.NodeName = name, node
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.CoreV1().Pods(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
		if ignoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// tearDownMatrix removes them, so that other tests find the Services that they know.
func tearDownMatrix(t *testing.T) {
	t.Helper()
	ctx, background := context.Background(), metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}
	errs := []error{client.AppsV1().Deployments(namespace).Delete(ctx, matrixService, background)}
	for _, name := range []string{matrixService, matrixUDP, matrixHealth, matrixByHand} {
		errs = append(errs, client.CoreV1().Services(namespace).Delete(ctx, name, background))
	}
	for _, err := range errs {
		if ignoreNotFound(err) != nil {
			t.Error(err)
		}
	}
}

func matrixServices(labels map[string]string) []*corev1.Service {
	of := func(name string, selector map[string]string, spec corev1.ServiceSpec) *corev1.Service {
		spec.Selector = selector
		if spec.Ports == nil {
			spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(port)}}
		}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	return []*corev1.Service{
		of(matrixService, labels, corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
		}),
		of(matrixUDP, labels, corev1.ServiceSpec{Ports: []corev1.ServicePort{
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, TargetPort: intstr.FromInt32(port)},
		}}),
		of(matrixHealth, labels, corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		}),
		of(matrixByHand, nil, corev1.ServiceSpec{}),
	}
}

// byHand makes the slice of the Service that has no selector, with the pods that there are.
func byHand(t *testing.T) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: matrixByHand, Labels: map[string]string{discoveryv1.LabelServiceName: matrixByHand},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(port))}},
	}
	wait(t, "the pods of the matrix have addresses", func() (bool, error) {
		slice.Endpoints = nil
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: "app=" + matrixService})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			if ip := pods.Items[i].Status.PodIP; ip != "" {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
			}
		}
		return len(slice.Endpoints) == len(nodes), fmt.Errorf("%d have", len(slice.Endpoints))
	})
	if _, err := client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// scene is a node, and what the scripts of the faults know of it.
type scene struct {
	node, mode string
	vars       map[string]string
	spaces     map[string]string // network namespaces, by origin
	base       map[string][]byte // the snapshot without a fault, normalised; where faults are recorded
}

// matrixMode returns a node's mode, with the backend.
func matrixMode(t *testing.T, node string) string {
	t.Helper()
	mode := modeOf(t, node)
	if mode == "iptables" && strings.Contains(siteOf(t, node).program, "legacy") {
		return "iptables-legacy"
	}
	return mode
}

// setScene finds out what there is on a node.
func setScene(t *testing.T, node, mode string) *scene {
	t.Helper()
	s := &scene{node: node, mode: mode, vars: map[string]string{}, spaces: map[string]string{}}
	v := s.vars
	v["IPT"], v["IP6T"] = "iptables-nft", "ip6tables-nft"
	if mode == "iptables-legacy" {
		v["IPT"], v["IP6T"] = "iptables-legacy", "ip6tables-legacy"
	}
	svc := serviceOf(t, matrixService)
	v["S"], v["S6"], v["P"] = svc.Spec.ClusterIPs[0], svc.Spec.ClusterIPs[1], strconv.Itoa(
		int(svc.Spec.Ports[0].NodePort),
	)
	v["U"] = serviceOf(t, matrixUDP).Spec.ClusterIP
	v["BYHAND"] = serviceOf(t, matrixByHand).Spec.ClusterIP
	health := serviceOf(t, matrixHealth)
	v["HEALTH"] = strconv.Itoa(int(health.Spec.HealthCheckNodePort))
	v["HP"] = strconv.Itoa(int(health.Spec.Ports[0].NodePort))
	at := slices.Index(nodes, node)
	others := append(slices.Clone(nodes[at+1:]), nodes[:at]...)
	s.addNode(t, "", node)
	s.addNode(t, "R", others[0])
	v["RNAME"] = others[0]
	s.addNode(t, "Q", others[len(others)-1])
	s.addPods(t, others)
	s.spaces["node"] = "/run/netns/svcproxy-" + node
	// Not that of the process, which is its first thread's: connectOnce may have left that one elsewhere.
	s.spaces["outside"] = "/proc/thread-self/ns/net"
	if out, err := s.run(t, emptyTables, false); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

func serviceOf(t *testing.T, name string) *corev1.Service {
	t.Helper()
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

// addNode sets the variables of a node: NODE and CIDR, with a 6 at the end for IPv6; of others with a prefix.
func (s *scene) addNode(t *testing.T, prefix, node string) {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			s.vars[prefix+"NODE"+family(ip)] = a.Address
		}
	}
	for _, cidr := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			s.vars[prefix+"CIDR"+family(p.Addr())] = cidr
		}
	}
}

// family is what the name of a variable ends in.
func family(a netip.Addr) string {
	if a.Is4() {
		return ""
	}
	return "6"
}

// addPods sets the variables of pods: C the client, L the endpoint on the node, R and Q those on the others; of the
// first two CV and LV are the interfaces on the node, LMAC the address of the pod's.
func (s *scene) addPods(t *testing.T, others []string) {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	processes := echoProcesses(t)
	for i := range pods.Items {
		p := &pods.Items[i]
		var name string
		switch endpoint := p.Labels["app"] == matrixService; {
		case p.Name == matrixClient(s.node):
			name = "C"
		case endpoint && p.Spec.NodeName == s.node:
			name = "L"
			s.vars["LPOD"] = p.Name
		case endpoint && p.Spec.NodeName == others[0]:
			name = "R"
		case endpoint:
			name = "Q"
		default:
			continue
		}
		for _, a := range p.Status.PodIPs {
			if ip, err := netip.ParseAddr(a.IP); err == nil {
				s.vars[name+family(ip)] = a.IP
			}
		}
		if name != "C" && name != "L" {
			continue
		}
		pid, ok := processes[p.Name]
		if !ok {
			t.Fatalf("pod %s has no process", p.Name)
		}
		s.spaces[map[string]string{"C": "pod", "L": "endpoint"}[name]] = "/proc/" + pid + "/ns/net"
		s.addInterface(t, name, pid)
	}
}

// addInterface finds a pod's interface on the node.
func (s *scene) addInterface(t *testing.T, name, pid string) {
	t.Helper()
	type link struct {
		Index int    `json:"ifindex"`
		Peer  int    `json:"link_index"`
		Name  string `json:"ifname"`
		MAC   string `json:"address"`
	}
	list := func(argv ...string) (links []link) {
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
		if err == nil {
			err = json.Unmarshal(out, &links)
		}
		if err != nil {
			t.Fatalf("%v: %v", argv, err)
		}
		return links
	}
	in := list("nsenter", "--net=/proc/"+pid+"/ns/net", "ip", "-j", "link", "show", "eth0")
	for _, l := range list("nsenter", "--net=/run/netns/svcproxy-"+s.node, "ip", "-j", "link") {
		if l.Index == in[0].Peer {
			s.vars[name+"V"], s.vars[name+"MAC"], s.vars[name+"PID"] = l.Name, in[0].MAC, pid
			return
		}
	}
	t.Fatalf("the interface of %s is not on the node", name)
}

// echoProcesses are the processes of the echo server on this machine, by pod.
func echoProcesses(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		if comm, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(comm)) != "echo" {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue // it has ended
		}
		for v := range strings.SplitSeq(string(environment), "\x00") {
			if host, ok := strings.CutPrefix(v, "HOSTNAME="); ok {
				out[host] = filepath.Base(dir)
			}
		}
	}
	return out
}

// prelude are the functions of the scripts: each does something, or the opposite where UNDO is set.
const prelude = `
undo=${UNDO:-}
if [ -n "$undo" ]; then set +e; else set -e; fi
# once COMMAND: undone by the fault's own undo
once() { if [ -z "$undo" ]; then "$@"; fi; }
setting() { echo "$2" >"/proc/sys/$1"; }
rule()   { if [ -z "$undo" ]; then ip rule add "$@"; else ip rule del pref "$2"; fi; }
rule6()  { if [ -z "$undo" ]; then ip -6 rule add "$@"; else ip -6 rule del pref "$2"; fi; }
route()  { if [ -z "$undo" ]; then ip route add "$@"; else ip route del "$@"; fi; }
route6() { if [ -z "$undo" ]; then ip -6 route add "$@"; else ip -6 route del "$@"; fi; }
ipt() {
	local t="$1" c="$2"; shift 2
	if [ -z "$undo" ]; then $IPT -w 5 -t "$t" -I "$c" "$@"; else $IPT -w 5 -t "$t" -D "$c" "$@"; fi
}

ip6t() {
	local t="$1" c="$2"; shift 2
	if [ -z "$undo" ]; then $IP6T -w 5 -t "$t" -I "$c" "$@"; else $IP6T -w 5 -t "$t" -D "$c" "$@"; fi
}
# hook NAME FAMILY HOOK PRIORITY RULE: a base chain with a rule
hook() {
	if [ -n "$undo" ]; then nft delete table "$2" "fault_$1"; return; fi
	nft add table "$2" "fault_$1"
	nft add chain "$2" "fault_$1" c "{ type filter hook $3 priority $4; }"
	nft add rule "$2" "fault_$1" c "$5"
}
# tune SETTING VALUE
tune() {
	local file="/proc/sys/${1//.//}" kept="/run/svcproxy-fault-${1//\//.}"
	if [ -z "$undo" ]; then cat "$file" >"$kept"; echo "$2" >"$file"; else cat "$kept" >"$file"; rm -f "$kept"; fi
}
`

// run runs a script on the node.
func (s *scene) run(t *testing.T, script string, undo bool) (string, error) {
	t.Helper()
	argv := []string{"in", s.node, "env"}
	for k, v := range s.vars {
		argv = append(argv, k+"="+v)
	}
	if undo {
		argv = append(argv, "UNDO=1")
	}
	argv = append(argv, "timeout", "20", "bash", "-c", prelude+script)
	out, err := exec.CommandContext(t.Context(), os.Getenv("E2E_CLUSTER"), argv...).CombinedOutput()
	return string(out), err
}

// make makes a fault; repair takes it back.
func (s *scene) make(t *testing.T, f *matrixFault) (repair func(t *testing.T)) {
	t.Helper()
	if f.hold != nil {
		release, err := f.hold(s)
		if err != nil {
			t.Fatal(err)
		}
		return func(*testing.T) { release() }
	}
	repair = func(t *testing.T) {
		t.Helper()
		for _, script := range []string{f.undo, f.make} {
			if out, err := s.run(t, script, true); err != nil {
				t.Logf("undone with %v: %s", err, out)
			}
		}
	}
	for _, script := range []string{f.make, f.more} {
		if out, err := s.run(t, script, false); err != nil {
			repair(t)
			t.Fatalf("the fault cannot be made: %v: %s", err, out)
		}
	}
	if f.forget {
		if out, err := exec.CommandContext(t.Context(), "nsenter", "--net="+s.spaces[f.origin()], "ip", "neigh", "flush",
			"all").CombinedOutput(); err != nil {
			repair(t)
			t.Fatalf("%s cannot be made to forget its neighbours: %v: %s", f.origin(), err, out)
		}
	}
	return repair
}

func (f *matrixFault) origin() string {
	if f.from == "" {
		return "pod"
	}
	return f.from
}

// flag is the origin as a flag of trace.
func (s *scene) flag(f *matrixFault) string {
	switch f.origin() {
	case "pod":
		return "pod/" + matrixClient(s.node)
	case "endpoint":
		return "pod/" + s.vars["LPOD"]
	case "outside":
		return outsider
	}
	return f.from
}

func (s *scene) serviceOf(f *matrixFault) string {
	if f.service == "" {
		return matrixService
	}
	return f.service
}

// frontend is the address and port that connections are made to.
func (s *scene) frontend(f *matrixFault) string {
	switch {
	case f.loopback:
		return net.JoinHostPort("127.0.0.1", s.vars["P"])
	case f.health:
		return net.JoinHostPort(s.vars["NODE"], s.vars["HP"])
	case f.origin() == "outside":
		return net.JoinHostPort(s.vars["NODE"], s.vars["P"])
	case f.service == matrixUDP:
		return net.JoinHostPort(s.vars["U"], "80")
	case f.service == matrixByHand:
		return net.JoinHostPort(s.vars["BYHAND"], "80")
	case f.v6:
		return net.JoinHostPort(s.vars["S6"], "80")
	}
	return net.JoinHostPort(s.vars["S"], "80")
}
