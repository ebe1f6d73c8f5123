// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/sockets"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// podSources are what is read within a pod's network namespace, all on one thread. Each does what it does on the
// goroutine that it is called on: another one is in the node's namespace.
var podSources = slices.Concat(saves, []source{
	{snapshot.NFTFile, readNft},
	{snapshot.IPSetFile, module("ip_set", command("ipset", "save"))},
	{snapshot.TimeFile, readTime},
}, routing, onPath, []source{
	{snapshot.ListenFile, readPodListeners},
	{snapshot.PacketFile, readPackets},
})

func collectPod(ctx context.Context, o Options, pod podns.Pod, emit func(File) error) error {
	ns, err := podns.Find(pod)
	if err != nil {
		return err
	}
	defer ns.Close()
	r := &reader{Options: o, kernel: newKernel(o.Root)}
	r.roots = r.programRoots()
	total := 0
	err = ns.Within(func() error {
		for _, s := range podSources {
			if err := ctx.Err(); err != nil {
				return err
			}
			f, there := r.fileOf(ctx, s)
			if !there {
				continue
			}
			if total += len(f.Data); total > bounds.Node {
				total -= len(f.Data)
				f = File{Name: f.Name, Unread: "with the pod's other files it is larger than " + bounds.Bytes(bounds.Node)}
			}
			if err := emit(f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
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

// readPodListeners lists sockets as readListeners does, with what sock_diag alone tells where the kernel has it: the
// limits of queues, and which sockets of IPv6 take IPv4, too, whose address ss prints as "*".
func readPodListeners(ctx context.Context, r *reader) ([]byte, error) {
	for _, m := range []string{"tcp_diag", "udp_diag"} {
		if there, err := r.kernel.has(m); err != nil || !there {
			return readListeners(ctx, r)
		}
	}
	list, err := sockets.Diagnosed()
	if err != nil {
		return readListeners(ctx, r)
	}
	plain := make([]sockets.Socket, len(list))
	for i := range list {
		plain[i] = list[i].Socket
	}
	return listing(plain, func(i int) string {
		if a := list[i].Local; a.Addr() == netip.IPv6Unspecified() && !list[i].V6Only {
			return "*:" + strconv.Itoa(int(a.Port()))
		}
		return shown(list[i].Local)
	})
}

// readPackets reads which sockets of the calling thread's network namespace take frames before IP does
// (net/packet/af_packet.c, packet_seq_show); its first line is a head.
func readPackets(context.Context, *reader) ([]byte, error) {
	f, err := os.Open("/proc/thread-self/net/packet")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent // a kernel without CONFIG_PACKET
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, bounds.SmallFile+1))
	if err == nil && len(data) > bounds.SmallFile {
		err = bounds.TooLarge(snapshot.PacketFile, bounds.SmallFile)
	}
	return data, err
}
