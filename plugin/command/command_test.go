// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/plugin/print"
	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// broken is a snapshot of one node with three faults in it.
const broken = "../../examples/broken-node"

// runPlugin runs the plugin as a person without a kubeconfig does: that of whoever runs the tests must not decide on
// the namespace.
func runPlugin(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runWith(t, filepath.Join(t.TempDir(), "none"), args...)
}

// runWith runs the plugin with a kubeconfig.
func runWith(t *testing.T, kubeconfig string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig)
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	code = Main(t.Context(), args, streams, System{})
	return code, out.String(), errOut.String()
}

// twoNodes is the snapshot with a second node, whose files are the first one's.
func twoNodes(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	err := os.CopyFS(filepath.Join(dir, "nodes", "worker-2"), os.DirFS(filepath.Join(broken, "nodes", "worker-1")))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExitCodes(t *testing.T) {
	two := twoNodes(t)
	for _, tt := range []struct {
		args   string
		code   int
		stdout string // the last line, or its beginning
		stderr string
	}{
		{
			"trace web -n shop --snapshot " + broken, run.ExitMismatch,
			"MISMATCH: 2 of 2 paths of shop/web on worker-1 are wrong", "",
		},
		{"trace svc/web:http -n shop --snapshot " + broken, run.ExitMismatch, "MISMATCH: ", ""},
		{"trace frontend -n shop --snapshot " + broken, run.ExitRight, "MATCH: ", ""},
		{"trace batch -n shop --snapshot " + broken, run.ExitRight, "BY DESIGN: ", ""},
		{
			"trace admin -n shop --snapshot " + broken, run.ExitRight,
			"MATCH: all 5 paths of shop/admin on worker-1 are right (1 by design)", "",
		},
		{"trace 10.96.21.191 --snapshot " + broken, run.ExitMismatch, "MISMATCH: ", ""},
		{"trace web -n shop -o name --snapshot " + broken, run.ExitMismatch, "node/worker-1", ""},
		{
			"verify -A --snapshot " + broken, run.ExitMismatch, "MISMATCH: 8 of 27 paths of 8 Services on worker-1 are wrong",
			"",
		},
		{"verify -A --snapshot " + broken + " -o name", run.ExitMismatch, "service/shop/web", ""},
		{
			"verify -n kube-system --snapshot " + broken, run.ExitRight,
			"MATCH: all 4 paths of 1 Service in namespace kube-system on worker-1 are right", "",
		},
		{"verify web frontend -n shop --snapshot " + broken, run.ExitMismatch, "MISMATCH: ", ""},
		{"verify frontend batch -n shop --snapshot " + broken, run.ExitRight, "MATCH: ", ""},
		{
			"trace frontend -n shop --snapshot " + two, run.ExitNotInspected,
			"UNKNOWN: 1 of 2 nodes could not be inspected, so nothing is claimed",
			"error: node worker-2 was not inspected: ip-addr.json has none of the Node's addresses",
		},
		{
			"trace web -n shop --snapshot " + two, run.ExitMismatch,
			"MISMATCH: 2 of 2 paths of shop/web on worker-1 are wrong; 1 of 2 nodes not inspected",
			"error: node worker-2 was not inspected",
		},
		{"trace frontend -n shop --node worker-1 --snapshot " + two, run.ExitRight, "MATCH: ", ""},
		{"trace frontend -n shop -l kubernetes.io/hostname=worker-1 --snapshot " + two, run.ExitRight, "MATCH: ", ""},
		{"verify -A --all-nodes --snapshot " + two, run.ExitMismatch, "MISMATCH: ", "error: node worker-2 was not inspected"},
		{
			"trace frontend -n shop -o json --snapshot " + two, run.ExitNotInspected, "}",
			"error: node worker-2 was not inspected",
		},
		{"resolve web -n shop --snapshot " + broken, run.ExitRight, "3 of 4 endpoints of shop/web are used", ""},
		{
			"resolve web -n shop --node worker-1 --snapshot " + broken, run.ExitRight,
			"3 of 4 endpoints of shop/web are used from worker-1", "",
		},
		{"resolve 10.96.21.191:80 -o name --snapshot " + broken, run.ExitRight, "service/shop/web", ""},
		{
			"resolve web -n shop --snapshot " + broken + " -o jsonpath={.dns.name}", run.ExitRight, "web.shop.svc.cluster.local",
			"",
		},
		{"mode --snapshot " + broken, run.ExitRight, "MATCH: iptables (nft) on 1 node", ""},
		{"mode worker-1 --snapshot " + broken + " -o jsonpath={.nodes[*].mode.actual}", run.ExitRight, "iptables", ""},
		{
			"mode --snapshot " + two, run.ExitNotInspected, "UNKNOWN: iptables (nft) on 1 node, 1 node not inspected",
			"error: node worker-2 was not inspected",
		},
		{
			"mode --snapshot " + two + " -o name", run.ExitNotInspected, "node/worker-2",
			"error: node worker-2 was not inspected",
		},
		{"version", run.ExitRight, "kubectl-svcproxy ", ""},
		{"", run.ExitRight, "", ""},
		{"--help", run.ExitRight, "", ""},
		{"trace --help", run.ExitRight, "", ""},
		{"options", run.ExitRight, "", ""},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := runPlugin(t, strings.Fields(tt.args)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, tt.code, stderr)
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, tt.stdout) {
				t.Errorf("the last line is %q, want %q", last, tt.stdout)
			}
			if tt.stderr == "" && strings.Contains(stderr, "error") || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("stderr: got %q, want %q", stderr, tt.stderr)
			}
		})
	}
}

