// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/ipset"
	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// isolated runs the rest of a test in a network and a mount namespace of its own; true there.
func isolated(t *testing.T) bool {
	t.Helper()
	if !testutil.Isolate(
		t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "iptables-nft-save", "iptables-legacy-save", "nft", "ipset", "conntrack", "ip",
		"mount",
	) {
		return false
	}
	must(t, "mount", "--make-rprivate", "/")
	must(t, "ip", "link", "set", "lo", "up")
	return true
}

func must(t testing.TB, argv ...string) string {
	t.Helper()
	return feed(t, "", argv...)
}

// feed runs a command with a standard input.
func feed(t testing.TB, stdin string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, errOut.String())
	}
	return string(out)
}

// gathered is what Collect handed over.
type gathered struct {
	data   map[string][]byte
	unread map[string]string
}

func gather(t testing.TB, o Options) gathered {
	t.Helper()
	g := gathered{map[string][]byte{}, map[string]string{}}
	err := Collect(t.Context(), o, func(f File) error {
		if !slices.Contains(snapshot.NodeFiles, f.Name) || f.Name == snapshot.UnreadFile {
			t.Errorf("%s is not of the contract", f.Name)
		}
		if g.data[f.Name] != nil || g.unread[f.Name] != "" {
			t.Errorf("%s comes twice", f.Name)
		}
		if f.Unread != "" {
			g.unread[f.Name] = f.Unread
		} else {
			g.data[f.Name] = f.Data
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const (
	legacyRules = "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" +
		":POSTROUTING ACCEPT [0:0]\n:MINE - [0:0]\n-A PREROUTING -p tcp -m tcp --dport 81 -j MINE\n" +
		"-A MINE -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.9.9.9:8080\n" +
		"COMMIT\n"
	nativeRules = "table inet mine {\n chain in {\n  type filter hook input priority 10; policy accept;\n" +
		"  tcp dport 82 drop\n }\n}\n"
	sets = "create mine hash:ip,port family inet\nadd mine 10.0.0.1,tcp:80\n"
)

// furnish makes a node of this namespace: the rules of a real kube-proxy in iptables-nft, some in legacy, in nft itself
// and in sets.
func furnish(t *testing.T) {
	t.Helper()
	captured, err := os.ReadFile(filepath.Join("..", "..", "testdata", "snapshots", "iptables", "nodes", "node1",
		"iptables-save.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// Objects that rules name have to be there first.
	for _, name := range []string{"ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"} {
		if bytes.Contains(captured, []byte(name)) {
			must(t, "nfacct", "add", name)
		}
	}
	feed(t, string(captured), "iptables-nft-restore")
	feed(t, legacyRules, "iptables-legacy-restore")
	feed(t, nativeRules, "nft", "-f", "-")
	feed(t, sets, "ipset", "restore")
	must(t, "ip", "link", "add", "cni0", "type", "bridge")
	must(t, "ip", "link", "set", "cni0", "addrgenmode", "none") // a link-local address would change by itself for a while
	must(t, "ip", "addr", "add", "10.244.1.1/24", "dev", "cni0")
	must(t, "ip", "link", "set", "cni0", "up")
	must(t, "ip", "route", "add", "10.244.2.0/24", "via", "10.244.1.7")
}

// counted is what differs from one moment to the next in what programs print of the same rules: dates and counters.
var counted = regexp.MustCompile(
	`(?m)^#.*\n|^\[\d+:\d+\] | \[\d+:\d+\]$|counter packets \d+ bytes \d+|"packets": \d+, "bytes": \d+`,
)

func bare(text string) string { return counted.ReplaceAllString(text, "") }

// state is what a read must not change.
func state(t *testing.T) map[string]string {
	t.Helper()
	s := map[string]string{
		// The questions to kube-proxy count as packets on the loopback interface, like anybody's: no counters.
		"rules, nft": must(t, "iptables-nft-save"), "rules, legacy": must(t, "iptables-legacy-save"),
		"ruleset": must(t, "nft", "-s", "list", "ruleset"), "sets": must(t, "ipset", "save"),
		"addresses": must(t, "ip", "addr"), "routes": must(t, "ip", "route", "show", "table", "all"),
		"legacy tables, IPv6": must(t, "sh", "-c", "cat /proc/self/net/ip6_tables_names 2>/dev/null || true"),
		"sysctls":             must(t, "sh", "-c", "sysctl -a 2>/dev/null | grep ^net | grep -v nf_conntrack_count"),
	}
	if modules, err := os.ReadFile("/proc/modules"); err == nil {
		s["modules"] = string(modules)
	}
	for name, text := range s {
		s[name] = bare(text)
	}
	return s
}

// A node is read as it is, is the same afterwards, and nobody who holds the lock of iptables keeps it from being read.
func TestCollect(t *testing.T) {
	if !isolated(t) {
		return
	}
	furnish(t)
	lock, err := os.OpenFile("/run/xtables.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	before := state(t)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	g := gather(t, Options{Root: "/"})
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	for name, text := range state(t) {
		if text != before[name] {
			t.Errorf("%s were changed:\n%s\nbefore:\n%s", name, text, before[name])
		}
	}

	for file, argv := range map[string][]string{
		"iptables-nft-save.txt": {"iptables-nft-save", "-c"}, "iptables-legacy-save.txt": {"iptables-legacy-save", "-c"},
		"ipset-save.txt": {"ipset", "save"},
		"ip-addr.json":   {"sh", "-c", "ip -j addr; ip -j addrlabel list"},
		"ip-route.json":  {"sh", "-c", "ip -j -4 route show table all; ip -j -4 route show cache"},
		"ip-rule.json":   {"ip", "-j", "rule"},
	} {
		if got, want := bare(string(g.data[file])), bare(must(t, argv...)); got != want {
			t.Errorf("%s holds\n%s\nand %s prints\n%s", file, got, strings.Join(argv, " "), want)
		}
	}
	// No kube-proxy runs here, and no table of ip6tables was ever made.
	for _, file := range []string{
		"configz.json", "metrics.txt", "proxyMode.txt", "healthz.json", "livez.json", "kube-proxy-config.yaml",
	} {
		if !strings.Contains(g.unread[file], "no kube-proxy process runs on the node") {
			t.Errorf("%s: %q", file, g.unread[file])
		}
	}
	for file, why := range g.unread {
		if !strings.Contains(why, "kube-proxy") {
			t.Errorf("%s was not read: %s", file, why)
		}
	}
	for _, file := range []string{"ip6tables-legacy-save.txt", "iptables-save.txt"} {
		if g.data[file] != nil || g.unread[file] != "" {
			t.Errorf("%s: %q, %q, where there is nothing", file, g.data[file], g.unread[file])
		}
	}
	if !strings.Contains(string(g.data["sysctl.txt"]), "net/ipv4/conf/cni0/rp_filter=") ||
		!strings.Contains(string(g.data["versions.txt"]), "nft: nftables v") {
		t.Errorf("sysctl.txt and versions.txt: %s\n%s", g.data["sysctl.txt"], g.data["versions.txt"])
	}
	if at := clockOf(t, g); time.Since(at.Now) > time.Minute || time.Since(at.Now) < 0 || !at.ZoneKnown {
		t.Errorf("time.txt: %q", g.data["time.txt"])
	}
	parse(t, g)
}

func clockOf(t *testing.T, g gathered) host.Clock {
	t.Helper()
	network, errs := host.Parse(host.Files{Time: g.data["time.txt"]})
	if len(errs) > 0 {
		t.Error(errs)
	}
	return network.Clock()
}

// parse has the readers of trace read what was collected.
func parse(t *testing.T, g gathered) {
	t.Helper()
	for file, backend := range map[string]netfilter.Backend{
		"iptables-nft-save.txt": netfilter.BackendNFT, "iptables-legacy-save.txt": netfilter.BackendLegacy,
	} {
		if tables, err := iptables.Parse(g.data[file], netfilter.IPv4, backend); err != nil || len(tables) == 0 {
			t.Errorf("%s: %d tables, %v", file, len(tables), err)
		}
	}
	if _, err := ipset.Parse(g.data["ipset-save.txt"]); err != nil {
		t.Error(err)
	}
	if _, errs := host.Parse(host.Files{
		Addr: g.data["ip-addr.json"], Link: g.data["ip-link.json"], Route4: g.data["ip-route.json"],
		Route6: g.data["ip6-route.json"],
		Rule4:  g.data["ip-rule.json"], Rule6: g.data["ip6-rule.json"], Sysctl: g.data["sysctl.txt"],
	}); len(errs) > 0 {
		t.Error(errs)
	}
	files := maps.Clone(g.data)
	files[snapshot.UnreadFile] = snapshot.EncodeUnread(g.unread)
	r := judge.Files(&snapshot.Cluster{Missing: []string{"nodes"}}, snapshot.NewNode("n", files), judge.Request{})
	if r.Error != "" {
		t.Errorf("the node is not judged: %s", r.Error)
	}
}

// What the helper's own iptables cannot read, the node's own reads; what neither can is unread, with the reason.
func TestTheNodesOwnProgramsReadWhatTheImagesCannot(t *testing.T) {
	if !isolated(t) {
		return
	}
	furnish(t)
	root := t.TempDir()
	must(t, "mount", "--rbind", "/", root)
	old := filepath.Join(t.TempDir(), "old")
	script := "#!/bin/sh\nif [ \"$1\" = -c ]; then echo \"# Table \\`nat' is incompatible, use 'nft' tool.\"; fi\n"
	if err := os.WriteFile(old, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	whole := must(t, "iptables-nft-save")
	// Over the program's own name in this mount namespace: the helper's image has an old one, the node below root the
	// real one.
	must(t, "mount", "--make-rprivate", "/")
	must(t, "mount", "--bind", old, "/usr/sbin/xtables-nft-multi")
	only := []string{"iptables-nft-save.txt"}
	g := gather(t, Options{Root: root, Files: only})
	if got := string(g.data["iptables-nft-save.txt"]); bare(got) != bare(whole) || len(g.unread) > 0 {
		t.Errorf("got %q, unread %v", got, g.unread)
	}
	must(t, "mount", "--bind", old, root+"/usr/sbin/xtables-nft-multi")
	g = gather(t, Options{Root: root, Files: only})
	want := "the helper's: iptables-nft-save cannot read all of the rules: # Table `nat' is incompatible, use 'nft' tool."
	if why := g.unread["iptables-nft-save.txt"]; !strings.Contains(why, want) || len(g.data) > 0 {
		t.Errorf("unread because of %q, data %q", why, g.data)
	}
	must(t, "umount", "-R", "-l", root)
}

// Without a module nothing is asked that would load it.
func TestModulesThatAreNotThere(t *testing.T) {
	set := func(names ...string) func() (map[string]bool, error) {
		return func() (map[string]bool, error) {
			m := map[string]bool{}
			for _, n := range names {
				m[n] = true
			}
			return m, nil
		}
	}
	fail := func() (map[string]bool, error) { return nil, errors.New("cannot be read") }
	none := func() (map[string]bool, error) { return nil, os.ErrNotExist }
	for _, tt := range []struct {
		name string
		k    kernel
		want bool
		err  string
	}{
		{"loaded", kernel{set("no_such_ip_set"), fail, fail}, true, ""},
		{"built in", kernel{none, set("no_such_ip_set"), fail}, true, ""},
		{"neither", kernel{set("x"), set("y"), fail}, false, ""},
		{"a symbol, where no list is to be had", kernel{none, fail, set("no_such_function")}, true, ""},
		{"no symbol", kernel{none, fail, set("other")}, false, ""},
		{"nothing can be told", kernel{none, fail, set()}, false, "cannot determine"},
		{"the loaded ones cannot be told", kernel{fail, set("no_such_ip_set"), fail}, false, "cannot be read"},
	} {
		symbolOf["no_such_ip_set"] = "no_such_function"
		got, err := tt.k.has("no_such_ip_set")
		delete(symbolOf, "no_such_ip_set")
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %t, %v", tt.name, got, err)
		}
	}
	r := &reader{kernel: &kernel{none, set(), fail}, roots: []string{"/"}}
	for _, s := range slices.Concat(rules, others) {
		if !slices.Contains([]string{"ipvsadm.txt"}, s.file) {
			continue
		}
		if _, err := s.read(t.Context(), r); !errors.Is(err, errAbsent) {
			t.Errorf("%s: %v", s.file, err)
		}
	}
}

// Listeners are found as ss finds them, with their processes.
func TestListeners(t *testing.T) {
	if !isolated(t) {
		return
	}
	var lc net.ListenConfig
	for _, at := range []string{"127.0.0.1:4001", "[::1]:4002"} {
		l, err := lc.Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	p, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:4003")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	data, err := readListeners(t.Context(), &reader{kernel: newKernel("")})
	if err != nil {
		t.Fatal(err)
	}
	fields := func(text string) []string {
		var out []string
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			out = append(out, strings.Join([]string{f[0], f[1], f[4], f[5], f[6]}, " "))
		}
		slices.Sort(out)
		return out
	}
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("ss is missing: there is nothing to compare with")
	}
	if got, want := fields(string(data)), fields(must(t, "ss", "-Hltunp")); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A table that changes while it is read is read again.
func TestGenerationChangesWithTheRules(t *testing.T) {
	if !isolated(t) {
		return
	}
	r := &reader{kernel: newKernel("/")}
	feed(t, nativeRules, "nft", "-f", "-")
	before := r.generation()
	if before == 0 || r.generation() != before {
		t.Fatalf("the generation is %d, then %d", before, r.generation())
	}
	feed(t, "add rule inet mine in tcp dport 83 drop\n", "nft", "-f", "-")
	if r.generation() == before {
		t.Error("a new rule is not a new generation")
	}
}

func TestEmitsErrorEndsIt(t *testing.T) {
	stop := errors.New("enough")
	n := 0
	files := []string{"sysctl.txt", "versions.txt", "listen.txt"}
	err := Collect(t.Context(), Options{Root: "/", Files: files}, func(File) error {
		n++
		return stop
	})
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d files", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = Collect(ctx, Options{Root: "/", Files: []string{"sysctl.txt"}}, func(File) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
