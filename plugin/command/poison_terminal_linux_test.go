// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// terminalOf opens a pseudoterminal of a width. read closes its end and returns all that was written to it.
func terminalOf(t *testing.T, width uint16) (tty *os.File, read func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudoterminals:", err)
	}
	fd := int(master.Fd())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(err)
	must(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: width}))
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	must(err)
	mode.Oflag &^= unix.OPOST // newlines as they are
	must(unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, mode))
	text := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(master) // it ends with EIO, once the other end is closed
		text <- string(data)
	}()
	t.Cleanup(func() { master.Close() })
	return tty, func() string {
		tty.Close()
		return <-text
	}
}

// On a terminal there are colours and progress, and lines are cut and wrapped: with and without colour, at three
// widths, of a snapshot and of a node that is read by a helper.
func TestPoisonOnATerminal(t *testing.T) {
	c := clusterOf(t, broken)
	k := &objectKinds[0]
	leaves := leavesOf(k.typeOf())
	list := k.list(t, c, leaves[".ObjectMeta.Name"], leaves[".Spec.Ports.Name"])
	pods := &objectKinds[3]
	podList := pods.list(t, c, leavesOf(pods.typeOf())[".ObjectMeta.Name"])
	data, err := os.ReadFile(filepath.Join(broken, "nodes", "worker-1", "iptables-save.txt"))
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.ReplaceAll(string(data), "shop/web:http", "shop/web:http"+inLine)
	dir := poisonedCopy(t, broken, map[string][]byte{
		"cluster/services.json": k.untyped(list), "cluster/pods.json": pods.untyped(podList),
		"nodes/worker-1/iptables-save.txt": []byte(rules),
	})
	server := apiServer(t, []string{".ObjectMeta.Name"}, nil)
	helper := peers(t)["unread files"].serve
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var o outputs
	for _, env := range []string{"", "NO_COLOR", "TERM"} {
		for _, width := range []uint16{80, 100, 160} {
			t.Run(fmt.Sprintf("%s %d columns", env, width), func(t *testing.T) {
				t.Setenv("TERM", "xterm-256color")
				if env != "" {
					t.Setenv(env, "dumb")
				}
				for _, args := range []string{
					"trace 10.96.21.191 --snapshot " + dir, "trace 10.96.21.191 -o wide --snapshot " + dir,
					"verify -A --snapshot " + dir, "verify -A -o name --snapshot " + dir, "resolve 10.96.21.191 --snapshot " + dir,
					"mode --snapshot " + dir, "trace 10.96.21.191 -o json --snapshot " + dir,
					"trace 10.96.21.191 -o jsonpath={.service.name} --snapshot " + dir, "trace nope --snapshot " + dir,
					"trace 10.96.113.209 --local --server " + server, "dump --local -o - --server " + server,
				} {
					out, readOut := terminalOf(t, width)
					errOut, readErr := terminalOf(t, width)
					streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
					Main(t.Context(), strings.Fields(args), streams, System{Serve: helper})
					what := strings.Fields(args)[0]
					stdout, stderr := readOut(), readErr()
					o.look(t, what, args, stdout, true)
					o.look(t, what+" (stderr)", args, stderr, true)
					colored := strings.Contains(strings.ReplaceAll(stdout, "\x1b[1m", ""), "\x1b[3")
					if env == "" && what == "verify" && !strings.Contains(args, "-o") && !colored {
						t.Errorf("%s has no colour: %q", args, stdout)
					}
					if env != "" && colored {
						t.Errorf("%s has colour with %s=dumb", args, env)
					}
					if env == "" && strings.Contains(args, "--local") && !strings.Contains(stderr, "\x1b[2K") {
						t.Errorf("%s shows no progress: %q", args, stderr)
					}
				}
			})
		}
	}
	o.came(t, "trace", "trace (stderr)", "verify", "resolve", "dump (stderr)")
}