// Bad input ends with code 2, one sentence on stderr and nothing on stdout.
func TestBadInput(t *testing.T) {
	two := twoNodes(t)
	cut := t.TempDir()
	if err := os.CopyFS(cut, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(filepath.Join(cut, "cluster", "services.yaml"), []byte("kind: PodList\nitems: []\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	nodeless := t.TempDir()
	if err := os.CopyFS(filepath.Join(nodeless, "cluster"), os.DirFS(filepath.Join(broken, "cluster"))); err != nil {
		t.Fatal(err)
	}
	shop := " -n shop --snapshot " + broken
	for _, tt := range []struct{ args, want string }{
		{"web", `"web" is not a command; to trace a Service: kubectl svcproxy trace web`},
		{"trcae web", `"trcae" is not a command: did you mean kubectl svcproxy trace?`},
		{"trace", "trace needs a Service"},
		{"trace a b", "trace takes one Service, and 2 were given (a, b): for several use kubectl svcproxy verify"},
		{"trace web --nope", "unknown flag: --nope; did you mean --node? (see kubectl svcproxy trace --help)"},
		{"trace web --node", "flag needs an argument: --node"},
		{"trace web", "no cluster is configured: set KUBECONFIG"},
		{"verify -A", "no cluster is configured"},
		{"resolve web", "no cluster is configured"},
		{
			"trace deploy/web" + shop, "web-7c9d8f6b5d-zc8td, so that it is not known whether there is a pod of " +
				"deployment/web in namespace shop; did you mean service/shop/web?",
		},
		{"trace wbe" + shop, `service "wbe" not found in namespace "shop"; did you mean web?`},
		{
			"trace web --snapshot " + broken,
			`service "web" not found in namespace "default"; there is one in namespace shop: add -n shop`,
		},
		{"trace web:81" + shop, "service shop/web has no port 81: it has http 80/TCP"},
		{"trace 1.2.3.4" + shop, "no Service has the address 1.2.3.4"},
		{"trace web -n shop --snapshot /does/not/exist", "/does/not/exist"},
		{"trace web -n shop --snapshot " + cut, `it holds kind "PodList", where a List of Service was expected`},
		{"trace web -n shop --snapshot " + nodeless, "holds no node"},
		{"trace web --node nope" + shop, `node "nope" is not in the snapshot: it holds worker-1`},
		{"trace web --node=" + shop, "--node is empty"},
		{"trace web --node worker-1 --all-nodes" + shop, "exclude one another"},
		{"trace web -l a=b --all-nodes" + shop, "exclude one another"},
		{"trace web -l a=b" + shop, `--selector "a=b" selects no node of the snapshot: it holds worker-1`},
		{"trace web -l a,,=" + shop, `--selector "a,,="`},
		{"trace web -o jsn" + shop, `-o "jsn" is not an output format: it may be table, wide, json`},
		{"trace web --color alway" + shop, `--color "alway": it may be auto, always, never; did you mean always?`},
		{"trace web -o jsonpath={.a" + shop, "-o jsonpath: parsing jsonpath"},
		{"trace web -o jsonpath={.a} --allow-missing-template-keys=false" + shop, "a is not found"},
		{"trace web --from nowhere" + shop, `--from "nowhere" is not pod, pod/NAME`},
		{"trace web --from pod/nope" + shop, `there is no pod "nope" in namespace "shop"`},
		{"trace web --from fd00::1" + shop, "can send in IPv6 only, and service shop/web has addresses in IPv4"},
		{"trace web --kubeconfig /does/not/exist --snapshot " + broken, "/does/not/exist"},
		{"verify -A web" + shop, "-A verifies every Service"},
		{"verify nope" + shop, `service "nope" not found`},
		{
			"verify -n empty --snapshot " + broken,
			`there is no Service in namespace "empty": give -A for all, or -n with one of default, kube-system, shop`,
		},
		{"resolve web --node nope" + shop, `there is no node "nope": there is worker-1`},
		{"resolve web --node worker-1,worker-2 -n shop --snapshot " + two, "resolve shows the view of one node"},
		{"resolve", "resolve needs a Service"},
		{"trace web --snapshot=", "--snapshot is empty"},
		{"trace web --local" + shop, "--snapshot and --local exclude one another"},
		{"trace web --image x:y" + shop, "--image is about helper pods, and with --snapshot there is none"},
		{"trace web --local --keep", "--keep is about helper pods, and with --local there is none"},
		{"trace web --local --all-nodes", "--local reads this machine, which is one node"},
		{"trace web --dry-run=server", `--dry-run "server": it may be none, client`},
		{"trace web --parallel 0", "--parallel 0: give at least 1"},
		{"trace web --timeout 10ms", "--timeout 10ms is too short"},
		{"trace web --timeout soon", `--timeout "soon": a duration, such as 30s, 5m or 1h, was expected`},
		{
			"trace web --server https://127.0.0.1:1 --security-profile root",
			`"root" is not a security profile: use privileged or netadmin`,
		},
		{"trace web --server https://127.0.0.1:1 --image-pull-policy Often", `"Often" is not an image pull policy`},
		{"trace web --server https://127.0.0.1:1 --helper-namespace a/b", `"a/b" is not a valid name of a namespace`},
		{"dump", "dump needs a file to write"},
		{"dump -o x.zip --node n", `-o "x.zip": dump writes a gzipped tar archive`},
		{"dump -o x.tgz", "dump needs to know which nodes"},
		{"dump web -o x.tgz", "dump takes no argument, and got web"},
		{"dump -o x.tgz --all-nodes --snapshot " + broken, "dump reads the nodes of a cluster: it has no --snapshot"},
		{"dump -o x.tgz --all-nodes", "no cluster is configured"},
		{"program web --node n --allow node,loopback", `--allow "loopback": it may be elsewhere, metadata, node, api-server`},
		{"program web --local --dry-run", "no cluster is configured"},
		{"program web --local --dry-run=server", "no cluster is configured"},
		{"program web --local --dry-run=client", "--dry-run is about helper pods, and with --local there is none"},
		{"program web --local --dry-run=maybe", `--dry-run "maybe": it may be none, client, server`},
		{"cleanup now", "cleanup takes no argument, and got now"},
		{"cleanup", "no cluster is configured"},
		{"version now", "version takes no argument"},
		{"version -o xml", "it may be json or yaml"},
		{"options now", "unknown command"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := runPlugin(t, strings.Fields(tt.args)...)
			if code != run.ExitUsage || stdout != "" {
				t.Errorf("exit code %d and stdout %q, want %d and nothing", code, stdout, run.ExitUsage)
			}
			if !strings.HasPrefix(stderr, "error: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) ||
				strings.Contains(stderr, "error: error") {
				t.Errorf("stderr: got %q, want one line with %q", stderr, tt.want)
			}
		})
	}
}

// An API server that does not answer is nothing that the person got wrong: nothing was inspected.
func TestNoAPIServer(t *testing.T) {
	for _, args := range []string{
		"trace web", "verify -A", "resolve web", "dump -o x.tgz --all-nodes", "cleanup",
		"program web --local --dry-run",
	} {
		code, stdout, stderr := runPlugin(t, strings.Fields(args+" --server http://127.0.0.1:1")...)
		if code != run.ExitNotInspected || stdout != "" || !strings.HasPrefix(stderr, "error: ") ||
			strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "connection refused") {
			t.Errorf("%s: got %d, %q and %q", args, code, stdout, stderr)
		}
	}
}

func TestInterrupted(t *testing.T) {
	for _, args := range []string{"trace web -n shop --snapshot " + broken, "verify -A --snapshot " + broken} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		// The one node may have been judged before the interrupt is seen; then the result counts.
		code := Main(ctx, strings.Fields(args), streams, System{})
		if code != run.ExitInterrupted && code != run.ExitMismatch {
			t.Errorf("%s: exit code %d, want %d", args, code, run.ExitInterrupted)
		} else if code == run.ExitInterrupted && (out.Len() > 0 || errOut.String() != "error: interrupted\n") {
			t.Errorf("%s: got %q and %q", args, out, errOut)
		}
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := exit(ctx, context.Canceled, terminal.NewStream(streams.ErrOut, os.Getenv))
	if code != run.ExitInterrupted || errOut.String() != "error: interrupted\n" {
		t.Errorf("got %d and %q", code, errOut)
	}
}

func TestConclude(t *testing.T) {
	for verdict, want := range map[report.Verdict]int{
		report.Match: run.ExitRight, report.ByDesign: run.ExitRight, report.Mismatch: run.ExitMismatch,
		report.Unknown: run.ExitNotInspected, report.Warning: run.ExitWarning, "Nonsense": run.ExitNotInspected,
	} {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		p, err := print.NewPrinter("name", "", true)
		if err != nil {
			t.Fatal(err)
		}
		env := newEnvironment(streams, System{})
		err = conclude(env, p, &report.Report{Verdict: verdict}, print.View{})
		if code := exit(t.Context(), err, env.errOut); code != want || errOut.Len() > 0 {
			t.Errorf("%s: got %d and %q, want %d", verdict, code, errOut, want)
		}
	}
}

func TestExitIsOneLine(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	code := exit(t.Context(), errors.New("one\n\ttwo"), terminal.NewStream(streams.ErrOut, os.Getenv))
	if code != run.ExitUsage || errOut.String() != "error: one two\n" {
		t.Errorf("got %d and %q", code, errOut)
	}
}

// report runs a command with -o json.
func reportOf(t *testing.T, args string) *report.Report {
	t.Helper()
	code, stdout, stderr := runPlugin(t, append(strings.Fields(args), "-o", "json")...)
	var r report.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%s: exit code %d, %v; stderr: %s", args, code, err, stderr)
	}
	return &r
}

// frontends lists the paths of a report: frontend and origin.
func frontends(r *report.Report) string {
	var out []string
	for _, n := range r.Nodes {
		for _, p := range n.Paths {
			out = append(out, p.Frontend.Kind+" "+p.Frontend.Address+" "+p.Origin.Kind)
		}
	}
	return strings.Join(out, ", ")
}

func TestNotServed(t *testing.T) {
	_, objects := snap.Open(t, broken)
	ref, err := cluster.ParseReference("10.77.0.11:30080")
	if err != nil {
		t.Fatal(err)
	}
	target, err := cluster.Find(objects, "shop", ref)
	if err != nil {
		t.Fatal(err)
	}
	n := report.NodeReport{Node: "worker-1", Verdict: report.ByDesign}
	notServed(&n, &target)
	if len(n.Paths) != 1 || n.Summary.ByDesign != 1 || n.Paths[0].Findings[0].Code != expect.ReasonNotForKubeProxy ||
		!strings.Contains(n.Paths[0].Findings[0].Message, "does not serve NodePort 10.77.0.11:30080") {
		t.Errorf("got %+v", n)
	}
	lost := report.NodeReport{Node: "worker-1", Error: "lost"}
	notServed(&lost, &target)
	if len(lost.Paths) > 0 {
		t.Error("a node that was not inspected got a path")
	}
}
