// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stopwatch connects to an address and port of the cluster over and over, from a node's own network namespace, and
// prints when that begins to succeed or to be refused.
const stopwatch = `last=
for ((i = 0; i < 30000; i++)); do
	if (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; then now=open; else now=closed; fi
	[[ $now == "$last" ]] || echo "$EPOCHREALTIME $now"
	last=$now
	sleep 0.01
done`

// TestHistogramAgainstAStopwatch compares what the agents measure from the API to the kernel with real connections: an
// endpoint's port changes from one where nobody listens to one where somebody does, and back. In nf_tables both have to
// be the same to 0.2 seconds on average, and where rules are polled to the resolution that the agent itself tells. What
// a busy machine delays once is measured again.
func TestHistogramAgainstAStopwatch(t *testing.T) {
	program := harnessProgram(t)
	agents := deployWatch(t)
	for node, agent := range agents {
		wait(t, node+": nothing is wrong", func() (bool, error) {
			m := scrapeFrom(t, agent)
			return m.healthy(), errors.New(m.String())
		})
	}
	svc, slice := stopwatchService(t)
	since := map[string]<-chan reading{}
	for node := range agents {
		since[node] = watchConnections(t, program, node, svc.Spec.ClusterIP)
	}
	const rounds = 3
	for round := range rounds {
		off := compareLatency(t, agents, since, slice)
		if len(off) == 0 {
			return
		}
		if round == rounds-1 {
			t.Error(strings.Join(off, "; "))
		}
	}
}

// reading is a change that a stopwatch has seen.
type reading struct {
	at   time.Time
	open bool
}

// stopwatchService makes a Service with one endpoint, a pod of the Service web, at a port where nobody listens.
func stopwatchService(t *testing.T) (*corev1.Service, *discoveryv1.EndpointSlice) {
	t.Helper()
	of, err := client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + app,
	})
	if err != nil || len(of.Items) == 0 || len(of.Items[0].Endpoints) == 0 {
		t.Fatalf("%v, %v", of, err)
	}
	svc, slice, remove := sliceByHand(t, "stopwatch", of.Items[0].AddressType,
		[]discoveryv1.Endpoint{{Addresses: of.Items[0].Endpoints[0].Addresses}}, closedPort)
	t.Cleanup(remove)
	return svc, slice
}

// The ports of the pods of web at which nobody listens, and at which the echo server does.
const (
	closedPort int32 = 9
	openPort   int32 = 8080
)

// watchConnections starts a stopwatch on a node. It ends with the test.
func watchConnections(t *testing.T, program, node, clusterIP string) <-chan reading {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program, "in", node, "bash", "-c", stopwatch, "stopwatch", clusterIP, "80")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	seen := make(chan reading, 1000)
	go func() {
		defer close(seen)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			at, what, _ := strings.Cut(lines.Text(), " ")
			if s, err := strconv.ParseFloat(at, 64); err == nil {
				seen <- reading{time.UnixMicro(int64(s * 1e6)), what == "open"}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return seen
}

// latency is what was measured on a node: how many changes, and their seconds together.
type latency struct{ count, sum float64 }

func (l latency) mean() float64 { return l.sum / l.count }

// latencyOf is what an agent has measured so far, and how many changes it has left out.
func latencyOf(m metrics) (l latency, left float64) {
	for series, v := range m {
		switch {
		case strings.HasPrefix(series, `svcproxy_api_to_kernel_seconds_count{family="IPv4"`):
			l.count += v
		case strings.HasPrefix(series, `svcproxy_api_to_kernel_seconds_sum{family="IPv4"`):
			l.sum += v
		case strings.HasPrefix(series, "svcproxy_api_to_kernel_unmeasured_total"):
			left += v
		}
	}
	return l, left
}

// compareLatency has the endpoint change some times, and returns where the agent and the stopwatch differ too much.
func compareLatency(
	t *testing.T, agents map[string]*corev1.Pod, since map[string]<-chan reading, slice *discoveryv1.EndpointSlice,
) (off []string) {
	t.Helper()
	const changes = 10
	before, watched := map[string]metrics{}, map[string]*latency{}
	for node, agent := range agents {
		before[node], watched[node] = scrapeFrom(t, agent), &latency{}
	}
	for i := range changes {
		open := i%2 == 0
		port := closedPort
		if open {
			port = openPort
		}
		slice.Ports[0].Port = &port
		begin := time.Now()
		updateSlice(t, slice)
		for node, seen := range since {
			at := arrival(t, node, seen, open, begin)
			watched[node].sum += at.Sub(begin).Seconds()
			watched[node].count++
		}
		// Longer than a poll: what comes between two readings is one change.
		time.Sleep(12 * time.Second)
	}
	for node, agent := range agents {
		var got latency
		wait(t, node+": the agent has measured the changes", func() (bool, error) {
			m := scrapeFrom(t, agent)
			l, left := latencyOf(m)
			was, leftBefore := latencyOf(before[node])
			got = latency{l.count - was.count, l.sum - was.sum}
			return got.count+left-leftBefore >= changes, errors.New(m.String())
		})
		allowed, by := 0.2, "notifications"
		if modeOf(t, node) == "iptables" && strings.HasSuffix(siteOf(t, node).program, "legacy") {
			allowed, by = 0.2+scrapeFrom(t, agent)["svcproxy_polling_resolution_seconds"], "polling"
		}
		said := fmt.Sprintf("%s (%s): the agent measured %.0f changes, of %.3f s on average; connections took %.3f s", node,
			by, got.count, got.mean(), watched[node].mean())
		t.Log(said)
		if got.count < changes/2 || !(math.Abs(got.mean()-watched[node].mean()) <= allowed) {
			off = append(off, said)
		}
	}
	return off
}

// arrival waits until connections succeed, or are refused, and returns since when.
func arrival(t *testing.T, node string, seen <-chan reading, open bool, begin time.Time) time.Time {
	t.Helper()
	for {
		select {
		case r, ok := <-seen:
			switch {
			case !ok:
				t.Fatalf("%s: the stopwatch has ended", node)
			case r.open == open && r.at.After(begin):
				return r.at
			}
		case <-time.After(patience):
			t.Fatalf("%s: connections do not become open=%v", node, open)
		}
	}
}
