// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// holder is set in a process of a test that programs what the value says, and waits to be killed.
const holder = "SVCPROXY_TEST_HOLDER"

// runExpirer is the command line that runs [TestRunExpirer].
func runExpirer() []string { return []string{os.Args[0], "-test.run=^TestRunExpirer$", "--"} }

// TestRunExpirer is what the expirers of other tests run.
func TestRunExpirer(t *testing.T) {
	flags := flag.NewFlagSet("expire", flag.ContinueOnError)
	root := flags.String("root", "", "")
	if err := flags.Parse(flag.Args()); err != nil || flags.NArg() != 1 {
		return // nobody asks for one
	}
	if err := newProgrammer(t, *root).Expire(t.Context(), flags.Arg(0), os.NewFile(3, "answer")); err != nil {
		t.Error(err)
	}
}

// TestRunHolder is what the helpers of other tests run: "root mode backend ttl", and "untimed" where the kernel shall
// have no match time.
func TestRunHolder(t *testing.T) {
	words := strings.Fields(os.Getenv(holder))
	if len(words) == 0 {
		return // nobody asks for one
	}
	prog := newProgrammer(t, words[0])
	prog.o.Expirer = runExpirer()
	if len(words) > 4 {
		prog.modes[wire.IPTables].(*iptables).hasTime = func(*Record) bool { return false }
	}
	req := params(web(0, "10.244.1.1:8080"), words[1], strings.TrimPrefix(words[2], "-"), "a")
	ttl, err := time.ParseDuration(words[3])
	if err != nil {
		t.Fatal(err)
	}
	req.TTL = ttl
	r, err := prog.Apply(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(os.Stdout, "programmed until", r.Expires.UnixNano(), strings.Join(r.Notes, " "))
	if err != nil {
		t.Fatal(err)
	}
	select {} // until it is killed
}

// held is a helper of TestRunHolder.
type held struct {
	*exec.Cmd
	expires time.Time
	warning string
}

func startHolder(t *testing.T, words ...string) *held {
	t.Helper()
	return startHolderBy(t, exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunHolder$"), words...)
}

// startHolderBy starts a helper by a command.
func startHolderBy(t *testing.T, cmd *exec.Cmd, words ...string) *held {
	t.Helper()
	cmd.Env = append(os.Environ(), holder+"="+strings.Join(words, " "))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "programmed until ") {
		t.Fatalf("the helper: %q %v", line, err)
	}
	at, warning, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "programmed until ")), " ")
	ns, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return &held{cmd, time.Unix(0, ns), warning}
}

func (h *held) kill(t *testing.T) {
	t.Helper()
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Wait() // it was killed
}

// clientAndServer makes a client at 10.1.0.2 and a server at the endpoints 10.244.1.1 and 10.244.9.9, with this
// namespace as the node between them. The client's thread is returned.
func clientAndServer(t *testing.T) testutil.Thread {
	t.Helper()
	client, server := testutil.NewNamespace(t), testutil.NewNamespace(t)
	for _, line := range []string{
		"ip link set lo up", "sysctl -qw net.ipv4.ip_forward=1",
		"ip link add vea type veth peer name eth0 netns " + client.PID,
		"ip link add veb type veth peer name eth0 netns " + server.PID,
		"ip addr add 10.1.0.1/24 dev vea", "ip link set vea up",
		"ip addr add 10.2.0.1/24 dev veb", "ip link set veb up", "ip route add 10.244.0.0/16 dev veb",
	} {
		testutil.Run(t, "", strings.Fields(line)...)
	}
	for n, lines := range map[*testutil.Namespace][]string{
		client: {"ip addr add 10.1.0.2/24 dev eth0", "ip link set eth0 up", "ip route add default via 10.1.0.1"},
		server: {
			"ip addr add 10.2.0.2/24 dev eth0", "ip addr add 10.244.1.1/32 dev eth0", "ip addr add 10.244.9.9/32 dev eth0",
			"ip link set eth0 up", "ip route add default via 10.2.0.1",
		},
	} {
		for _, line := range lines {
			n.Run(t, strings.Fields(line)...)
		}
	}
	thread := testutil.NewThread(t, server.Path)
	for _, at := range []string{"10.244.1.1:8080", "10.244.9.9:8080"} {
		testutil.Echo(t, thread, "tcp", at)
	}
	return testutil.NewThread(t, client.Path)
}

// theirs are rules of kube-proxy that lead the frontend to 10.244.9.9. In iptables mode FORWARD drops everything else.
func theirs(t *testing.T, backend string) {
	t.Helper()
	if backend == "" {
		testutil.Run(t, `table ip kube-proxy {
 chain prerouting {
  type nat hook prerouting priority -100
  ip daddr 10.96.0.10 tcp dport 80 dnat to 10.244.9.9:8080
 }
}
`, "nft", "-f", "-")
		return
	}
	testutil.Run(t, `*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.9.9:8080
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -d 10.244.9.9/32 -j ACCEPT
-A FORWARD -s 10.244.9.9/32 -j ACCEPT
COMMIT
`, "iptables-"+backend+"-restore")
}

func clearTheirs(t *testing.T, backend string) {
	t.Helper()
	if backend == "" {
		testutil.Run(t, "", "nft", "delete", "table", "ip", "kube-proxy")
		return
	}
	testutil.Run(t, "*nat\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", "iptables-"+backend+"-restore")
}

var counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// rulesNow are all rules, without counters.
func rulesNow(t *testing.T) string {
	t.Helper()
	return counters.ReplaceAllString(testutil.Listing(t, testutil.Rules...), "counter")
}

