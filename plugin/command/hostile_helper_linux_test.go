// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// liars are helpers of a node in the hands of someone else, whose answer is none, and what the plugin says of it. Those
// that go on and on end when nobody reads them any more.
func liars() map[string]struct {
	answer func(a *peerAnswer) error
	want   string
} {
	rules := func(a *peerAnswer) error { return a.file("iptables-save.txt", []byte("*nat\nCOMMIT\n"), "") }
	endlessly := func(do func(a *peerAnswer) error) func(a *peerAnswer) error {
		return func(a *peerAnswer) (err error) {
			for err == nil {
				err = do(a)
				a.frames.Reset()
			}
			return err
		}
	}
	named := func(name string) func(a *peerAnswer) error {
		return func(a *peerAnswer) error { return a.file(name, []byte("x"), "") }
	}
	zeros := make([]byte, 1<<20)
	n := 0
	return map[string]struct {
		answer func(a *peerAnswer) error
		want   string
	}{
		"a file that is shorter than it says": {func(a *peerAnswer) error {
			return errors.Join(a.body('f', map[string]any{"name": "a"}), a.frame('c', []byte("x")),
				a.body('z', map[string]any{"bytes": 1 << 40}))
		}, "a has 1099511627776 bytes, and 1 came"},
		"a frame of 4 GB": {func(a *peerAnswer) error {
			_, err := a.out.Write([]byte{'c', 0xff, 0xff, 0xff, 0xff})
			return errors.Join(err, a.out.Flush())
		}, "a frame of kind 'c' announces 4294967295 bytes"},
		"another checksum": {func(a *peerAnswer) error {
			err := rules(a)
			a.frames.WriteByte('x')
			return errors.Join(err, a.done())
		}, "its checksum is wrong"},
		"the answer to another question": {func(a *peerAnswer) error {
			a.id++
			return errors.Join(rules(a), a.done())
		}, "and 1 was asked"},
		"half an answer": {func(a *peerAnswer) error {
			undone := `[{"services":["shop/web"],"mode":"iptables","by":"me"}]`
			return errors.Join(a.file(wire.ProgramFile, []byte(undone), ""), io.EOF)
		}, "unexpected EOF"},
		"half an answer, and silence": {func(a *peerAnswer) error {
			err := rules(a)
			time.Sleep(3 * time.Second) // and --timeout is one
			return err
		}, "has not answered for 1s"},
		"a question of its own": {func(a *peerAnswer) error {
			return a.body('r', map[string]any{"id": 1, "method": "undo"})
		}, "a frame of kind 'r' is not allowed in an answer"},
		"progress without end": {endlessly((*peerAnswer).progress), "there are more than 10000 progress messages"},
		"files without end": {endlessly(func(a *peerAnswer) error {
			n++
			return a.file(fmt.Sprint("f", n), nil, "")
		}), "there are more than 1000 files"},
		"a file of zeros without end": {func(a *peerAnswer) error {
			chunks := endlessly(func(a *peerAnswer) error { return a.frame('c', zeros) })
			return errors.Join(a.body('f', map[string]any{"name": "a"}), chunks(a))
		}, "a is larger than 134217728 bytes"},
		"a path":            {named("../../../etc/cron.d/a"), "is not a name of a file"},
		"a path from /":     {named("/etc/passwd"), "is not a name of a file"},
		"a path of Windows": {named(`..\..\a`), "is not a name of a file"},
		"a parent":          {named(".."), "is not a name of a file"},
		"a name of 100 KB":  {named(strings.Repeat("a", 100<<10)), "announces"},
		"the same file twice": {func(a *peerAnswer) error {
			return errors.Join(rules(a), rules(a))
		}, "iptables-save.txt comes twice"},
	}
}

// A helper lies: whatever it answers, each command ends with one sentence, writes no file, and takes no more memory
// than a hostile snapshot may.
func TestLyingHelper(t *testing.T) {
	server := apiServer(t, nil, nil)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	folder := t.TempDir()
	commands := []string{
		"trace frontend -n shop", "verify -A", "dump -o " + filepath.Join(folder, "dump.tar.gz"),
		"program frontend -n shop --yes", "cleanup --running",
	}
	for name, liar := range liars() {
		for i, command := range commands {
			// What is wrong with an answer is found in one place for all commands.
			if i > 0 && name != "half an answer" && !testutil.EveryFault() {
				continue
			}
			t.Run(name+", "+strings.Fields(command)[0], func(t *testing.T) {
				p := &peer{answer: func(a *peerAnswer, _ string) error {
					return errors.Join(liar.answer(a), errors.New("there is no more"))
				}}
				streams, _, out, errOut := genericiooptions.NewTestIOStreams()
				most := peak(func() {
					args := append(strings.Fields(command), "--local", "--timeout", "1s", "--server", server)
					if code := Main(t.Context(), args, streams, System{Serve: p.serve}); code != 3 {
						t.Errorf("exit code %d", code)
					}
				})
				said := strings.TrimSuffix(errOut.String(), "error: no node was read, so nothing is written\n")
				if strings.Count(said, liar.want) != 1 || !strings.HasPrefix(said, "error: ") || strings.Count(said, "\n") != 1 {
					t.Errorf("%q is not all that is said:\n%s", liar.want, said)
				}
				if strings.Contains(out.String(), "removed") {
					t.Errorf("an answer that broke off was used: %s", out)
				}
				if most > hostileMemory {
					t.Errorf("it took %d MB", most>>20)
				}
				if left, err := os.ReadDir(folder); len(left) > 0 || err != nil {
					t.Errorf("it left %v %v", left, err)
				}
			})
		}
	}
}

// peak is how much more of the heap is in use at most while a function runs.
func peak(do func()) uint64 {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	most := make(chan uint64)
	go func() {
		top := before.HeapAlloc
		for {
			select {
			case <-done:
				most <- top - before.HeapAlloc
				return
			case <-time.After(10 * time.Millisecond):
				runtime.ReadMemStats(&now)
				top = max(top, now.HeapAlloc)
			}
		}
	}()
	do()
	close(done)
	return <-most
}
