// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The agents of deploy/watch, as the policy of deploy/ lets them in: a rule that is deleted on a node is a finding in
// the metrics of its agent within seconds, and none when it is back; of a burst of endpoint changes none is left.
func TestWatch(t *testing.T) {
	agents := deployWatch(t)
	t.Run("the policy refuses deviations", func(t *testing.T) { watchDeviations(t, agents[nodes[0]]) })
	t.Run("status", statusTells)
	t.Run("its own report alone", func(t *testing.T) { ownReportAlone(t, agents[nodes[0]]) })
	t.Run("nodes", func(t *testing.T) {
		for _, node := range nodes {
			t.Run(node, func(t *testing.T) {
				t.Parallel()
				watchNode(t, node, agents[node])
			})
		}
	})
}

// watchNode breaks a node, repairs it, and has endpoints change.
func watchNode(t *testing.T, node string, agent *corev1.Pod) {
	t.Helper()
	scrape := func() metrics { return scrapeFrom(t, agent) }
	healthy := func(what string) {
		t.Helper()
		wait(t, what, func() (bool, error) {
			m := scrape()
			return m.healthy(), errors.New(m.String())
		})
	}
	healthy("nothing is wrong")

	begin := time.Now()
	wait(t, "the metrics tell of the deleted rule", func() (bool, error) {
		breakService(t, node)
		m := scrape()
		return m.finding(namespace, app), errors.New(m.String())
	})
	t.Logf("told after %v", time.Since(begin).Round(100*time.Millisecond))
	restartKubeProxy(t, node)
	begin = time.Now()
	healthy("the metrics tell of the repair")
	t.Logf("cleared after %v", time.Since(begin).Round(100*time.Millisecond))

	burst(t, fmt.Sprintf("burst-%d", slices.Index(nodes, node)), func() {
		if m := scrape(); len(m.findings()) > 0 {
			t.Errorf("while endpoints change: %v", m.findings())
		}
	})
	healthy("nothing is wrong after the changes")
	m := scrape()
	if m["process_resident_memory_bytes"] > 200<<20 {
		t.Errorf("it has %v MB", m["process_resident_memory_bytes"]/(1<<20))
	}
	t.Logf("%v", m)
}

