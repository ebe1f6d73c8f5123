// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command nft measures how long it takes to have the model of a node's nftables: over netlink, as the helper and the
// plugin do, and by nft, whose listing still has to be read. It loads the rules of 5,000 Services with 4 endpoints each
// into a network namespace of its own, which goes with the process, and times whole processes in turn: nft -j list
// ruleset, and this program, which asks the kernel and makes the model.
//
// It judges nothing: it prints times and the ratio, and fails only when it could not measure, or the two models differ
// in size.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

type options struct {
	services, endpoints, runs int
	read, old                 bool
	limit                     time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.services, "services", 5000, "how many Services there are")
	flag.IntVar(&o.endpoints, "endpoints", 4, "how many endpoints each has")
	flag.IntVar(&o.runs, "runs", 7, "how often each is timed")
	flag.BoolVar(&o.old, "old", false, "rules as kube-proxy 1.33 has them, not 1.37")
	flag.BoolVar(&o.read, "read", false, "ask the kernel, make the model, and end: what is timed")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "longest time that one command may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench/nft:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing to undo
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.read {
		debug.SetGCPercent(400) // as the helper's main does
		tables, times, err := overNetlink(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d rules; the kernel's answers %.3fs, the model %.3fs\n", rulesIn(tables), times[0].Seconds(),
			times[1].Seconds())
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("loading rules into a network namespace needs root")
	}
	if o.runs < 1 || o.services < 1 || o.endpoints < 1 {
		return errors.New("-runs, -services and -endpoints have to be at least 1")
	}
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked: Go ends it with the goroutine, and the namespace goes with it.
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("cannot make a network namespace: %w", err)
			return
		}
		done <- measure(ctx, o, out)
	}()
	return <-done
}

func measure(ctx context.Context, o options, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(2*o.runs+3)*o.limit)
	defer cancel()
	var rules bytes.Buffer
	if err := writeRules(&rules, o.services, o.endpoints, o.old); err != nil {
		return err
	}
	load, _, err := timed(ctx, &rules, "nft", "-f", "-")
	if err != nil {
		return err
	}
	version := "1.37"
	if o.old {
		version = "1.33"
	}
	fmt.Fprintf(out, "%d Services of %d endpoints in nftables mode, as of kube-proxy %s, loaded in %.1fs\n", o.services,
		o.endpoints, version, load.wall.Seconds())
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var byNFT, netlink timings
	var listing, said []byte
	for range o.runs {
		var took timing
		if took, listing, err = timed(ctx, nil, "nft", "-j", "list", "ruleset"); err != nil {
			return err
		}
		byNFT = append(byNFT, took)
		if took, said, err = timed(ctx, nil, self, "-read"); err != nil {
			return err
		}
		netlink = append(netlink, took)
	}
	start := time.Now()
	tables, err := nftables.Parse(listing, nil)
	if err != nil {
		return err
	}
	parsed := time.Since(start)
	fmt.Fprintf(out, "  %-40s %8s %8s %8s %8s\n", "", "min", "median", "CPU", "kernel")
	fmt.Fprintf(out, "  %-40s %s   %d MB\n", "nft -j list ruleset", byNFT, len(listing)>>20)
	fmt.Fprintf(out, "  %-40s %s   %s", "netlink and the model of it, a process", netlink, said)
	fmt.Fprintf(out, "  the model of what nft prints: another %.3fs, %d rules\n", parsed.Seconds(), rulesIn(tables))
	fmt.Fprintf(out, "  netlink with its model / nft alone: %.2f (median), %.2f (min)\n",
		median(netlink.wall()).Seconds()/median(byNFT.wall()).Seconds(),
		netlink.wall()[0].Seconds()/byNFT.wall()[0].Seconds())
	fmt.Fprintf(out, "  the same of the processors' time, in the process and in the kernel: %.2f (median)\n",
		median(netlink.cpu()).Seconds()/median(byNFT.cpu()).Seconds())
	if want := fmt.Sprintf("%d rules;", rulesIn(tables)); !bytes.HasPrefix(said, []byte(want)) {
		return fmt.Errorf("the two models differ: %s, and %s", want, said)
	}
	return nil
}

// overNetlink reads this network namespace, as the helper does, and makes the model, as the plugin does. times are what
// each took.
func overNetlink(ctx context.Context) (tables []*netfilter.Table, times [2]time.Duration, err error) {
	start := time.Now()
	options := collect.Options{Files: []string{snapshot.NFTFile}}
	var file collect.File
	err = collect.Collect(ctx, options, func(f collect.File) error {
		file = f
		return nil
	})
	if err == nil && file.Unread != "" {
		err = errors.New(file.Unread)
	}
	if err != nil {
		return nil, times, err
	}
	times[0] = time.Since(start)
	tables, err = nftables.Parse(file.Data, nil)
	times[1] = time.Since(start) - times[0]
	return tables, times, err
}

func rulesIn(tables []*netfilter.Table) (n int) {
	for _, t := range tables {
		for _, c := range t.Chains {
			n += len(c.Rules)
		}
	}
	return n
}

// timing is what one process took.
type timing struct{ wall, cpu, kernel time.Duration }

type timings []timing

// wall and cpu are sorted.
func (t timings) wall() []time.Duration {
	return t.sorted(func(x timing) time.Duration { return x.wall })
}

func (t timings) cpu() []time.Duration {
	return t.sorted(func(x timing) time.Duration { return x.cpu })
}

func (t timings) kernel() []time.Duration {
	return t.sorted(func(x timing) time.Duration { return x.kernel })
}

func (t timings) sorted(of func(timing) time.Duration) []time.Duration {
	out := make([]time.Duration, len(t))
	for i, x := range t {
		out[i] = of(x)
	}
	slices.Sort(out)
	return out
}

// String is a row of the table.
func (t timings) String() string {
	return fmt.Sprintf("%7.3fs %7.3fs %7.3fs %7.3fs", t.wall()[0].Seconds(), median(t.wall()).Seconds(),
		median(t.cpu()).Seconds(), median(t.kernel()).Seconds())
}

func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

// timed runs a command in this thread's network namespace.
func timed(ctx context.Context, stdin io.Reader, name string, args ...string) (timing, []byte, error) {
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // nft and this program
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = stdin, &stderr
	start := time.Now()
	stdout, err := c.Output()
	took := timing{wall: time.Since(start)}
	if err != nil {
		return took, nil, fmt.Errorf("%s: %w: %.500s", name, err, stderr.String())
	}
	took.kernel = c.ProcessState.SystemTime()
	took.cpu = c.ProcessState.SystemTime() + c.ProcessState.UserTime()
	return took, stdout, nil
}
