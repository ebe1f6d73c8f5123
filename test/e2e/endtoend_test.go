// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// dnsService is the address that the kubelets of test/cluster write into pods, where the tests' name server is a
// Service; "" elsewhere: the cluster has its own.
var dnsService = os.Getenv("E2E_DNS")

const (
	dnsName      = "kube-dns"
	dnsNamespace = "kube-system"
	zoneName     = "." + namespace + ".svc.cluster.local"
	aliasOf      = "db.example.org"
)

// nameServer is the tests' own, on a node that is not the client's.
type nameServer struct {
	*testing.T

	zone []string // as it should be: NAME=ADDRESS
	at   string   // the pod's address
}

// serveNames makes the Service of the cluster's DNS, and a pod behind it that knows the tests' Services.
func serveNames(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{T: t}
	list, err := client.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		svc := &list.Items[i]
		value := strings.Join(svc.Spec.ClusterIPs, ",")
		switch {
		case svc.Spec.Type == corev1.ServiceTypeExternalName:
			value = svc.Spec.ExternalName
		case svc.Spec.ClusterIP == corev1.ClusterIPNone:
			value = strings.Join(podAddresses(t), ",")
		}
		s.zone = append(s.zone, svc.Name+zoneName+"="+value)
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: dnsName}, Spec: corev1.ServiceSpec{
		ClusterIP: dnsService, Selector: map[string]string{"k8s-app": dnsName},
		Ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP},
		},
	}}
	services := client.CoreV1().Services(dnsNamespace)
	if _, err := services.Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.remove(ctx), services.Delete(ctx, dnsName, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	s.serve(append([]string{"dns"}, s.zone...)...)
	return s
}

// podAddresses are the IPv4 addresses of the Deployment's pods.
func podAddresses(t *testing.T) (out []string) {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		out = append(out, pods.Items[i].Status.PodIP)
	}
	return out
}

