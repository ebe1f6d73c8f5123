// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// scene is a node with something wrong.
type scene struct {
	name    string
	cluster *snapshot.Cluster
	node    string
	files   map[string][]byte
	asked   *report.NodeReport // of the path that was recorded; nil where there is none
}

func (s *scene) judge() report.NodeReport {
	return Files(s.cluster, snapshot.NewNode(s.node, s.files),
		Request{Backwards: true, Matching: true, PerPathService: true})
}

// scenes calls f with every fault that was recorded, that other tests make of captured nodes, or that is an example;
// and with those that a harmful command was printed for.
func scenes(t *testing.T, f func(s scene)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recordedFaults, "*", "*.fault"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fault is recorded: %v", err)
	}
	for _, file := range files {
		recorded, err := faultdata.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		c, n := openFault(t, filepath.Join(filepath.Dir(file), "healthy"), recorded, nil)
		f(scene{
			name:    filepath.Base(filepath.Dir(file)) + "/" + strings.TrimSuffix(filepath.Base(file), ".fault"),
			cluster: c, node: recorded.Node, files: snap.Files(t, n), asked: judgeOpened(t, recorded, c, n),
		})
	}
	for _, of := range []struct {
		base   string
		faults []fault
	}{
		{"iptables", slices.Concat(faults(openCaptured(t, "iptables")), answerFaults(), casesFaults(), endsBeforeFaults(),
			orphanFaults(), harmedOnce())},
		{"nftables", append(nftFaults(), fault{
			name: "chains of endpoints are empty, which a restart keeps",
			do: func(w *capturedNode) {
				w.says("v1.34.1")
				w.emptied("endpoint-", "/8080")
			},
		})},
		{"ipvs", ipvsFaults()},
	} {
		for _, x := range of.faults {
			w := openCaptured(t, of.base)
			if x.base != "" {
				w = openCaptured(t, x.base)
			}
			x.do(w)
			f(scene{name: of.base + ": " + x.name, cluster: w.cluster, node: "node1", files: w.files})
		}
	}
	c, n := openSnapshot(t, "examples/broken-node", "worker-1")
	f(scene{name: "examples/broken-node", cluster: c, node: "worker-1", files: snap.Files(t, n)})
	f(wrongSlice(t, "recorded: an EndpointSlice says that an address of this node's pods is of another node"))
}

// harmedOnce are faults for which a command was printed that harms all pods, or changes what is kube-proxy's own.
func harmedOnce() []fault {
	return []fault{
		{name: "a zone for one direction, so that kube-proxy's rule drops answers", do: func(w *capturedNode) {
			w.raw("-A PREROUTING -s 10.244.1.19/32 -j CT --zone 5")
		}},
		{name: "someone's rule in KUBE-FORWARD drops answers", do: func(w *capturedNode) {
			w.first(v4, "filter", "KUBE-FORWARD", "-s 10.244.1.19/32 -j DROP")
		}},
	}
}

// wrongSlice is a healthy node, and an EndpointSlice by which an address of the node's own pod network, that no pod
// has, is an endpoint of another node.
func wrongSlice(t *testing.T, name string) scene {
	t.Helper()
	recorded, err := faultdata.Read(filepath.Join(recordedFaults, "iptables-neighbours",
		"an-endpoint-of-another-node-is-routed-to-the-bridge.fault"))
	if err != nil {
		t.Fatal(err)
	}
	recorded.Changes = nil
	c, n := openFault(t, filepath.Join(recordedFaults, "iptables-neighbours", "healthy"), recorded, nil)
	var cidr string
	for _, o := range c.Nodes {
		if o.Name == recorded.Node {
			cidr = o.Spec.PodCIDR
		}
	}
	free := strings.TrimSuffix(cidr, "0/24") + "222"
	old := ""
	for _, s := range c.EndpointSlices {
		if s.Labels[discoveryv1.LabelServiceName] != recorded.Service || s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; e.NodeName != nil && *e.NodeName != recorded.Node {
				old = e.Addresses[0]
			}
		}
	}
	for _, s := range c.EndpointSlices {
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; e.Addresses[0] == old {
				e.Addresses, e.TargetRef = []string{free}, nil
			}
		}
	}
	if old == "" || cidr == "" {
		t.Fatal("no endpoint on another node")
	}
	files := snap.Files(t, n)
	for file, data := range files { // kube-proxy goes by the slice
		if strings.HasSuffix(file, "-save.txt") {
			files[file] = bytes.ReplaceAll(data, []byte(old+"/32"), []byte(free+"/32"))
			files[file] = bytes.ReplaceAll(files[file], []byte(old+":"), []byte(free+":"))
		}
	}
	return scene{
		name: name, cluster: c, node: recorded.Node, files: files,
		asked: judgeOpened(t, recorded, c, snapshot.NewNode(recorded.Node, files)),
	}
}

