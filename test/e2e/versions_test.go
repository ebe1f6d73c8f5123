// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// versions is the environment variable with the versions of kube-proxy that TestVersions runs: the oldest in CI, all
// that test/cluster has in the nightly list.
const versions = "SVCPROXY_VERSIONS"

// proxyLabel is the label by which test/cluster chooses the kube-proxy of a node.
const proxyLabel = "svcproxy.test/kube-proxy"

// TestVersions replaces the nodes' kube-proxies by those of other versions, in each mode that a version has, as an
// upgrade does: what they write is right, a fault is found, and connections show the same.
func TestVersions(t *testing.T) {
	list := strings.Fields(os.Getenv(versions))
	if os.Getenv("E2E_CLUSTER") == "" || len(list) == 0 {
		t.Skipf("E2E_CLUSTER or %s is not set: only test/cluster has other versions of kube-proxy", versions)
	}
	restore := sync.OnceFunc(func() { restoreProxies(t) })
	defer restore()
	for _, version := range list {
		t.Run(version, func(t *testing.T) {
			modes := []string{"iptables", "iptables-legacy", "nftables"}[:len(nodes)]
			if minorOf(t, version) < 29 {
				modes = modes[:2]
			}
			setProxies(t, modes, version)
			healthy(t, modes, version)
			t.Run("nodes", func(t *testing.T) {
				for i, mode := range modes {
					t.Run(mode, func(t *testing.T) {
						t.Parallel()
						v := versionNode{T: t, node: nodes[i], mode: mode, minor: minorOf(t, version)}
						v.fault()
						v.live()
					})
				}
			})
		})
	}
	noHelperPods(t)
}

func minorOf(t *testing.T, version string) int {
	t.Helper()
	minor, err := strconv.Atoi(strings.Split(version+".", ".")[1])
	if err != nil {
		t.Fatalf("%s=%q: %v", versions, version, err)
	}
	return minor
}