// remove ends the name server's pod.
func (s *nameServer) remove(ctx context.Context) error {
	return ignoreNotFound(client.CoreV1().Pods(dnsNamespace).Delete(ctx, dnsName,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// stop ends the name server's pod, and waits until the Service has no endpoint.
func (s *nameServer) stop() {
	s.Helper()
	if err := s.remove(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.endpoint("")
}

// serve runs the echo server with arguments behind the Service, in place of what ran there.
func (s *nameServer) serve(args ...string) {
	s.Helper()
	s.stop()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: dnsName, Labels: map[string]string{"k8s-app": dnsName}},
		Spec: corev1.PodSpec{
			NodeName: nodes[1], DNSPolicy: corev1.DNSDefault, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{
				{Name: "dns", Image: echoImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: args},
			},
		},
	}
	pods := client.CoreV1().Pods(dnsNamespace)
	if _, err := pods.Create(s.Context(), pod, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	wait(s.T, "the name server runs", func() (bool, error) {
		got, err := pods.Get(s.Context(), dnsName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s.at = got.Status.PodIP
		return got.Status.Phase == corev1.PodRunning && s.at != "", fmt.Errorf("it is %+v", got.Status)
	})
	s.endpoint(s.at)
}

// endpoint waits until the Service has this endpoint alone, and the client's node sends there; "" for none.
func (s *nameServer) endpoint(want string) {
	s.Helper()
	wait(s.T, "the Service "+dnsName+" has the endpoint "+want, func() (bool, error) {
		list, err := client.DiscoveryV1().EndpointSlices(dnsNamespace).List(s.Context(),
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + dnsName})
		if err != nil {
			return false, err
		}
		var got []string
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				got = append(got, e.Addresses...)
			}
		}
		return strings.Join(got, " ") == want, fmt.Errorf("it has %v", got)
	})
	wait(s.T, "kube-proxy has written it", func() (bool, error) {
		r := svcproxy(s.T, "trace", dnsService, "--node", nodes[0])
		return r.code == 0, fmt.Errorf("%s", r)
	})
}

// dropped has a node drop packets, until undo.
func (s *nameServer) dropped(node string, match ...string) (undo func()) {
	s.Helper()
	at := siteOf(s.T, node)
	rule := slices.Concat([]string{"FORWARD"}, match, []string{"-j", "DROP"})
	at.run(append([]string{at.program, "-t", "filter", "-I"}, rule...)...)
	return func() { at.run(append([]string{at.program, "-t", "filter", "-D"}, rule...)...) }
}

// connects tells whether the client's program connects to the Service by its name, with the pod's own resolver.
func connects(t *testing.T, pod, name string) bool {
	t.Helper()
	out, errOut, err := execIn(t.Context(), pod, nil, "/echo", "connect", "-for", "1ms", name)
	if err != nil {
		t.Fatalf("%v: %s", err, errOut)
	}
	return strings.HasPrefix(out, "1 connected")
}

// nameSegments are those of the name in a report.
func nameSegments(r *report.Report) (out []report.Segment) {
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			for _, s := range r.Nodes[i].Paths[k].Segments {
				if s.Segment == report.SegmentName {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// notRight says what segments of a report are not right.
func notRight(r *report.Report) (out []string) {
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			for _, s := range r.Nodes[i].Paths[k].Segments {
				if s.Verdict != report.SegmentRight {
					out = append(out, fmt.Sprintf("%s %s %s %s: %s", s.Segment, s.Endpoint, s.Verdict, s.Code, s.Message))
				}
			}
		}
	}
	return out
}

// endToEnd follows connections of a pod.
func endToEnd(t *testing.T, service, pod string, args ...string) result {
	t.Helper()
	return svcproxy(t, slices.Concat([]string{"trace", service, "--from", "pod/" + pod, "--end-to-end", "-o", "json"},
		args)...)
}

// Every Service from pods on all nodes, with real connections and names that are asked for: all segments are right.
func TestEndToEnd(t *testing.T) {
	if dnsService == "" {
		t.Skip("the name server is a Service of test/cluster alone (E2E_DNS)")
	}
	serveNames(t)
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	clients := []string{"client"}
	for i := range pods.Items {
		clients = append(clients, pods.Items[i].Name)
	}
	withIP := []string{app + "-dual", app, app + "-udp", app + "-nodeport", app + "-local"}
	without := []string{app + "-headless", app + "-alias"}
	for _, pod := range clients {
		for _, service := range withIP {
			r := endToEnd(t, service, pod, "--live", "--probes", "6")
			if wrong := notRight(&r.report); r.code != 0 || len(wrong) > 0 {
				t.Errorf("%s from %s: %s\n%s", service, pod, strings.Join(wrong, "\n"), r)
			}
			for _, s := range nameSegments(&r.report) {
				if want := "as " + dnsService + " answers"; !strings.Contains(s.Message, want) {
					t.Errorf("%s from %s: %s, want %s", service, pod, s.Message, want)
				}
			}
		}
		for _, service := range without {
			r := endToEnd(t, service, pod, "--live")
			if names := nameSegments(&r.report); r.code != 0 || len(names) != 1 || len(notRight(&r.report)) > 0 {
				t.Errorf("%s from %s: %+v\n%s", service, pod, names, r)
			}
		}
		withIP, without = withIP[:1], nil // of other pods TCP and UDP, IPv4 and IPv6
	}
	noHelperPods(t)
}

// nameFaultsInCI are those that CI makes, each of them a way of its own to fail; SVCPROXY_FAULTS=all makes all.
var nameFaultsInCI = []string{"no such name", "no endpoint", "TCP dropped on the server's node"}

// What keeps a pod from resolving a Service's name: what is said of it without asking, and by asking.
func TestNameFaults(t *testing.T) {
	if dnsService == "" {
		t.Skip("the name server is a Service of test/cluster alone (E2E_DNS)")
	}
	s := serveNames(t)
	right := append([]string{"dns"}, s.zone...)
	web := app + zoneName
	for _, tt := range []struct {
		name     string
		do       func() (undo func())
		connects bool
		// The codes of what is found, without --live and with it.
		read, asked string
	}{
		{
			"an old address", func() func() {
				s.serve("dns", web+"=10.97.255.1")
				return func() { s.serve(right...) }
			}, false, "", judge.DNSAnswer,
		},
		{
			"no such name", func() func() {
				s.serve("dns", "other"+zoneName+"=10.97.255.1")
				return func() { s.serve(right...) }
			}, false, "", judge.DNSAnswer,
		},
		{
			"nobody listens", func() func() {
				s.serve(":8080")
				return func() { s.serve(right...) }
			}, false, judge.DNSServerUnreachable, judge.DNSServerUnreachable,
		},
		{
			"no endpoint", func() func() {
				s.stop()
				return func() { s.serve(right...) }
			}, false, judge.DNSServerUnreachable, judge.DNSServerUnreachable,
		},
		{
			"dropped on the server's node", func() func() {
				return s.dropped(nodes[1], "-p", "udp", "--dport", "53", "-d", s.at)
			}, false, judge.DNSServerUnreachable, judge.DNSServerUnreachable,
		},
		{
			"TCP dropped on the server's node", func() func() {
				return s.dropped(nodes[1], "-p", "tcp", "--dport", "53", "-d", s.at)
			}, true, judge.DNSOverTCPUnreachable, judge.DNSOverTCPUnreachable,
		},
		{
			"dropped on the client's node", func() func() {
				return s.dropped(nodes[0], "-p", "udp", "--dport", "53", "-d", s.at)
			}, false, judge.DNSServerUnreachable, judge.DNSServerUnreachable,
		},
	} {
		if !testutil.EveryFault() && !slices.Contains(nameFaultsInCI, tt.name) {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			parent := s.T
			s.T = t
			defer func() { s.T = parent }()
			undo := sync.OnceFunc(tt.do())
			defer undo()
			if got := connects(t, "client", app+":80"); got != tt.connects {
				t.Errorf("the client connects: %t, want %t", got, tt.connects)
			}
			for _, live := range []bool{false, true} {
				want, args := tt.read, []string(nil)
				if live {
					want, args = tt.asked, []string{"--live", "--probes", "3"}
				}
				r := endToEnd(t, app, "client", args...)
				if got := strings.Join(codes(&r.report), " "); got != want {
					t.Errorf("live %t: %s, want %s\n%s", live, got, want, r)
				}
			}
			undo()
			r := endToEnd(t, app, "client", "--live", "--probes", "3")
			if r.code != 0 || !connects(t, "client", app+":80") {
				t.Errorf("after the repair:\n%s", r)
			}
		})
	}
}

// accepted counts how many of some connections from this machine are accepted at a node's port. The others are logged,
// each with when it was tried and what became of it.
func accepted(t *testing.T, at netip.AddrPort) (n int) {
	t.Helper()
	start := time.Now()
	for i := range outsideTries {
		begun := time.Since(start)
		if err := connect(t.Context(), at); err != nil {
			t.Logf("connection %d, after %v: %v", i, begun, err)
			continue
		}
		n++
	}
	return n
}

// connect makes a connection from this machine and closes it.
func connect(ctx context.Context, at netip.AddrPort) error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	return c.Close()
}