// deployWatch applies deploy/watch with the image of the tests, and removes it after the test. It returns the agents'
// pods by node, once they run.
func deployWatch(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	kubectl := deploy(t)
	manifests, err := kubectl("", "kustomize", "../../deploy/watch")
	if err != nil {
		t.Fatal(err)
	}
	const placeholder = "image: ghcr.io/svcproxy/nodehelper:dev\n"
	if strings.Count(manifests, placeholder) != 1 {
		t.Fatalf("there is no %q in\n%s", placeholder, manifests)
	}
	manifests = strings.Replace(manifests, placeholder, "image: "+image+"\n", 1)
	t.Cleanup(func() {
		if _, err := kubectl("", "delete", "-k", "../../deploy/watch", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	if _, err := kubectl(manifests, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	agents := map[string]*corev1.Pod{} // by node
	wait(t, "the agents run", func() (bool, error) {
		pods, err := client.CoreV1().Pods(deployed).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/component=watch",
		})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; running(p) {
				agents[p.Spec.NodeName] = p
			}
		}
		return len(agents) >= len(nodes), fmt.Errorf("%d of %d", len(agents), len(nodes))
	})
	return agents
}

// breakService deletes the rule that leads to the Service web on a node, or its element of the map of Services. It is
// to be called until the fault is told of: a sync of kube-proxy that some earlier change still brings about writes all
// of KUBE-SERVICES again.
func breakService(t *testing.T, node string) {
	t.Helper()
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if modeOf(t, node) == "nftables" {
		at, name := svc.Spec.ClusterIP+" . tcp . 80", "ip kube-proxy service-ips"
		if strings.Contains(onNode(t, node, nil, "/usr/sbin/nft", "list", "map", "ip", "kube-proxy", "service-ips"), at) {
			nftSite{t, node}.nft("delete element " + name + " { " + at + " }")
		}
		return
	}
	s := siteOf(t, node)
	for line := range strings.Lines(s.run(s.program+"-save", "-t", "nat")) {
		if !strings.HasPrefix(line, "-A KUBE-SERVICES -d "+svc.Spec.ClusterIP+"/32 ") {
			continue
		}
		comment := regexp.MustCompile(`"[^"]*"`).FindString(line)
		words := strings.Fields(strings.Replace(strings.TrimSpace(line), comment, "COMMENT", 1))
		words[0] = "-D"
		words[slices.Index(words, "COMMENT")] = strings.Trim(comment, `"`)
		s.run(append([]string{s.program, "-t", "nat"}, words...)...)
		return
	}
}

// burst changes the endpoints of a Service of its own over and over, which nothing is behind, and calls do all the
// while.
func burst(t *testing.T, name string, do func()) {
	t.Helper()
	const changes = 100
	endpoints := func(i int) (out []discoveryv1.Endpoint) {
		for k := range 1 + i%4 {
			out = append(out, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.250.%d", 1+(i+k)%200)}})
		}
		return out
	}
	_, slice, remove := sliceByHand(t, name, discoveryv1.AddressTypeIPv4, endpoints(0), 8080)
	defer remove()
	for i := range changes {
		slice.Endpoints = endpoints(i + 1)
		updateSlice(t, slice)
		if i%10 == 0 {
			do()
		}
	}
	for range 10 { // and while kube-proxy follows
		do()
	}
}

// running tells whether a pod runs.
func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.Status.PodIP != ""
}

// watchDeviations: the agent's pod is let in, and with one thing changed it is not.
func watchDeviations(t *testing.T, agent *corev1.Pod) {
	t.Helper()
	bare := func() *corev1.Pod {
		p := agent.DeepCopy()
		p.ObjectMeta = metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: "watch-", Labels: map[string]string{
				"app.kubernetes.io/name": "svcproxy-nodehelper", "app.kubernetes.io/component": "watch",
			}, OwnerReferences: p.OwnerReferences,
		}
		p.Spec.NodeName = ""
		return p
	}
	if err := dryCreate(t, bare()); err != nil {
		t.Errorf("the pod as it is: %v", err)
	}
	for name, change := range map[string]func(p *corev1.Pod){
		"the node's network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"another account": func(p *corev1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "default", ""
		},
		"no DaemonSet": func(p *corev1.Pod) { p.OwnerReferences = nil },
		"another command": func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"/svcproxy-nodehelper", "serve"}
		},
		"another flag": func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = append(p.Spec.Containers[0].Command, "--root=/")
		},
		"another variable": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GODEBUG", Value: "x"}}
		},
		"the node's own ports": func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 9469 },
		"a volume of the node": func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
				Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
			})
		},
	} {
		p := bare()
		change(p)
		if err := dryCreate(t, p); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// metrics are the series of a scrape.
type metrics map[string]float64

// scrapeFrom reads the metrics of an agent, from another pod.
func scrapeFrom(t *testing.T, agent *corev1.Pod) metrics {
	t.Helper()
	text, errOut, err := execIn(t.Context(), "client", nil, "/echo", "get", metricsOf(agent))
	if err != nil {
		t.Logf("the agent's metrics: %v: %s", err, errOut)
	}
	return parseMetrics(text)
}

// metricsOf is the URL of an agent's metrics.
func metricsOf(agent *corev1.Pod) string {
	port := strconv.Itoa(int(agent.Spec.Containers[0].Ports[0].ContainerPort))
	return "http://" + net.JoinHostPort(agent.Status.PodIP, port) + "/metrics"
}

// parseMetrics reads what a scrape has answered.
func parseMetrics(text string) metrics {
	out := metrics{}
	for line := range strings.Lines(text) {
		i := strings.LastIndex(line, " ")
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64); err == nil {
			out[line[:i]] = v
		}
	}
	return out
}

// healthy tells whether the node was judged, and nothing is wrong on it.
func (m metrics) healthy() bool {
	return m[`svcproxy_paths{verdict="Match"}`] > 0 && len(m.findings()) == 0 &&
		m[`svcproxy_paths{verdict="Mismatch"}`]+m[`svcproxy_paths{verdict="Settling"}`] == 0
}

// findings are those that count.
func (m metrics) findings() (out []string) {
	for s, v := range m {
		if v > 0 && strings.HasPrefix(s, "svcproxy_findings{") {
			out = append(out, s)
		}
	}
	return out
}

// finding tells whether a finding of a Service counts.
func (m metrics) finding(namespace, service string) bool {
	of := fmt.Sprintf(`namespace=%q,service=%q`, namespace, service)
	for _, s := range m.findings() {
		if strings.Contains(s, of) {
			return true
		}
	}
	return false
}

func (m metrics) String() string {
	var out []string
	for s, v := range m {
		if strings.HasPrefix(s, "svcproxy_") && !strings.Contains(s, "_bucket{") && v != 0 {
			out = append(out, fmt.Sprint(s, " ", v))
		}
	}
	return strings.Join(out, "; ")
}

// sliceByHand makes a Service without a selector, of port 80, and a slice of it; remove removes both.
func sliceByHand(
	t *testing.T, name string, of discoveryv1.AddressType, endpoints []discoveryv1.Endpoint, port int32,
) (svc *corev1.Service, slice *discoveryv1.EndpointSlice, remove func()) {
	t.Helper()
	endpointSlices, services := client.DiscoveryV1().EndpointSlices(namespace), client.CoreV1().Services(namespace)
	svc, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove = func() { // not by the test's context, which may have ended
		if err := services.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := endpointSlices.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	slice, err = endpointSlices.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: of,
		Endpoints:   endpoints,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	if err != nil {
		remove()
		t.Fatal(err)
	}
	return svc, slice, remove
}

// updateSlice writes a slice, and takes over what the API server makes of it.
func updateSlice(t *testing.T, slice *discoveryv1.EndpointSlice) {
	t.Helper()
	got, err := client.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	*slice = *got
}
