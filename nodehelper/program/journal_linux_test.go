// SPDX-License-Identifier: Apache-2.0

package program

import (
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// child is set in a process of this test that is started to be killed: it programs and undoes what the value says.
const child = "SVCPROXY_TEST_PROGRAM"

// Helpers are killed while they program, update and undo. The next one can always undo what is in the journal.
func TestKilled(t *testing.T) {
	testutil.Long(t)
	if spec := os.Getenv(child); spec != "" {
		runChild(t, spec)
		return
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	testutil.LegacyTables(t)
	before := testutil.Listing(t, testutil.Rules...)
	root := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	prog := newProgrammer(t, root)
	half, killings := 0, testutil.Count(t, testutil.Kills, 40)
	within := lifetime(t, prog, 150*time.Millisecond)
	for i := range killings {
		w := modes[random.IntN(len(modes))]
		if random.IntN(4) == 0 {
			w.mode, w.backend = wire.Userspace, wire.BackendNFT
		}
		kill(t, root+" "+w.mode+" "+w.backend, time.Duration(random.Int64N(int64(within))))
		// A program that it ran may continue, with the lock that it has inherited.
		if testutil.Listing(t, testutil.Rules...) != before {
			half++
		}
		if _, err := prog.Undo(t.Context(), wire.UndoDead); err != nil {
			t.Fatalf("killing %d, %s: %v", i, w, err)
		}
		if got := testutil.Listing(t, testutil.Rules...); got != before {
			t.Fatalf("killing %d, %s: before:\n%s\nafter:\n%s", i, w, before, got)
		}
		if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
			t.Fatalf("killing %d: %v %v is left", i, left, err)
		}
	}
	t.Logf("%d killed, %d of them with something to undo", killings, half)
	if half < killings/10 {
		t.Errorf("only %d of %d were killed with something on the node", half, killings)
	}
}

// lifetime is the longest that a child lives before it is killed: where the machine is busy, longer than the least, so
// that it gets as far as to change something.
func lifetime(t *testing.T, prog *Programmer, least time.Duration) time.Duration {
	t.Helper()
	req := params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a")
	begin := time.Now()
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
	return max(least, 3*took)
}

// kill starts a process that does what spec says, and kills it some time later. Until then it must not fail.
func kill(t *testing.T, spec string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), child+"="+spec)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it begins
		t.Fatal(err)
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = in.Close()
	if said, err := io.ReadAll(out); err != nil || strings.Contains(string(said), "FAIL") {
		t.Errorf("%s: %v %s", spec, err, said)
	}
	_ = cmd.Wait() // it was killed
}

// runChild programs, updates and undoes until it is killed.
func runChild(t *testing.T, spec string) {
	t.Helper()
	words := strings.Fields(spec + " -")
	prog := newProgrammer(t, words[0])
	backend := strings.TrimSuffix(words[2], "-")
	if _, err := os.Stdout.WriteString("."); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		req := params(web(0, "10.244.1.1:8080", "10.244.2."+strconv.Itoa(i%200+1)+":8080"), words[1], backend, "a")
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if i%3 == 2 {
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A helper that was killed is started again, and takes over its plans; incomplete ones are undone.
func TestAdopt(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	before := testutil.Listing(t, testutil.Rules...)
	prog := newProgrammer(t, t.TempDir())
	if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")); err != nil {
		t.Fatal(err)
	}
	there := testutil.Listing(t, testutil.Rules...)
	next := dies(t, prog, func(*Record) {})
	if err := next.Adopt(t.Context(), "b"); err != nil || len(next.Held()) != 0 {
		t.Errorf("what another run left is taken over: %v", err)
	}
	err := next.Adopt(t.Context(), "a")
	if err != nil || len(next.Held()) != 1 || testutil.Listing(t, testutil.Rules...) != there {
		t.Errorf("not taken over: %v", err)
	}
	last := dies(t, prog, func(r *Record) { r.Complete = false })
	err = last.Adopt(t.Context(), "a")
	if err != nil || len(last.Held()) != 0 || testutil.Listing(t, testutil.Rules...) != before {
		t.Errorf("half of a change: %v, %s", err, testutil.Listing(t, testutil.Rules...))
	}
}