const outsideTries = 12

// From outside of the cluster over each node into the endpoints' pods, and back: connections are accepted, and all
// segments are right. What a node does to them is said of the segment that it is in, and not after the repair.
func TestEndToEndFromOutside(t *testing.T) {
	if dnsService == "" {
		t.Skip("this machine is outside of test/cluster alone (E2E_DNS)")
	}
	portOf := func(service string) uint16 {
		svc, err := client.CoreV1().Services(namespace).Get(t.Context(), service, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return uint16(svc.Spec.Ports[0].NodePort)
	}
	at := func(node, service string) netip.AddrPort {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() {
				return netip.AddrPortFrom(ip, portOf(service))
			}
		}
		t.Fatalf("%s has no address", node)
		return netip.AddrPort{}
	}
	traced := func(t *testing.T, service, node string) result {
		t.Helper()
		return svcproxy(t, "trace", service, "--from", outsider, "--node", node, "--end-to-end", "-o", "json")
	}
	for _, node := range nodes {
		for _, service := range []string{app + "-nodeport", app + "-local"} {
			// kube-proxy may not have followed yet the Services that were just made: what it does is measured after it has.
			wait(t, "the first connection to "+service+" by "+node, func() (bool, error) {
				err := connect(t.Context(), at(node, service))
				if err != nil {
					t.Log(err)
				}
				return err == nil, err
			})
			got := accepted(t, at(node, service))
			r := traced(t, service, node)
			if wrong := notRight(&r.report); r.code != 0 || len(wrong) > 0 || got != outsideTries {
				t.Errorf("%s by %s: %d connections, %s\n%s", service, node, got, strings.Join(wrong, "\n"), r)
			}
		}
	}
	service, entry := app+"-nodeport", nodes[0]
	for _, c := range []struct {
		name, node string
		chain      []string // a table and a chain, and a rule to put at its begin
		code       string
	}{
		{
			"the source address is kept", entry,
			[]string{"nat", "POSTROUTING", "-j", "ACCEPT"},
			judge.Shadowed, // the answers that are lost are a consequence
		},
		{
			"an endpoint's node drops", nodes[1],
			[]string{"filter", "FORWARD", "-p", "tcp", "--dport", "8080", "-j", "DROP"},
			endtoend.EndpointNodeDrops,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := siteOf(t, c.node)
			change := func(how string) {
				s.run(append([]string{s.program, "-t", c.chain[0], how}, c.chain[1:]...)...)
			}
			change("-I")
			undo := sync.OnceFunc(func() { change("-D") })
			defer undo()
			got := accepted(t, at(entry, service))
			r := traced(t, service, entry)
			if found := codes(&r.report); got == outsideTries || r.code != 1 || !slices.Contains(found, c.code) {
				t.Errorf("%d connections, %v\n%s", got, found, r)
			}
			undo()
			got = accepted(t, at(entry, service))
			if r := traced(t, service, entry); r.code != 0 || got != outsideTries {
				t.Errorf("after the repair: %d connections\n%s", got, r)
			}
		})
	}
	noHelperPods(t)
}
