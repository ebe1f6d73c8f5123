// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfmessages"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// rulesets are the files with rules that are loaded into the kernel, and read from it both with nft and over netlink.
var rulesets = []string{
	"../../trace/nftables/testdata/everything.txt",
	"../../testdata/snapshots/nftables/nodes/node1/nft-ruleset.json",
	"../../testdata/snapshots/real-2node-nftables/nodes/node1/nft-ruleset.json",
	"testdata/more.nft",
}

// loadRules loads a file into this network namespace: what nft lists, or what nft -j lists, in an order in which nft
// takes it.
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
	if dumped, err = nftables.Parse(askKernel(t, nil), nil); err != nil {
		t.Fatal(err)
	}
	return listed, dumped
}

// inBraces are the elements of an anonymous set: nft sorts those of some types by something that is not their value.
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
				lines = append(lines, fmt.Sprintf("%s chain %s: %s\n\t%+v NAT %v ops %v",
					at, c.Name, sortedElements(r.Text), r.Key, r.NAT, kinds))
			}
		}
	}
	return lines
}

// The same rules make the same model, read by nft and read over netlink.
func TestNetlinkIsWhatNFTPrints(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft", "ip") {
		return
	}
	must(t, "ip", "link", "set", "lo", "up")
	must(t, "ip", "link", "add", "eth0", "type", "bridge")
	for _, file := range rulesets {
		capture := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file))))
		t.Run(capture+"/"+filepath.Base(file), func(t *testing.T) {
			loadRules(t, file)
			listed, dumped := readBoth(t)
			want, got := model(listed), model(dumped)
			for i := range want { // nft does not print for which family's packets these are; the kernel says so
				if strings.Contains(want[i], "reject with tcp reset") || strings.Contains(want[i], "ct protocol") {
					want[i] = strings.Replace(want[i], "op.UnknownMatch ", "", 1)
				}
			}
			for i := range max(len(want), len(got)) {
				if i >= len(want) || i >= len(got) || want[i] != got[i] {
					t.Errorf("line %d:\nover netlink %s\nnft          %s", i+1, at(got, i), at(want, i))
				}
			}
			t.Logf("%d lines of %s compared", len(want), file)
		})
	}
}