// looks matches the commands that change nothing.
var looks = regexp.MustCompile(`^(kubectl (-n \S+ )?(get|describe|logs) |kubectl svcproxy (trace|dump) |ps |ss |curl |bpftool (net|cgroup|link) (show|tree)|` +
	`ip6?tables-(nft|legacy) -t \S+ -S |nft -a list |conntrack -[LS]|sysctl (-a|[a-z])|modprobe |echo br_netfilter|` +
	`ip( -6| -4| -d| -br)* (route( get| show|$)|rule$|neigh show|addr show|link( show|$))|bridge (-d link|fdb|vlan) ?show|tc -s |arptables|ebtables)`)

// restarts matches the commands that restart kube-proxy, and those that end what the command program has made: no rule
// of kube-proxy's is gone meanwhile.
var restarts = regexp.MustCompile(`^(kubectl -n \S+ delete pod/kube-proxy-\S+|pkill -x kube-proxy|systemctl restart .*|kubectl svcproxy cleanup .*)$`)

// TestPrintedCommandsHarmNoOtherPath applies each command of each finding to the files of its node, and judges again:
// no path that was not wrong becomes so. testdata/commands.txt has all of them: a new one is to be looked at there.
// SVCPROXY_COMMANDS=write writes it.
func TestPrintedCommandsHarmNoOtherPath(t *testing.T) {
	testutil.Long(t)
	const golden = "testdata/commands.txt"
	var list strings.Builder
	applied, printed := 0, 0
	scenes(t, func(s scene) {
		r := s.judge()
		before := judgedPaths(&r)
		seen := map[string]bool{}
		for _, of := range []*report.NodeReport{&r, s.asked} {
			if of == nil {
				continue
			}
			findings := slices.Clone(of.Findings)
			for i := range of.Paths {
				findings = append(findings, of.Paths[i].Findings...)
			}
			for i := range findings {
				for _, c := range findings[i].Commands {
					if looks.MatchString(c.Line) || seen[findings[i].Code+c.Line] {
						continue
					}
					seen[findings[i].Code+c.Line] = true
					fmt.Fprintf(&list, "%s\n\t%s: %s", s.name, findings[i].Code, c.Line)
					if c.When != "" {
						fmt.Fprintf(&list, "  (%s)", c.When)
					}
					list.WriteByte('\n')
					// One in four in CI.
					printed++
					if restarts.MatchString(c.Line) || !testutil.OneIn(4, printed) {
						continue
					}
					after := s
					after.files = maps.Clone(s.files)
					after.apply(t, shellWords(t, c.Line))
					now := after.judge()
					if now.Error != "" {
						t.Errorf("%s: %s: %s", s.name, c.Line, now.Error)
					}
					applied++
					for path, is := range judgedPaths(&now) {
						if was, had := before[path]; is == report.Mismatch && had && was != is {
							t.Errorf("%s: after %q, of %s, %s is wrong, and was %s", s.name, c.Line, findings[i].Code, path, was)
						}
					}
				}
			}
		}
	})
	if applied < 40 && testutil.EveryFault() || applied < 10 {
		t.Errorf("%d commands were applied", applied)
	}
	if os.Getenv("SVCPROXY_COMMANDS") == "write" {
		if err := os.WriteFile(golden, []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := list.String(); got != string(want) {
		was := strings.Split(string(want), "\n")
		for line := range strings.SplitSeq(got, "\n") {
			if !slices.Contains(was, line) {
				t.Errorf("not in %s: %s", golden, line)
			}
		}
		t.Errorf("%s is not what is printed: look at what is new, then run this with SVCPROXY_COMMANDS=write", golden)
	}
}

// judgedPaths are those of paths.
func judgedPaths(r *report.NodeReport) map[string]report.Verdict {
	out := map[string]report.Verdict{}
	for i := range r.Paths {
		p := &r.Paths[i]
		out[pathKey(p)] = p.Verdict
	}
	return out
}
