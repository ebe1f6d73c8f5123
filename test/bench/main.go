// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures the project's promise: judging every Service of a large node takes no longer than
// iptables-save takes to print the node's rules, and twice the Services take at most twice the time.
//
// It loads the rules of a captured node with 5,000 Services into a network namespace of its own and times whole
// processes in turn: iptables-save in that namespace, and kubectl-svcproxy verify -A on the files. Then the same with
// 10,000 Services. The namespace has no name: it belongs to a thread of this process, and the kernel takes it away with
// the thread, however the process ends.
//
// It judges nothing: it prints times, ratios and memory, and fails only when it could not measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	bin      string
	snapshot string
	runs     int
	double   bool
	limit    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/kubectl-svcproxy", "the plugin")
	flag.StringVar(&o.snapshot, "snapshot", "testdata/snapshots/scale-iptables", "snapshot of one node in iptables mode")
	flag.IntVar(&o.runs, "runs", 7, "how often each command is timed")
	flag.BoolVar(&o.double, "double", true, "measure a doubled set, too")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "longest time that one command may take")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing to undo
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("loading rules into a network namespace needs root")
	}
	if o.runs < 1 {
		return errors.New("-runs has to be at least 1")
	}
	if _, err := os.Stat(o.bin); err != nil {
		return fmt.Errorf("%w: build it first (make build)", err)
	}
	dir, err := os.MkdirTemp("", "svcproxy-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	keep := hasNfacct(ctx)
	if !keep {
		fmt.Fprintln(out, "nfacct is not to be had here: the rules are loaded without their -m nfacct matches")
	}
	single := set{title: "the captured set", snapshot: o.snapshot}
	if single.restore, _, err = generate(ctx, o, filepath.Join(dir, "1"), 1, keep); err != nil {
		return err
	}
	first, err := measureIn(ctx, o, single, keep, out)
	if err != nil {
		return err
	}
	if !o.double {
		return nil
	}
	double := set{title: "twice the Services"}
	if double.restore, double.snapshot, err = generate(ctx, o, filepath.Join(dir, "2"), 2, keep); err != nil {
		return err
	}
	second, err := measureIn(ctx, o, double, keep, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "twice the Services take %.2f × the time (verify, median), %.2f × (iptables-save)\n",
		ratio(second.verify.median(), first.verify.median()), ratio(second.save.median(), first.save.median()))
	return nil
}

// hasNfacct says whether -m nfacct rules can be loaded: they name objects that only the nfacct tool makes.
func hasNfacct(ctx context.Context) bool {
	return exec.CommandContext(ctx, "nfacct", "list").Run() == nil
}

// generate writes the rules to load and, for more than one copy, the snapshot to read. It is a process of its own,
// because what this process once held in memory counts as its children's in the kernel's books (getrusage(2), vfork).
func generate(ctx context.Context, o options, dir string, copies int, nfacct bool) (restored, saved string, err error) {
	//nolint:gosec // our own program
	c := exec.CommandContext(ctx, "go", "run", "./test/bench/gen", "-in", o.snapshot, "-out", dir,
		fmt.Sprintf("-copies=%d", copies), fmt.Sprintf("-nfacct=%t", nfacct))
	if text, err := c.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("cannot generate the rules: %w: %s", err, text)
	}
	return filepath.Join(dir, "restore.txt"), filepath.Join(dir, "snapshot"), nil
}

// set is one rule set to measure.
type set struct {
	title    string
	restore  string // what iptables-restore loads
	snapshot string // what verify reads
}

// result holds the timings of one set.
type result struct {
	save, saveCounters, verify timings
}

// measureIn measures a set in a network namespace of its own.
func measureIn(ctx context.Context, o options, s set, nfacct bool, out io.Writer) (*result, error) {
	type answer struct {
		r   *result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		// The thread is never unlocked: Go ends it with the goroutine, and the namespace goes with it.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			done <- answer{err: fmt.Errorf("cannot make a network namespace: %w", err)}
			return
		}
		r, err := measure(ctx, o, s, nfacct, out)
		done <- answer{r, err}
	}()
	a := <-done
	return a.r, a.err
}

