// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/plugin/launch"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A node whose judging does not end gives its slot up, and is Unknown.
func TestJudgingOneNodeDoesNotBlockAnother(t *testing.T) {
	s, err := Open(Config{Snapshot: broken, Progress: NewProgress(terminal.NewStream(io.Discard, os.Getenv))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ReadObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := s.nodes.Read(t.Context(), "worker-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	n := loadNode("worker-1", files)
	s.index.Lock() // judging waits for the index
	r := s.judgeWithin(10*time.Millisecond, &n, s.Objects, frontendOfShop("worker-1"))
	s.index.Unlock()
	if r.Verdict != report.Unknown || r.Error != "judging its rules took longer than 10ms" {
		t.Errorf("%s %q", r.Verdict, r.Error)
	}
	if r := s.judgeWithin(time.Minute, &n, s.Objects, frontendOfShop("worker-1")); r.Verdict != report.Match {
		t.Errorf("%s %q", r.Verdict, r.Error)
	}
}

// No more than bounds.Answers nodes are taken at once, and one that waits ends with its context.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		var now, most atomic.Int32
		for range 10 {
			go func() {
				if err := s.take(t.Context()); err != nil {
					t.Error(err)
					return
				}
				defer s.release()
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
			}()
		}
		start := time.Now()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := s.take(ctx); err == nil {
			t.Error("a slot was free")
		}
		time.Sleep(10 * time.Second)
		if most.Load() != bounds.Answers || time.Since(start) > 11*time.Second {
			t.Errorf("%d at once after %v, want %d", most.Load(), time.Since(start), bounds.Answers)
		}
	})
}

// A node needs the memory for a large answer once until it is released, so that none waits for itself.
func TestLargeIsTakenOnceForANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := large{slots: newSlots()}
		for _, node := range []string{"a", "b", "a", "b"} {
			if err := l.take(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.take(ctx, "c"); !bounds.Is(err) {
			t.Errorf("a third large answer: %v", err)
		}
		l.release("c") // which has none
		l.release("a")
		l.release("a")
		if err := l.take(t.Context(), "c"); err != nil {
			t.Error(err)
		}
	})
}

// The nodes of a snapshot are judged in any order, and each report is that of its node.
func TestEveryNodeOfASnapshotHasItsReport(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	from, err := snapshot.Open(broken)
	if err != nil {
		t.Fatal(err)
	}
	nodes := from.NodeNames()
	for _, n := range []string{"w2", "w3", "w4", "w5"} {
		nodes = append(nodes, n)
		err := os.CopyFS(filepath.Join(dir, "nodes", n), os.DirFS(filepath.Join(broken, "nodes", "worker-1")))
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(Config{
		Snapshot: dir, Progress: NewProgress(terminal.NewStream(io.Discard, os.Getenv)), Parallel: 4,
		Helper: launch.Options{Timeout: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ReadObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	reports, err := s.Judge(t.Context(), Task{Nodes: nodes, Request: frontendOfShop})
	if err != nil || len(reports) != len(nodes) {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	for i, r := range reports {
		if r.Node != nodes[i] {
			t.Errorf("report %d is that of %q, want %s", i, r.Node, nodes[i])
		}
	}
}