// nft 1.0.6 lists "meta protocol ip6 ct protocol tcp" of a table inet without its first condition. Over netlink it is
// there.
func TestFamilyBeforeTheProtocolOfAConnection(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft") {
		return
	}
	for _, c := range []struct{ rule, want string }{
		{"meta protocol ip6 ct protocol tcp drop", "meta protocol ip6 ct protocol tcp drop"},
		{"meta nfproto ipv4 ct original protocol tcp drop", "meta nfproto ipv4 ct protocol tcp drop"},
		{"ct protocol tcp drop", "ct protocol tcp drop"},
	} {
		must(t, "nft", "flush", "ruleset")
		feed(t, "table inet t { chain c { "+c.rule+"; }; }\n", "nft", "-f", "-")
		_, dumped := readBoth(t)
		r := dumped[0].Chains[0].Rules[0]
		if r.Text != c.want {
			t.Errorf("%s: over netlink %s", c.rule, r.Text)
		}
		if slices.ContainsFunc(r.Ops, func(o netfilter.Op) bool { return fmt.Sprintf("%T", o) == "op.UnknownMatch" }) {
			t.Errorf("%s: a condition that is not known", c.rule)
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

// The report about a node is the same from both, with every step of every path.
func TestNetlinkIsJudgedAsWhatNFTPrints(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft", "ip") {
		return
	}
	for _, name := range []string{"nftables", "real-2node-nftables"} {
		objects, node := snap.Node(t, "../../testdata/snapshots/"+name, "node1")
		loadRules(t, "../../testdata/snapshots/"+name+"/nodes/node1/"+snapshot.NFTFile)
		listing := []byte(must(t, "nft", "-j", "list", "ruleset"))
		dumped := askKernel(t, nil)
		reports := make([]string, 2)
		for i, n := range []*snapshot.Node{
			node.With(snapshot.NFTFile, listing),
			node.With(snapshot.NFTFile, dumped),
		} {
			r := judge.Files(objects, n, judge.Request{Matching: true})
			text, err := json.MarshalIndent(r, "", " ")
			if err != nil || r.Error != "" || len(r.Paths) < 4 {
				t.Fatal(len(r.Paths), r.Error, err)
			}
			reports[i] = string(text)
		}
		for i, want := range strings.Split(reports[0], "\n") {
			if got := at(strings.Split(reports[1], "\n"), i); got != want {
				t.Fatalf("%s, line %d of the report:\nover netlink %s\nnft          %s", name, i+1, got, want)
			}
		}
		t.Logf("%s: the reports are the same, %d bytes", name, len(reports[0]))
	}
}

func askKernel(t *testing.T, managed func(family, table string) bool) []byte {
	t.Helper()
	data, err := ruleset(dial(t), managed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func dial(t *testing.T) *netlink.Conn {
	t.Helper()
	conn, err := netlink.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// The rules of iptables-nft, which iptables-save shows, are not requested if that is read, too.
func TestNetlinkLeavesOutWhatIPTablesShows(t *testing.T) {
	if !isolated(t) {
		return
	}
	furnish(t)
	for name, c := range map[string]struct {
		files []string
		less  bool
	}{
		"with iptables-save":    {[]string{snapshot.NFTFile, "iptables-nft-save.txt", "ip6tables-nft-save.txt"}, true},
		"without iptables-save": {[]string{snapshot.NFTFile}, false},
	} {
		data := gather(t, Options{Root: "/", Files: c.files}).data[snapshot.NFTFile]
		tables, err := nftables.Parse(data, nil)
		if err != nil {
			t.Fatal(err)
		}
		rules := map[bool]int{}
		for _, table := range tables {
			for _, chain := range table.Chains {
				rules[table.Name == "mine"] += len(chain.Rules)
			}
		}
		if rules[true] != 1 || (rules[false] == 0) != c.less {
			t.Errorf("%s: %d rules of iptables, %d others", name, rules[false], rules[true])
		}
	}
}

// TestRangesOfNFTAreRead: a table of iptables is read whole where nft has written a range into a chain that is not
// kube-proxy's, and no other table.
func TestRangesOfNFTAreRead(t *testing.T) {
	if !isolated(t) {
		return
	}
	must(t, "iptables-nft", "-A", "FORWARD", "-p", "tcp", "--dport", "1:5", "-j", "DROP")
	must(t, "iptables-nft", "-t", "mangle", "-A", "FORWARD", "-p", "tcp", "!", "--dport", "1:5", "-j", "DROP")
	must(t, "iptables-nft", "-t", "nat", "-N", "KUBE-X")
	must(t, "nft", "add rule ip nat KUBE-X ip saddr 10.0.0.1-10.0.0.5 drop")
	for _, c := range []struct {
		rule, want string
	}{{"", ""}, {"ip saddr 10.0.0.1-10.0.0.5 drop", "filter"}, {"ip saddr > 10.0.0.1 drop", "filter"}} {
		if c.rule != "" {
			must(t, "nft", "flush chain ip filter FORWARD; add rule ip filter FORWARD "+c.rule)
		}
		data := gather(t, Options{
			Root: "/", Files: []string{snapshot.NFTFile, "iptables-nft-save.txt", "ip6tables-nft-save.txt"},
		}).data[snapshot.NFTFile]
		tables, err := nftables.Parse(data, nftables.IPTables)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, table := range tables {
			if len(table.Instead) > 0 {
				got = append(got, table.Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.rule, got, c.want)
		}
	}
}

// A ruleset that changes all the time is not taken for one that was read.
func TestNetlinkDumpOfWhatIsGone(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "nft") {
		return
	}
	must(t, "nft", "add", "table", "ip", "t")
	conn := dial(t)
	var elements elementQueries
	gone, err := elements.query(unix.NFPROTO_IPV4, "t", nfmessages.OutlineSet{Name: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := appendDump(conn, nil, gone.Request); !errors.Is(err, errChanged) {
		t.Errorf("%v, want errChanged", err)
	}
	if n, err := conn.Generation(); err != nil || n == 0 {
		t.Errorf("afterwards: generation %d, %v", n, err)
	}
}

// The elements of maps whose keys are random or counted numbers are requested by their keys; a map that lacks one of
// the keys is read like any other.
func TestElementsByTheirKeys(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	cmd := exec.CommandContext(t.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(`table ip t {
	chain a { }
	chain b { }
	chain c {
		numgen inc mod 4 vmap { 0 : jump a, 2 : jump b }
		dnat to numgen random mod 3 map { 0 : 10.0.0.1, 1 : 10.0.0.2, 2 : 10.0.0.3 }
		numgen random mod 2 vmap { 0 : jump a, 1 : goto b }
		meta mark { 0x0, 0x1 } accept
	}
}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conn := dial(t)
	answers, err := objects(conn)
	if err != nil {
		t.Fatal(err)
	}
	tables, _, err := nfmessages.Outline(answers, binary.NativeEndian, nil)
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	queries, err := queriesFor(tables)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, q := range queries {
		sizes = append(sizes, q.keys)
	}
	byKey := slices.DeleteFunc(queries, func(q query) bool { return q.keys == 0 })
	if !slices.Equal(sizes, []int{0, 0, 2, 3, 2}) {
		t.Errorf("%v elements are to be requested by their keys", sizes)
	}
	if err := conn.SetReceiveBuffer(keysBuffer); err != nil {
		t.Fatal(err)
	}
	got, incomplete, err := countedElements(conn, nil, byKey)
	if err != nil || !slices.Equal(incomplete, []int{0}) {
		t.Errorf("incomplete are %v, %v; want the first map", incomplete, err)
	}
	if n := bytes.Count(got, []byte("__map")); n != 5 {
		t.Errorf("%d elements were found, want 5", n)
	}
	listed, dumped := readBoth(t)
	for _, tables := range [][]*netfilter.Table{listed, dumped} {
		(&netfilter.Ruleset{Tables: tables}).Link()
	}
	if want, got := model(listed), model(dumped); !slices.Equal(want, got) {
		t.Errorf("over netlink %q\nnft %q", got, want)
	}
}
