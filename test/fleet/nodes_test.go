// SPDX-License-Identifier: Apache-2.0

//go:build fleet

package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// captured is the node of which all nodes of the fleet are copies: 5,000 Services with 4 endpoints each.
const captured = "../../testdata/snapshots/scale-iptables"

// What the captured cluster has.
const (
	capturedServices = 5000
	namespace        = "scale"
	serviceCIDR      = "10.96.0.0/16"
)

// faultyService is the Service with a fault on some nodes.
const faultyService = "svc-00042"

// state is what is wrong with a node.
type state int

const (
	right     state = iota
	broken          // the rule to one endpoint of faultyService is gone
	notReady        // its kubelet does not answer, and its Node says so
	unwatched       // no agent has published anything of it
)

// node is a node of the fleet.
type node struct {
	name  string
	i     int
	state state
}

// fleetOf are n nodes: one in 27 is broken, one in 25 not ready, and one in 333 has no agent. The one with number 10 is
// behind the one with number 9 in every list.
func fleetOf(n int) []node {
	var out []node
	for i := 1; i <= n; i++ {
		x := node{name: "worker-" + strconv.Itoa(i), i: i}
		switch {
		case i%27 == 3:
			x.state = broken
		case i%25 == 7:
			x.state = notReady
		case i%333 == 11:
			x.state = unwatched
		}
		out = append(out, x)
	}
	return out
}

// named are the names of the nodes in a state.
func named(fleet []node, states ...state) []string {
	var out []string
	for _, n := range fleet {
		if slices.Contains(states, n.state) {
			out = append(out, n.name)
		}
	}
	return out
}

// address is a node's, in the network of the captured one.
func (n *node) address() string { return fmt.Sprintf("10.77.%d.%d", 1+n.i/250, 1+n.i%250) }

// texts are the captured node's files with the rules of some Services alone, of a node that is right and of one that
// is broken. Nodes differ in a few words of them.
type texts map[state]map[string]string

func readTexts(t *testing.T, services int) texts {
	t.Helper()
	s, err := snapshot.Open(captured)
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Node("node1")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string {
		data, ok, err := n.File(name)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
		return string(data)
	}
	rules := ofServices(file(snapshot.IPTablesFile), services)
	files := func(rules string) map[string]string {
		return map[string]string{
			snapshot.IPTablesNFTFile: rules, snapshot.ProxyConfigFile: file(snapshot.ProxyConfigFile),
			snapshot.MetricsFile: file(snapshot.MetricsFile),
		}
	}
	return texts{right: files(rules), broken: files(withoutEndpoint(t, rules))}
}

// number is that of a Service by its name; -1 of one that is not of the series.
func number(service string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(service, "svc-"))
	if err != nil {
		return -1
	}
	return n
}

// ofServices keeps of iptables-save the rules of the first Services, and the chains that these lead to.
func ofServices(rules string, services int) string {
	if services >= capturedServices {
		return rules
	}
	const comment = `--comment "` + namespace + "/"
	keep := func(line string) bool {
		_, of, ok := strings.Cut(line, comment)
		end := strings.IndexAny(of, ` ":`)
		return !ok || number(of[:max(end, 0)]) < services
	}
	lines := slices.DeleteFunc(strings.SplitAfter(rules, "\n"), func(l string) bool { return !keep(l) })
	// Chains below those of Services have no comments: what nothing leads to goes, level by level.
	for range 3 {
		led := map[string]bool{}
		for _, l := range lines {
			words := strings.Fields(l)
			for i, w := range words {
				if w == "-j" && i+1 < len(words) {
					led[words[i+1]] = true
				}
			}
		}
		lines = slices.DeleteFunc(lines, func(l string) bool {
			chain := ""
			if after, ok := strings.CutPrefix(l, ":"); ok {
				chain, _, _ = strings.Cut(after, " ")
			} else if _, after, ok := strings.Cut(l, "-A "); ok {
				chain, _, _ = strings.Cut(after, " ")
			}
			ofService := strings.HasPrefix(chain, "KUBE-SVC-") || strings.HasPrefix(chain, "KUBE-SEP-") ||
				strings.HasPrefix(chain, "KUBE-EXT-")
			return ofService && !led[chain]
		})
	}
	return strings.Join(lines, "")
}

// withoutEndpoint removes the rule to the first endpoint of faultyService.
func withoutEndpoint(t *testing.T, rules string) string {
	t.Helper()
	_, rule, ok := strings.Cut(rules, `--comment "`+namespace+"/"+faultyService+` cluster IP"`)
	if !ok {
		t.Fatal("there is no rule of " + faultyService)
	}
	line, _, _ := strings.Cut(rule, "\n")
	chain := line[strings.LastIndexByte(line, ' ')+1:]
	before, after, ok := strings.Cut(rules, "-A "+chain+" -m statistic")
	if !ok {
		t.Fatalf("chain %s has no rule to an endpoint", chain)
	}
	before = before[:strings.LastIndexByte(before, '\n')+1]
	_, after, _ = strings.Cut(after, "\n")
	return before + after
}

// collect emits the files of a node, as the helper that reads a kernel does.
func (x texts) collect(of *node, o collect.Options, emit func(collect.File) error) error {
	for name, text := range x.files(of) {
		if o.Files != nil && !slices.Contains(o.Files, name) {
			continue
		}
		if err := emit(collect.File{Name: name, Data: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}

// files are the files of a node.
func (x texts) files(of *node) map[string]string {
	files := x[right]
	if of.state == broken {
		files = x[broken]
	}
	out := make(map[string]string, len(files))
	for name, text := range files {
		if name == snapshot.ProxyConfigFile {
			text = strings.ReplaceAll(text, "node1", of.name)
		}
		out[name] = text
	}
	return out
}