func measure(ctx context.Context, o options, s set, nfacct bool, out io.Writer) (*result, error) {
	if nfacct {
		for _, name := range []string{"ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"} {
			if _, err := timed(ctx, o.limit, "", "nfacct", "add", name); err != nil {
				return nil, err
			}
		}
	}
	load, err := timed(ctx, o.limit, s.restore, "iptables-nft-restore")
	if err != nil {
		return nil, err
	}
	lines, err := countLines(s.restore)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%s: %d lines of rules, loaded in %.1fs\n", s.title, lines, load.wall.Seconds())

	r := &result{}
	for range o.runs {
		for _, c := range []struct {
			to   *timings
			argv []string
		}{
			{&r.save, []string{"iptables-nft-save"}},
			{&r.saveCounters, []string{"iptables-nft-save", "-c"}},
			{&r.verify, []string{o.bin, "verify", "-A", "--snapshot", s.snapshot, "-o", "json"}},
		} {
			// The first run is for its memory: what is free for two seconds a hypervisor may have taken back (free page
			// reporting), and to get it again takes as long as all else.
			var t timing
			for range 2 {
				var err error
				if t, err = timed(ctx, o.limit, "", c.argv[0], c.argv[1:]...); err != nil {
					return nil, err
				}
			}
			*c.to = append(*c.to, t)
		}
	}
	fmt.Fprintf(out, "  %-32s %8s %8s %9s\n", "", "min", "median", "max RSS")
	fmt.Fprintf(out, "  %-32s %s\n", "iptables-save", r.save)
	fmt.Fprintf(out, "  %-32s %s\n", "iptables-save -c", r.saveCounters)
	fmt.Fprintf(out, "  %-32s %s   exit code %d\n", "kubectl svcproxy verify -A", r.verify, r.verify[0].exit)
	fmt.Fprintf(out, "  verify / iptables-save: %.2f (median), %.2f (min);  verify / iptables-save -c: %.2f, %.2f\n\n",
		ratio(r.verify.median(), r.save.median()), ratio(r.verify.min(), r.save.min()),
		ratio(r.verify.median(), r.saveCounters.median()), ratio(r.verify.min(), r.saveCounters.min()))
	return r, nil
}

// timing is what one process took.
type timing struct {
	wall time.Duration
	rss  int64 // KiB
	exit int
}

// timed runs a command in this thread's network namespace, with its output thrown away. The plugin's exit codes 1, 3
// and 4 are answers (docs/report.md); any other failure is an error.
func timed(ctx context.Context, limit time.Duration, stdin, name string, args ...string) (timing, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // the commands are named above
	var stderr strings.Builder
	c.Stderr = &stderr
	if stdin != "" {
		f, err := os.Open(stdin)
		if err != nil {
			return timing{}, err
		}
		defer f.Close()
		c.Stdin = f
	}
	start := time.Now()
	err := c.Run()
	wall := time.Since(start)
	if ctx.Err() != nil {
		return timing{}, fmt.Errorf("%s %s: stopped after %s: %w", name, strings.Join(args, " "),
			wall.Round(time.Second), ctx.Err())
	}
	var exit *exec.ExitError
	answer := errors.As(err, &exit) && slices.Contains(args, "verify") && slices.Contains([]int{1, 3, 4}, exit.ExitCode())
	if err != nil && !answer {
		return timing{}, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	t := timing{wall: wall, exit: c.ProcessState.ExitCode()}
	if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.rss = usage.Maxrss
	}
	return t, nil
}

type timings []timing

func (t timings) walls() []time.Duration {
	w := make([]time.Duration, len(t))
	for i := range t {
		w[i] = t[i].wall
	}
	slices.Sort(w)
	return w
}

func (t timings) min() time.Duration { return t.walls()[0] }

func (t timings) median() time.Duration { return t.walls()[len(t)/2] }

func (t timings) rss() (most int64) {
	for i := range t {
		most = max(most, t[i].rss)
	}
	return most
}

// String is a row of the table: shortest and median time, most memory.
func (t timings) String() string {
	return fmt.Sprintf("%7.3fs %7.3fs %6d MB", t.min().Seconds(), t.median().Seconds(), t.rss()/1024)
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }

func countLines(name string) (int, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := 0
	buf := make([]byte, 64<<10)
	for {
		k, err := f.Read(buf)
		for _, b := range buf[:k] {
			if b == '\n' {
				n++
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