// connection is one to the frontend.
type connection struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, from testutil.Thread) *connection {
	t.Helper()
	var c net.Conn
	var err error
	from.Do(func() {
		c, err = (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", "10.96.0.10:80")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &connection{c, bufio.NewReader(c)}
}

// answered is the endpoint that answers on the connection.
func (c *connection) answered(t *testing.T) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		t.Fatal(err)
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{"10.244.1.1", "10.244.9.9"} {
		if strings.HasPrefix(line, endpoint+":8080") {
			return endpoint
		}
	}
	return line
}

// expect fails where the connection is answered by another endpoint.
func (c *connection) expect(t *testing.T, when, endpoint string) {
	t.Helper()
	if got := c.answered(t); got != endpoint {
		t.Errorf("%s: answered by %s, want %s", when, got, endpoint)
	}
}

// A helper is killed. At the end of the time new connections leave its rules by the kernel's doing, an established
// one lives on, and the next helper removes the rest.
func TestTheKernelHoldsTheTime(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "sysctl", "nsenter")...) {
		return
	}
	client := clientAndServer(t)
	for _, w := range modes {
		t.Run(w.mode+" "+w.backend, func(t *testing.T) {
			if w.backend == wire.BackendLegacy {
				testutil.LegacyTables(t)
			}
			theirs(t, w.backend)
			defer clearTheirs(t, w.backend)
			root, before := t.TempDir(), rulesNow(t)
			dial(t, client).expect(t, "before", "10.244.9.9")
			h := startHolder(t, root, w.mode, "-"+w.backend, "3s")
			h.kill(t)
			if h.warning != "" {
				t.Errorf("warned: %s", h.warning)
			}
			established := dial(t, client)
			established.expect(t, "in time", "10.244.1.1")
			if left := time.Until(h.expires); left <= 0 {
				t.Fatalf("this machine is too slow: it took %v longer than the time", -left)
			}
			there := rulesNow(t)
			time.Sleep(time.Until(h.expires) + 1200*time.Millisecond) // the match time counts whole seconds
			dial(t, client).expect(t, "after the time", "10.244.9.9")
			established.expect(t, "an established connection after the time", "10.244.1.1")
			time.Sleep(time.Until(h.expires) + lastPacket + 1200*time.Millisecond)
			dial(t, client).expect(t, "when the last packets have left", "10.244.9.9")
			established.expect(t, "an established connection then", "10.244.1.1")
			if rulesNow(t) == before || !strings.Contains(there, "0123abcd") {
				t.Error("the rules are gone, by whom?")
			}
			undone, err := newProgrammer(t, root).Undo(t.Context(), wire.UndoDead)
			if err != nil || len(undone) != 1 {
				t.Errorf("%v %v", undone, err)
			}
			if got := rulesNow(t); got != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, got)
			}
		})
	}
}

// A proxy ends with its helper; what redirects to it ends at its time, by the kernel's doing.
func TestTheKernelEndsWhatRedirectsToADeadProxy(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "sysctl", "nsenter")...) {
		return
	}
	client := clientAndServer(t)
	theirs(t, wire.BackendNFT)
	root, before := t.TempDir(), rulesNow(t)
	h := startHolder(t, root, wire.Userspace, wire.BackendNFT, "3s")
	dial(t, client).expect(t, "in time", "10.244.1.1")
	h.kill(t)
	time.Sleep(time.Until(h.expires) + 1200*time.Millisecond)
	dial(t, client).expect(t, "after the time", "10.244.9.9")
	if undone, err := newProgrammer(t, root).Undo(t.Context(), wire.UndoDead); err != nil || len(undone) != 1 {
		t.Errorf("%v %v", undone, err)
	}
	if got := rulesNow(t); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// Where the kernel does not end the rules, a process does that outlives the helper.
func TestAnExpirerHoldsTheTime(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "sysctl", "nsenter")...) {
		return
	}
	client := clientAndServer(t)
	theirs(t, wire.BackendNFT)
	root, before := t.TempDir(), rulesNow(t)
	h := startHolder(t, root, wire.IPTables, wire.BackendNFT, "4s", "untimed")
	h.kill(t)
	dial(t, client).expect(t, "in time", "10.244.1.1")
	if rules := rulesNow(t); strings.Contains(rules, "-m time") {
		t.Errorf("a kernel without the match time is given it: %s", rules)
	}
	r := onlyRecord(t, newProgrammer(t, root).journal)
	if r.Expirer == nil || !r.Expirer.alive() {
		t.Fatalf("the expirer: %+v", r.Expirer)
	}
	// At the end of the time it takes the lock itself.
	if fds := openFiles(t, r.Expirer.PID); strings.Contains(fds, "/lock") && time.Now().Before(h.expires) {
		t.Errorf("the expirer holds the lock: %s", fds)
	}
	awaitEnd(t, r.Expirer, time.Until(h.expires)+5*time.Second)
	if got := rulesNow(t); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
	dial(t, client).expect(t, "after the time", "10.244.9.9")
	if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
		t.Errorf("%v %v is left", left, err)
	}
}

func onlyRecord(t *testing.T, j journal) *Record {
	t.Helper()
	records, _, err := j.list()
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	return records[0]
}

// openFiles lists what a process has open besides its standard input and output, which must be /dev/null.
func openFiles(t *testing.T, pid int) string {
	t.Helper()
	links, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if err != nil || len(links) < 3 {
		t.Fatalf("%v %v", links, err)
	}
	var out []string
	for _, link := range links {
		to, err := os.Readlink(link)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was closed meanwhile
		}
		if n, _ := strconv.Atoi(filepath.Base(link)); n > 2 {
			out = append(out, to)
		} else if to != os.DevNull {
			t.Errorf("file %d of the expirer is %s", n, to)
		}
	}
	return strings.Join(out, " ")
}

func awaitEnd(t *testing.T, p *Process, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); p.alive(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the process %d has not ended within %v", p.PID, within)
		}
	}
}
