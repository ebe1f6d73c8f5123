// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outageVariable says how long the API server is away. With it all of TestWatchEndures runs, without it what CI has
// time for.
const outageVariable = "SVCPROXY_OUTAGE"

// The agents of deploy/watch endure what happens to a node. While the API server is away nothing is found that is not
// so, a rule that is deleted meanwhile is noticed, and told of at the latest when the API server is back. An agent that
// is killed tells the same again. Nothing of a Service is found while kube-proxy restarts. With SVCPROXY_OUTAGE also:
// that all rules of a node were flushed is told, and nothing is once they are back; once kube-proxy's mode was switched
// nothing is found, and a fault is; nothing is found while endpoints change a thousand times.
func TestWatchEndures(t *testing.T) {
	if os.Getenv("E2E_CLUSTER") == "" {
		t.Skip("E2E_CLUSTER is not set: only the API server of test/cluster can be halted")
	}
	// Short enough for client-go not to wait long between two attempts yet.
	outage, whole := 15*time.Second, false
	if s := os.Getenv(outageVariable); s != "" {
		var err error
		if outage, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
		whole = true
	}
	agents := deployWatch(t)
	var all []*watched
	for _, node := range nodes {
		w := &watched{node: node, agent: agents[node], mode: matrixMode(t, node)}
		w.planFault(t)
		w.healthy(t, "nothing is wrong")
		all = append(all, w)
	}
	apiServerAway(t, all, outage)
	t.Run("nodes", func(t *testing.T) {
		for _, w := range all {
			t.Run(w.node+" "+w.mode, func(t *testing.T) {
				t.Parallel()
				w.killed(t)
				w.repaired(t)
				if whole {
					w.kubeProxyRestarts(t)
					w.rulesFlushed(t)
					w.modeSwitched(t)
				}
			})
		}
	})
	if whole {
		t.Run("a thousand changes", func(t *testing.T) { thousandChanges(t, all) })
	}
}

// thousandChanges changes endpoints a thousand times, while connections are made to the Service web, and no finding may
// count on any node.
func thousandChanges(t *testing.T, all []*watched) {
	t.Helper()
	const bursts = 10 // of 100 changes
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range bursts {
		burst(t, "burst", func() {
			for _, w := range all {
				for _, f := range w.scrape(t.Context()).findings() {
					seen[w.node+": "+f] = true
				}
				w.onIt(t, "timeout", "5", "bash", "-c", "echo hello >/dev/tcp/"+svc.Spec.ClusterIP+"/80")
			}
		})
	}
	for f := range seen {
		t.Errorf("found while endpoints change: %s", f)
	}
	for _, w := range all {
		w.healthy(t, "nothing is wrong after a thousand changes")
	}
}

// watched is a node with its agent.
type watched struct {
	node, mode string
	agent      *corev1.Pod
	fault      []string // a command on the node that takes what leads to the Service web away

	mu   sync.Mutex
	read time.Time // when its metrics were read last
}

// scrapeInterval is how long the agent's metrics are left alone: to answer is work that is part of its share of a
// processor, and Prometheus asks every fifteen seconds.
const scrapeInterval = time.Second

// rulesFlushed takes all rules of the node away. kube-proxy, which is then started again, writes its own anew; those of
// the CNI plugin, which does not, are put back.
func (w *watched) rulesFlushed(t *testing.T) {
	t.Helper()
	program, flush := "/usr/sbin/iptables-nft", [][]string{{"/usr/sbin/nft", "flush", "ruleset"}}
	if w.mode != "nftables" {
		program, flush = siteOf(t, w.node).program, nil
		for _, table := range []string{"nat", "filter", "mangle"} {
			flush = append(flush, []string{program, "-w", "-t", table, "-F"})
		}
	}
	plugins := "*nat\n"
	for line := range strings.Lines(onNode(t, w.node, nil, program+"-save", "-t", "nat")) {
		if strings.Contains(line, "CNI") {
			plugins += line
		}
	}
	// Again and again: the first sync of a kube-proxy that has just been started writes all rules.
	const longer = 25 * time.Second // than a poll and what a finding needs to count
	begin, next := time.Now(), time.Now()
	w.until(t, "the flushed rules are told of", func(m metrics) bool {
		told := ofApp(m)
		if !told && time.Now().After(next) {
			begin, next = time.Now(), time.Now().Add(longer)
			for _, argv := range flush {
				w.onIt(t, argv...)
			}
		}
		return told
	})
	t.Logf("told %v after all rules were flushed", time.Since(begin).Round(100*time.Millisecond))
	onNode(t, w.node, strings.NewReader(plugins+"COMMIT\n"), program+"-restore", "--noflush")
	restartKubeProxy(t, w.node)
	t.Logf("nothing is wrong %v after kube-proxy runs again", w.healthy(t, "nothing is wrong after the rules are back"))
}

