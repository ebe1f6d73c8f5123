// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// podSources are what is read within a pod's network namespace. Each does what it does on the goroutine that it is
// called on: another one is in the node's namespace. Those of one list are read one after the other.
var podSources = func() (out [][]source) {
	for _, s := range slices.Concat(saves, []source{
		{snapshot.NFTFile, readNftOfPod},
		{snapshot.IPSetFile, module("ip_set", command("ipset", "save"))},
		{snapshot.TimeFile, readTime},
		{snapshot.PacketFile, procNet(snapshot.PacketFile, "packet")},
		{snapshot.SocketCountsFile, procNet(snapshot.SocketCountsFile, "sockstat", "sockstat6")},
	}, routing, onPath) {
		out = append(out, []source{s})
	}
	return append(out, []source{{snapshot.ListenFile, readListeners}, {snapshot.StoppedFile, readStopped}})
}()

// podThreads is how many threads read a pod's network namespace side by side: most of the time they wait for programs.
// With one it takes 40 % longer (400 ms in place of 280 ms, on two busy processors), and as much processor time.
const podThreads = 4

func collectPod(ctx context.Context, o Options, pod podns.Pod, emit func(File) error) error {
	ns, err := podns.Find(pod)
	if err != nil {
		return err
	}
	defer ns.Close()
	r := &reader{Options: o, kernel: newKernel(o.Root)}
	r.roots = programRoots(r.Root)
	if err := r.within(ctx, ns, emit); err != nil {
		return err
	}
	resolver := source{snapshot.ResolvConfFile, func(context.Context, *reader) ([]byte, error) {
		data, err := ns.File("/etc/resolv.conf", bounds.Config)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errAbsent
		}
		return data, err
	}}
	if f, there := r.fileOf(ctx, resolver); there {
		return emit(f)
	}
	return nil
}

// within reads podSources in a pod's network namespace.
func (r *reader) within(ctx context.Context, ns *podns.Namespace, emit func(File) error) error {
	var mu sync.Mutex // of what follows, and of emit
	next, total := 0, 0
	take := func() []source {
		mu.Lock()
		defer mu.Unlock()
		if next == len(podSources) || ctx.Err() != nil {
			return nil
		}
		next++
		return podSources[next-1]
	}
	give := func(f File) error {
		mu.Lock()
		defer mu.Unlock()
		if total += len(f.Data); total > bounds.Node {
			total -= len(f.Data)
			f = File{Name: f.Name, Unread: "with the pod's other files it is larger than " + bounds.Bytes(bounds.Node)}
		}
		return emit(f)
	}
	errs := make([]error, podThreads)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = ns.Within(func() error {
				for list := take(); list != nil; list = take() {
					for _, s := range list {
						if f, there := r.fileOf(ctx, s); there {
							if err := give(f); err != nil {
								return err
							}
						}
					}
				}
				return ctx.Err()
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// procNet reads files of /proc/net in the calling thread's network namespace, one behind the other: packet lists the
// sockets that take frames before IP does (net/packet/af_packet.c, packet_seq_show), and has a head; sockstat and
// sockstat6 count sockets (net/ipv4/proc.c, net/ipv6/proc.c).
func procNet(file string, names ...string) func(context.Context, *reader) ([]byte, error) {
	return func(context.Context, *reader) ([]byte, error) {
		var out []byte
		for _, name := range names {
			data, err := readProcNet(name)
			switch {
			case errors.Is(err, fs.ErrNotExist): // a kernel without CONFIG_PACKET, or without IPv6
			case err != nil:
				return nil, err
			}
			out = append(out, data...)
		}
		switch {
		case len(out) > bounds.SmallFile:
			return nil, bounds.TooLarge(file, bounds.SmallFile)
		case out == nil:
			return nil, errAbsent
		}
		return out, nil
	}
}

func readProcNet(name string) ([]byte, error) {
	f, err := os.Open("/proc/thread-self/net/" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, bounds.SmallFile+1))
}
