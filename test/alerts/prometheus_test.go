// SPDX-License-Identifier: Apache-2.0

//go:build linux && prometheus

package alerts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/watch"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// capturedNode is the node whose rules are loaded.
const capturedNode = "node1"

// Prometheus scrapes an agent of a node with the rules of a captured one. An alert fires after a rule was deleted in
// the kernel, and resolves after it is back.
func TestAnAlertFiresAndResolves(t *testing.T) {
	prometheus := program(t, "SVCPROXY_PROMETHEUS")
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "iptables-nft-restore", "iptables-nft-save", "ip") {
		return
	}
	testutil.Run(t, "", "ip", "link", "set", "lo", "up")
	objects, files := snap.Node(t, "../../testdata/snapshots/real-2node-iptables", capturedNode)
	rules, _, err := files.File(snapshot.IPTablesNFTFile)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	rule := ""
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, " -m nfacct ") { // which this kernel need not have
			continue
		}
		if _, words, ok := strings.Cut(line, "-A KUBE-SERVICES "); ok && strings.Contains(line, `"default/echo `) {
			rule = words
		}
		kept = append(kept, line)
	}
	if rule == "" {
		t.Fatal("no rule leads to default/echo")
	}
	restore := func(text string) { testutil.Run(t, text, "iptables-nft-restore", "--noflush") }
	restore(strings.Join(kept, ""))

	address := startAgent(t, objects, files)
	api := startPrometheus(t, prometheus, address)
	api.wait(t, "the agent is scraped, and nothing is wrong", func() (bool, string) {
		matches, alerts := api.query(t, `svcproxy_paths{verdict="Match"} > 0`), api.firing(t)
		return matches > 0 && len(alerts) == 0, fmt.Sprint(matches, " ", alerts)
	})
	restore("*nat\n-D KUBE-SERVICES " + rule + "COMMIT\n")
	api.wait(t, "the alert fires", func() (bool, string) {
		alerts := api.firing(t)
		return slices.ContainsFunc(alerts, func(a map[string]string) bool {
			return a["alertname"] == "ServicePathMismatch" && a["node"] == capturedNode && a["namespace"] == "default" &&
				a["service"] == "echo" && a["severity"] == "critical"
		}), fmt.Sprint(alerts)
	})
	restore("*nat\n-I KUBE-SERVICES 1 " + rule + "COMMIT\n")
	api.wait(t, "it resolves", func() (bool, string) {
		alerts := api.firing(t)
		return len(alerts) == 0, fmt.Sprint(alerts)
	})
}

// startAgent runs an agent that reads the node's rules from the kernel, and the rest from its files. It returns where
// its metrics are.
func startAgent(t *testing.T, objects *snapshot.Cluster, files *snapshot.Node) (address string) {
	t.Helper()
	var list []runtime.Object
	for _, o := range objects.Services {
		list = append(list, o)
	}
	for _, o := range objects.EndpointSlices {
		list = append(list, o)
	}
	for _, o := range objects.Nodes {
		list = append(list, o)
	}
	others := snap.Files(t, files)
	delete(others, snapshot.ConntrackFile)
	delete(others, snapshot.IPTablesFile)
	agent, err := watch.New(watch.Options{
		Node: files.Name, Client: fake.NewClientset(list...), Share: 1, Full: time.Hour, Poll: time.Hour,
		Read: func(ctx context.Context) (*snapshot.Node, error) {
			now := maps.Clone(others)
			out, err := exec.CommandContext(ctx, "iptables-nft-save").Output()
			if err != nil {
				return nil, err
			}
			now[snapshot.IPTablesNFTFile] = out
			return snapshot.NewNode(files.Name, now), nil
		},
		Log: func(line string) { t.Log("agent: " + line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { _ = agent.Run(ctx) }) // it ends with the context
	wg.Go(func() {
		if err := agent.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// prometheusAPI is the address of a Prometheus.
type prometheusAPI string

// startPrometheus runs a Prometheus that scrapes an agent as the PodMonitor has it scraped, but every second.
func startPrometheus(t *testing.T, program, agent string) prometheusAPI {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: svcproxy/svcproxy-watch
  honor_labels: true
  static_configs:
  - targets: [%q]
    labels: {node: %s, namespace: svcproxy, pod: svcproxy-watch-x, container: nodehelper, endpoint: metrics}
`, writeRules(t), agent, capturedNode)
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	const address = "127.0.0.1:9090" // of a network namespace of its own
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+path, "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address, "--log.level=warn")
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus: %s", log)
		}
	})
	return address
}

// wait waits until something is so, two minutes at most.
func (prometheusAPI) wait(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	begin := time.Now()
	for {
		ok, seen := is()
		if ok {
			t.Logf("%s after %v", what, time.Since(begin).Round(100*time.Millisecond))
			return
		}
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("not so: %s: %s", what, seen)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// get requests something of the API. Until Prometheus listens there is nothing.
func (p prometheusAPI) get(t *testing.T, path string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+string(p)+path,
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil || response.StatusCode != http.StatusOK {
		return
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v: %s", path, err, data)
	}
}

// query counts the series that a query has.
func (p prometheusAPI) query(t *testing.T, expr string) int {
	t.Helper()
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	return len(answer.Data.Result)
}

// firing are the labels of the alerts that fire.
func (p prometheusAPI) firing(t *testing.T) (out []map[string]string) {
	t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	p.get(t, "/api/v1/alerts", &answer)
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			out = append(out, a.Labels)
		}
	}
	return out
}