// planFault makes up the fault: one that stays until kube-proxy starts again or the Service changes, as it is in what
// is of this Service alone.
func (w *watched) planFault(t *testing.T) {
	t.Helper()
	if w.mode != "nftables" {
		s := siteOf(t, w.node)
		chain, _ := s.endpointRules()
		w.fault = []string{s.program, "-w", "-t", "nat", "-F", chain}
		return
	}
	svc, err := client.CoreV1().Services(namespace).Get(t.Context(), app, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.fault = strings.Fields("/usr/sbin/nft delete element ip kube-proxy service-ips { " + svc.Spec.ClusterIP +
		" . tcp . 80 }")
}

// onIt runs a command on the node, without the API server.
func (w *watched) onIt(t *testing.T, argv ...string) {
	t.Helper()
	harness(t, append([]string{"in", w.node}, argv...)...)
}

// scrape reads the agent's metrics, without the API server, once it is time; there are none while it does not answer.
func (w *watched) scrape(ctx context.Context) metrics {
	w.mu.Lock()
	defer w.mu.Unlock()
	time.Sleep(time.Until(w.read.Add(scrapeInterval)))
	defer func() { w.read = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metricsOf(w.agent), http.NoBody)
	if err != nil {
		return nil
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	return parseMetrics(string(text))
}

// until waits until the metrics are as they should be, and returns how long that took.
func (w *watched) until(t *testing.T, what string, is func(m metrics) bool) time.Duration {
	t.Helper()
	begin := time.Now()
	wait(t, w.node+": "+what, func() (bool, error) {
		m := w.scrape(t.Context())
		return is(m), errors.New(m.String())
	})
	return time.Since(begin).Round(100 * time.Millisecond)
}

func (w *watched) healthy(t *testing.T, what string) time.Duration {
	t.Helper()
	return w.until(t, what, metrics.healthy)
}

// tells waits until the finding of the Service web counts.
func (w *watched) tells(t *testing.T, what string) time.Duration {
	t.Helper()
	return w.until(t, what, ofApp)
}

// ofApp tells whether a finding of the Service web counts.
func ofApp(m metrics) bool { return m.finding(namespace, app) }

// during runs something, and returns which findings have counted meanwhile.
func (w *watched) during(t *testing.T, do func()) []string {
	t.Helper()
	seen, stop := map[string]bool{}, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for _, f := range w.scrape(t.Context()).findings() {
				seen[f] = true
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	func() {
		defer wg.Wait()
		defer close(stop)
		do()
	}()
	return slices.Sorted(maps.Keys(seen))
}

// isOfApp tells whether a series is a finding of the Service web.
func isOfApp(series string) bool { return ofApp(metrics{series: 1}) }

// isOfService tells whether a series is a finding of some Service.
func isOfService(series string) bool { return !strings.Contains(series, `service=""`) }

// apiServerAway halts the API server. After a third of the time what leads to the Service web is taken away on each
// node.
func apiServerAway(t *testing.T, all []*watched, outage time.Duration) {
	t.Helper()
	// As long as a finding takes to count while the API cannot be reached (docs/metrics.md), and a poll.
	const counts = 2*time.Minute + 20*time.Second
	harness(t, "halt", "kube-apiserver")
	back := sync.OnceFunc(func() { harness(t, "restart", "kube-apiserver") })
	defer back()
	begin := time.Now()
	since := func() time.Duration { return time.Since(begin).Round(100 * time.Millisecond) }
	var broken time.Duration // zero: not yet
	away, noticed, told := map[string]time.Duration{}, map[string]time.Duration{}, map[string]time.Duration{}
	first := func(of map[string]time.Duration, node string) {
		if of[node] == 0 {
			of[node] = since()
		}
	}
	wrong := map[string]bool{}
	for time.Since(begin) < outage {
		for _, w := range all {
			m := w.scrape(t.Context())
			if v, ok := m["svcproxy_api_connected"]; ok && v == 0 {
				first(away, w.node)
			}
			if broken > 0 && m["svcproxy_findings_settling"] > 0 {
				first(noticed, w.node)
			}
			for _, f := range m.findings() {
				if broken == 0 || !isOfApp(f) {
					wrong[w.node+": "+f] = true
				} else {
					first(told, w.node)
				}
			}
		}
		if broken == 0 && time.Since(begin) > outage/3 {
			for _, w := range all {
				w.onIt(t, w.fault...)
			}
			broken = since()
		}
		time.Sleep(500 * time.Millisecond)
	}
	for f := range wrong {
		t.Errorf("found while the API server is away: %s", f)
	}
	t.Logf("API server away for %v: noticed after %v; rules deleted after %v, noticed after %v, told after %v", since(),
		away, broken, noticed, told)
	for _, w := range all {
		if away[w.node] == 0 {
			t.Errorf("%s: the agent does not say that the API server is away", w.node)
		}
		if noticed[w.node] == 0 {
			t.Errorf("%s: the agent does not judge while the API server is away", w.node)
		}
		if outage-broken > counts && told[w.node] == 0 {
			t.Errorf("%s: the deleted rule does not count, %v after it was deleted", w.node, outage-broken)
		}
	}
	back()
	begin = time.Now()
	for _, w := range all {
		if told[w.node] == 0 {
			w.tells(t, "the deleted rule is told of")
			t.Logf("%s: told %v after the API server was back", w.node, since())
		}
	}
	for _, w := range all {
		w.until(t, "the API server is reached again", func(m metrics) bool { return m["svcproxy_api_connected"] == 1 })
	}
	t.Logf("all agents reach the API server again after %v", since())
}

// killed kills the agent, while something is wrong on the node.
func (w *watched) killed(t *testing.T) {
	t.Helper()
	const most = 30 * time.Second
	// What was taken away may be back: the Service may have changed as nodes were not heard of.
	w.breakAndTell(t)
	const started = "process_start_time_seconds"
	before := w.scrape(t.Context())[started]
	w.onIt(t, "pkill", "-KILL", "-f", "^/svcproxy-nodehelper watch")
	took := w.until(t, "it tells again after it was killed", func(m metrics) bool {
		return m[started] > before && ofApp(m)
	})
	t.Logf("killed: it tells again after %v", took)
	if took > most {
		t.Errorf("it tells again %v after it was killed", took)
	}
}

// breakAndTell makes the fault where it is not there, and waits until the agent tells of it.
func (w *watched) breakAndTell(t *testing.T) {
	t.Helper()
	if ofApp(w.scrape(t.Context())) {
		return
	}
	w.onIt(t, w.fault...)
	t.Logf("told of the fault after %v", w.tells(t, "the fault is told of"))
}

// repaired restarts kube-proxy, which repairs what is wrong.
func (w *watched) repaired(t *testing.T) {
	t.Helper()
	w.restart(t, func(f string) bool { return !isOfApp(f) })
}

// kubeProxyRestarts restarts it where nothing is wrong.
func (w *watched) kubeProxyRestarts(t *testing.T) {
	t.Helper()
	w.restart(t, func(string) bool { return true })
}

// restart restarts kube-proxy, while no finding of a Service may count that is false.
func (w *watched) restart(t *testing.T, isFalse func(finding string) bool) {
	t.Helper()
	for _, f := range w.during(t, func() {
		restartKubeProxy(t, w.node)
		t.Logf("nothing is wrong %v after kube-proxy runs again", w.healthy(t, "nothing is wrong after kube-proxy restarted"))
	}) {
		if isOfService(f) && isFalse(f) {
			t.Errorf("found while kube-proxy restarts: %s", f)
		} else {
			t.Logf("found while kube-proxy restarts: %s", f)
		}
	}
}

// modeSwitched has kube-proxy run in another mode and back. Not from legacy tables: no kube-proxy that uses others
// takes these away.
func (w *watched) modeSwitched(t *testing.T) {
	t.Helper()
	other := map[string]string{"iptables": "nftables", "nftables": "iptables"}[w.mode]
	if other == "" {
		return
	}
	for _, mode := range []string{other, w.mode} {
		begin := time.Now()
		found := w.during(t, func() {
			harness(t, "proxy", w.node, mode)
			w.until(t, "the other mode is noticed, and nothing is wrong", func(m metrics) bool {
				for s, v := range m {
					if v == 1 && strings.HasPrefix(s, "svcproxy_node_info{") && strings.Contains(s, fmt.Sprintf("mode=%q", mode)) {
						return m.healthy()
					}
				}
				return false
			})
		})
		t.Logf("switched to %s: all is well after %v, found meanwhile: %v", mode,
			time.Since(begin).Round(100*time.Millisecond), found)
		there := &watched{node: w.node, mode: mode, agent: w.agent}
		there.planFault(t)
		there.breakAndTell(t)
		restartKubeProxy(t, w.node)
		there.healthy(t, "nothing is wrong after the fault in the other mode")
	}
}