// setProxies has the first nodes run a version of kube-proxy, each in another mode.
func setProxies(t *testing.T, modes []string, version string) {
	t.Helper()
	errs := make([]error, len(modes))
	var wg sync.WaitGroup
	for i, mode := range modes {
		wg.Go(func() {
			// A kube-proxy of 1.33 to 1.36 keeps the chains of endpoints that are there, and those of 1.37 are other ones.
			if mode == "nftables" {
				errs[i] = errors.Join(onCluster(t, "proxy", nodes[i], "stop"),
					onCluster(t, "in", nodes[i], "nft", "delete", "table", "ip", "kube-proxy"),
					onCluster(t, "in", nodes[i], "nft", "delete", "table", "ip6", "kube-proxy"))
			}
			if errs[i] == nil {
				errs[i] = onCluster(t, "proxy", nodes[i], mode+"@"+version)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onCluster runs a command of test/cluster.
func onCluster(t *testing.T, args ...string) error {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), os.Getenv("E2E_CLUSTER"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cluster %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// restoreProxies has every node run the kube-proxy of the cluster's own version, in the mode that it has now.
func restoreProxies(t *testing.T) {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		n := &list.Items[i]
		mode := regexp.MustCompile(`-v\d.*`).ReplaceAllString(n.Labels[proxyLabel], "")
		if mode == n.Labels[proxyLabel] {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{proxyLabel: mode}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "all is right with the cluster's own kube-proxy", func() (bool, error) {
		r := svcproxy(t, "verify", "-A", "--all-nodes", "-o", "json")
		return r.code == 0 && r.report.Verdict == report.Match, fmt.Errorf("%s", r)
	})
}

// unexpected lists the codes of what is said of a right node: nothing but what is by design of a path. That the
// ConfigMap names another mode is said of the cluster: it has one for each, of which one has the name that kubeadm
// gives it.
func unexpected(r *report.Report) []string {
	var out []string
	for i := range r.Nodes {
		for _, f := range r.Nodes[i].Findings {
			if f.Code != judge.ModeMismatch {
				out = append(out, f.Code)
			}
		}
		for k := range r.Nodes[i].Paths {
			for _, f := range r.Nodes[i].Paths[k].Findings {
				if f.Severity != report.Info {
					out = append(out, f.Code)
				}
			}
		}
	}
	return out
}

// healthy waits until what the nodes have is right, and nothing else is said of it.
func healthy(t *testing.T, modes []string, version string) {
	t.Helper()
	var args []string
	for i := range modes {
		args = append(args, "--node", nodes[i])
	}
	var r result
	wait(t, "all is right", func() (bool, error) {
		r = svcproxy(t, append([]string{"verify", "-A", "-o", "json"}, args...)...)
		return r.code == 0, fmt.Errorf("%s", r)
	})
	traced := svcproxy(t, append([]string{"trace", app, "-o", "json"}, args...)...)
	mode := svcproxy(t, append([]string{"mode", "-o", "json"}, nodes[:len(modes)]...)...)
	for _, r := range []result{r, traced, mode} {
		s := r.report.Summary
		if said := unexpected(&r.report); r.code != 0 || r.report.Verdict != report.Match ||
			s.Matched+s.ByDesign != s.Paths || len(said) > 0 || len(r.report.Nodes) != len(modes) {
			t.Errorf("%s: %+v, %v\n%s", r.report.Verdict, s, said, r)
			continue
		}
		for i := range r.report.Nodes {
			m, want := r.report.Nodes[i].Mode, strings.TrimSuffix(modes[i], "-legacy")
			backend := map[string]string{"iptables": "nft", "iptables-legacy": "legacy"}[modes[i]]
			if m == nil || m.Actual != want || m.Reported != want || m.Backend != backend || m.KubeProxyVersion != version ||
				m.Health != "healthy" || m.LastSync == "" || m.PendingChanges == nil || m.SyncFailures == nil ||
				len(m.Leftovers) > 0 {
				t.Errorf("%s, %s %s: %+v", nodes[i], modes[i], version, m)
			}
		}
	}
	if r.report.Summary.Matched < 10*len(modes) || traced.report.Summary.Matched < 2*len(modes) {
		t.Errorf("few paths were judged: %+v, %+v", r.report.Summary, traced.report.Summary)
	}
}

// versionNode is a node whose kube-proxy is of another version.
type versionNode struct {
	*testing.T

	node, mode string
	minor      int
}

// fault makes the rules translate to fewer endpoints: a part of the connections fails, and the trace says so.
// Before 1.32 kube-proxy in nftables mode writes everything anew every 30 s: a fault that is gone is made again.
func (v versionNode) fault() {
	v.Helper()
	svc, err := client.CoreV1().Services(namespace).Get(v.Context(), app, metav1.GetOptions{})
	if err != nil {
		v.Fatal(err)
	}
	frontend := net.JoinHostPort(svc.Spec.ClusterIP, "80")
	if connected, failed := v.connect(svc.Spec.ClusterIP); connected == 0 || failed > 0 {
		v.Fatalf("before the fault %d connections to %s succeed, %d fail", connected, frontend, failed)
	}
	for range 5 {
		broken := v.breakEndpoint()
		r := svcproxy(v.T, "trace", app, "--node", v.node, "-o", "json")
		connected, failed := v.connect(svc.Spec.ClusterIP)
		if !broken() {
			continue
		}
		if connected == 0 || failed == 0 {
			v.Fatalf("without an endpoint's translation %d connections succeed, %d fail; the trace says %v\n%s", connected,
				failed, codes(&r.report), r)
		}
		wrong := 0
		for i := range r.report.Nodes[0].Paths {
			if p := &r.report.Nodes[0].Paths[i]; p.Frontend.Kind == "ClusterIP" && p.Verdict == report.Mismatch {
				wrong++
			}
		}
		if r.code != 1 || r.report.Verdict != report.Mismatch || wrong < 2 || len(codes(&r.report)) == 0 {
			v.Errorf("%d of %d connections fail\n%s", failed, connected+failed, r)
		}
		v.Logf("%d of %d connections fail: %v", failed, connected+failed, codes(&r.report))
		// In its first sync a kube-proxy of these versions keeps the chains of endpoints that are there, whatever is in them
		// (pkg/proxy/nftables/proxier.go of 1.33 and 1.35, epChainSkipUpdate): to restart it is not enough.
		if v.mode == "nftables" && v.minor >= 33 && v.minor < 37 {
			onNode(v.T, v.node, nil, "/usr/sbin/nft", "delete", "table", "ip", "kube-proxy")
		}
		restartKubeProxy(v.T, v.node)
		wait(v.T, "all is right again", func() (bool, error) {
			r := svcproxy(v.T, "trace", app, "--node", v.node, "-o", "json")
			v.forget(&r.report)
			return r.code == 0 && r.report.Verdict == report.Match, fmt.Errorf("%s", r)
		})
		return
	}
	v.Fatal("kube-proxy repaired every fault before it was read")
}

// forget removes the connections that the fault has left in the kernel's table, by the command of the finding.
func (v versionNode) forget(r *report.Report) {
	v.Helper()
	for _, f := range r.Nodes[0].Findings {
		if f.Code == judge.ConntrackStale {
			words := strings.Fields(f.Commands[0].Line) // the tests' pod has no shell
			onNode(v.T, v.node, nil, append([]string{"/usr/sbin/" + words[0]}, words[1:]...)...)
		}
	}
}

var (
	nftEndpoint = regexp.MustCompile(`(?m)^\tchain (endpoint-\S+-` + namespace + `/` + app + `/tcp/http__\S+) \{.*\n` +
		`(?:\t\t.*\n)*\t\t.*dnat to `)
	// Since 1.37 the chain of the Service translates by itself.
	nftService = regexp.MustCompile(`(?m)^\tchain (service-\S+-` + namespace + `/` + app + `/tcp/http) \{.*\n` +
		`(?:\t\t.*\n)*?\t\t(.* dnat ip to numgen .* 0 : )[0-9.]+( \. .*) # handle (\d+)\n`)
)

// breakEndpoint takes translations to endpoints away; broken tells whether they are still gone.
func (v versionNode) breakEndpoint() (broken func() bool) {
	v.Helper()
	if v.mode == "nftables" {
		return v.breakNFT()
	}
	at := siteOf(v.T, v.node)
	// The last one: after the chain of another one the rules behind it would still choose an endpoint.
	_, rules := at.endpointRules()
	words := strings.Fields(rules[len(rules)-1])
	chain := words[len(words)-1]
	last := strings.Count(at.run(at.program, "-t", "nat", "-S", chain), "\n-A ")
	at.run(at.program, "-t", "nat", "-D", chain, strconv.Itoa(last))
	return func() bool { return !strings.Contains(at.run(at.program, "-t", "nat", "-S", chain), "DNAT") }
}

// breakNFT empties the chains of all endpoints but one, or has the rule of the Service name the address of nobody in
// the place of one. Of an empty chain the packet is rejected and comes again, and may meet another endpoint then: with
// one chain empty, few connections would fail.
func (v versionNode) breakNFT() (broken func() bool) {
	v.Helper()
	const nft, nobody = "/usr/sbin/nft", "198.51.100.9"
	table := []string{"ip", "kube-proxy"}
	run := func(words ...string) string { return onNode(v.T, v.node, nil, append([]string{nft}, words...)...) }
	listed := run(append([]string{"-a", "list", "table"}, table...)...)
	if all := nftEndpoint.FindAllStringSubmatch(listed, -1); len(all) > 1 {
		for _, m := range all[1:] {
			run(slices.Concat([]string{"flush", "chain"}, table, m[1:])...)
		}
		return func() bool {
			return !strings.Contains(run(slices.Concat([]string{"list", "chain"}, table, all[1][1:])...), "dnat")
		}
	}
	m := nftService.FindStringSubmatch(listed)
	if m == nil {
		v.Fatalf("no rule translates to the Service's endpoints:\n%s", listed)
	}
	chain := slices.Concat(table, m[1:2])
	run(slices.Concat([]string{"replace", "rule"}, chain, []string{"handle", m[4]}, strings.Fields(m[2]+nobody+m[3]))...)
	return func() bool {
		return strings.Contains(run(slices.Concat([]string{"list", "chain"}, chain)...), nobody)
	}
}

// connections are opened at once: of so many one of three endpoints is left out once in 200,000 times.
const connections = 30

// connect opens connections from the node and counts those that are answered within five seconds.
func (v versionNode) connect(address string) (connected, failed int) {
	v.Helper()
	script := fmt.Sprintf(`for i in $(seq %d); do
	(timeout 5 bash -c 'exec 3<>/dev/tcp/%s/80 && read -r answer <&3 && test -n "$answer"' 2>/dev/null &&
		echo ok || echo failed) &
done; wait`, connections, address)
	out, err := exec.CommandContext(v.Context(), os.Getenv("E2E_CLUSTER"), "in", v.node, "bash", "-c", script).Output()
	if err != nil {
		v.Fatal(err)
	}
	connected, failed = strings.Count(string(out), "ok\n"), strings.Count(string(out), "failed\n")
	if connected+failed != connections {
		v.Fatalf("of %d connections the node says:\n%s", connections, out)
	}
	return connected, failed
}

// live has the plugin open connections itself, and the kernel tell of every rule that they met.
func (v versionNode) live() {
	v.Helper()
	const probes = 30
	r := svcproxy(v.T, "trace", app+"-dual", "--node", v.node, "--from", "node", "--live", "--probes", fmt.Sprint(probes),
		"-o", "json")
	paths := observed(&r.report, "node")
	if r.code != 0 || len(paths) != 4 { // TCP and UDP, IPv4 and IPv6
		v.Fatalf("%d paths\n%s", len(paths), r)
	}
	for _, p := range paths {
		if o := p.Observed; o == nil || o.Connected != probes || o.Error != "" || len(o.Endpoints) != replicas {
			v.Errorf("%s/%s: %+v", p.Frontend.Address, p.Frontend.Protocol, o)
			continue
		}
		if problem := confirmed(p); problem != "" {
			v.Errorf("%s/%s: %s", p.Frontend.Address, p.Frontend.Protocol, problem)
		}
	}
}
