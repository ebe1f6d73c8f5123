// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/test/isolate"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
)

// rulesets are the files with rules that are loaded into the kernel, and read from it in both ways.
var rulesets = []string{
	"../../trace/nftables/testdata/everything.txt",
	"../../testdata/snapshots/nftables/nodes/node1/nft-ruleset.json",
	"../../testdata/snapshots/real-2node-nftables/nodes/node1/nft-ruleset.json",
	"testdata/more.nft",
}

// loadRules loads a file into this network namespace: what nft lists, or what nft -j lists, in an order in which nft takes it.
func loadRules(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	must(t, "nft", "flush", "ruleset")
	if !strings.HasSuffix(file, ".json") {
		feed(t, string(data), "nft", "-f", "-")
		return
	}
	var listed struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal(data, &listed); err != nil {
		t.Fatal(err)
	}
	var commands []any
	for _, kind := range []string{"table", "chain", "set", "map", "rule"} {
		for _, o := range listed.Objects {
			body := o[kind]
			if family, _ := body["family"].(string); body == nil || hasXT(body) || family == "netdev" {
				continue
			}
			if kind == "table" {
				delete(body, "flags") // of which nft 1.0.6 prints the table's name
			}
			commands = append(commands, map[string]any{"add": map[string]any{kind: body}})
		}
	}
	text, err := json.Marshal(map[string]any{"nftables": commands})
	if err != nil {
		t.Fatal(err)
	}
	feed(t, string(text), "nft", "-j", "-f", "-")
}

// hasXT tells whether a rule has a match or target of iptables, which nft cannot load.
func hasXT(body map[string]any) bool {
	list, _ := body["expr"].([]any)
	return slices.ContainsFunc(list, func(x any) bool {
		m, _ := x.(map[string]any)
		_, ok := m["xt"]
		return ok
	})
}

// readBoth reads the kernel's rules by nft and over netlink.
func readBoth(t *testing.T) (listed, dumped []*netfilter.Table) {
	t.Helper()
	listed, err := nftables.Parse([]byte(must(t, "nft", "-j", "list", "ruleset")), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openNetfilter()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	data, err := s.ruleset(nil)
	if err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("KEEP"); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_")+".nl"), data, 0o600)
	}
	if dumped, err = nftables.ParseDump(data, nil); err != nil {
		t.Fatal(err)
	}
	return listed, dumped
}

// inBraces are the elements of a set that has no name: nft sorts those of some types by what is none of their values.
var inBraces = regexp.MustCompile(`\{ [^{}]* \}`)

func sortedElements(text string) string {
	return inBraces.ReplaceAllStringFunc(text, func(s string) string {
		list := strings.Split(strings.Trim(s, "{ }"), ", ")
		slices.Sort(list)
		return "{ " + strings.Join(list, ", ") + " }"
	})
}

// model writes tables as lines of text.
func model(tables []*netfilter.Table) (lines []string) {
	for _, table := range tables {
		at := fmt.Sprintf("%s %s", table.Family, table.Name)
		for _, s := range table.Sets {
			var elements []string
			s.Each(func(e netfilter.SetElement) {
				elements = append(elements, fmt.Sprintf("%s set %s: %+v", at, s.Name(), e))
			})
			slices.Sort(elements)
			lines = append(lines, elements...)
			lines = append(lines, fmt.Sprintf("%s set %s: %d elements", at, s.Name(), len(elements)))
		}
		for _, c := range table.Chains {
			lines = append(lines, fmt.Sprintf("%s chain %s %+v %q", at, c.Name, c.Base, c.Unread))
			for _, r := range c.Rules {
				kinds := make([]string, len(r.Ops))
				for i, o := range r.Ops {
					kinds[i] = fmt.Sprintf("%T", o)
				}
				lines = append(lines, fmt.Sprintf("%s chain %s: %s\n\t%+v NAT %v ops %v", at, c.Name, sortedElements(r.Text), r.Key, r.NAT, kinds))
			}
		}
	}
	return lines
}

// The same rules make the same model, read by nft and read over netlink.
func TestNetlinkIsWhatNFTPrints(t *testing.T) {
	if !isolate.Process(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft", "ip") {
		return
	}
	must(t, "ip", "link", "set", "lo", "up")
	must(t, "ip", "link", "add", "eth0", "type", "bridge")
	for _, file := range rulesets {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file))))+"/"+filepath.Base(file), func(t *testing.T) {
			loadRules(t, file)
			listed, dumped := readBoth(t)
			want, got := model(listed), model(dumped)
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Errorf("line %d:\nover netlink %s\nnft          %s", i+1, at(got, i), at(want, i))
				}
			}
			t.Logf("%d lines of %s compared", len(want), file)
		})
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}
