// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// readPrograms lists what packets meet that is not a rule: queues and filters of tc, and programs of BPF that are
// attached to interfaces (tcx), to control groups, and to netfilter's hooks. XDP programs are in the listing of
// interfaces. What the kernel has not, or refuses, is a line that begins with "#".
func readPrograms(_ context.Context, r *reader) ([]byte, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("the interfaces: %w", err)
	}
	var out bytes.Buffer
	failed := map[string]error{}
	all, err := readQueues()
	if err != nil {
		failed["queues of tc"] = err
	}
	for _, link := range links {
		name := link.Attrs().Name
		for _, d := range directions {
			var list []netlink.Filter
			if d.name != "egress" || !ingressOnly(link, all) { // the kernel would list those of the other direction
				list, err = netlink.FilterList(link, d.parent)
				// EINVAL: the interface has no qdisc for them.
				if err != nil && !errors.Is(err, unix.EINVAL) {
					failed["filters of tc"] = err
				}
			}
			for _, f := range list {
				fmt.Fprintf(&out, "tc %s %s filter protocol %s pref %d %s handle 0x%x\n", name, d.name,
					protocolOf(f.Attrs().Protocol), f.Attrs().Priority, filterText(f), f.Attrs().Handle)
			}
			if d.name == "egress" {
				for _, list := range []func(*bytes.Buffer, netlink.Link, []queue) error{queues, classes} {
					if err := list(&out, link, all); err != nil {
						failed["queues of tc"] = err
					}
				}
			}
			ids, err := queryPrograms(uint32(link.Attrs().Index), d.tcx, 0) //nolint:gosec // an index of an interface
			if err != nil && !errors.Is(err, unix.EINVAL) {
				failed["programs of tcx"] = err
			}
			for _, id := range ids {
				fmt.Fprintf(&out, "tcx %s %s program %d\n", name, d.name, id)
			}
		}
	}
	if err := cgroupPrograms(&out, r.Root); err != nil {
		failed["programs of control groups"] = err
	}
	if err := arptables(&out); err != nil {
		failed["rules of arptables"] = err
	}
	if err := netfilterPrograms(&out); err != nil {
		failed["programs of netfilter"] = err
	}
	for _, what := range []string{
		"filters of tc", "queues of tc", "programs of tcx", "programs of control groups", "programs of netfilter",
		"rules of arptables",
	} {
		if err := failed[what]; err != nil {
			fmt.Fprintf(&out, "# %s were not read: %s\n", what, sentence(err))
		}
	}
	if out.Len() == 0 {
		out.WriteString("# nothing is attached\n") // that it was read counts
	}
	return out.Bytes(), nil
}

// directions are those of the clsact qdisc, with the attach types of tcx (enum bpf_attach_type).
var directions = []struct {
	name   string
	parent uint32
	tcx    uint32
}{{"ingress", netlink.HANDLE_MIN_INGRESS, 46}, {"egress", netlink.HANDLE_MIN_EGRESS, 47}}

// protocolOf names the protocol of a filter as tc does.
func protocolOf(n uint16) string {
	names := map[uint16]string{
		unix.ETH_P_ALL: "all", unix.ETH_P_IP: "ip", unix.ETH_P_IPV6: "ipv6", unix.ETH_P_ARP: "arp",
		unix.ETH_P_8021Q: "802.1Q", unix.ETH_P_8021AD: "802.1ad",
	}
	if name := names[n]; name != "" {
		return name
	}
	return fmt.Sprintf("[%d]", n)
}

func filterText(f netlink.Filter) string {
	if b, ok := f.(*netlink.BpfFilter); ok {
		return fmt.Sprintf("bpf %s id %d", strings.Join(strings.Fields(b.Name), " "), b.Id)
	}
	return f.Type()
}

// The types of programs that are attached to control groups (enum bpf_prog_type).
const (
	groupPackets   = 8  // BPF_PROG_TYPE_CGROUP_SKB
	groupAddresses = 18 // BPF_PROG_TYPE_CGROUP_SOCK_ADDR
)

// cgroupHook is an attach type (enum bpf_attach_type), with the type of program that it takes
// (attach_type_to_prog_type in kernel/bpf/syscall.c).
type cgroupHook struct {
	name          string
	typ, programs uint32
}

// cgroupHooks are those of programs that see a process's connections and packets.
var cgroupHooks = []cgroupHook{
	{"connect4", 10, groupAddresses},
	{"connect6", 11, groupAddresses},
	{"sendmsg4", 14, groupAddresses},
	{"sendmsg6", 15, groupAddresses},
	{"recvmsg4", 19, groupAddresses},
	{"recvmsg6", 20, groupAddresses},
	{"ingress", 0, groupPackets},
	{"egress", 1, groupPackets},
}

// maxGroups and maxGroupDepth bound which control groups are looked at: those of each container of the 110 pods that a
// node has by default, and of its services, are some hundred.
const (
	maxGroups     = 4096
	maxGroupDepth = 8
)

// cgroupPrograms lists the programs of the control groups: those of the root see every process of the node, others
// those in the group and below.
func cgroupPrograms(out *bytes.Buffer, root string) error {
	if root == "" {
		return errors.New("the node's file system is not accessible")
	}
	for _, path := range []string{"sys/fs/cgroup/unified", "sys/fs/cgroup"} {
		path = filepath.Join(root, path)
		if _, err := os.Stat(filepath.Join(path, "cgroup.controllers")); err != nil {
			continue // there is no version 2 here
		}
		return groupsBelow(out, path, hooksInUse())
	}
	return nil
}

// hooksInUse returns which attach types can have programs: those of which any is loaded. There are hundreds of control
// groups, and each would be asked for each attach type. Where the kernel does not tell which programs it has, all can.
func hooksInUse() []cgroupHook {
	loaded, err := loadedPrograms()
	return slices.DeleteFunc(slices.Clone(cgroupHooks), func(h cgroupHook) bool {
		return err == nil && !loaded[h.programs]
	})
}

// groupsBelow lists the programs of a tree of control groups, the root's first. A group that is removed meanwhile has
// none.
func groupsBelow(out *bytes.Buffer, root string, hooks []cgroupHook) error {
	if len(hooks) == 0 {
		return nil
	}
	left := maxGroups
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != root:
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		left--
		if left < 0 {
			return fmt.Errorf("there are more than %d control groups", maxGroups)
		}
		group := ""
		if rel != "." {
			group = "/" + rel
		}
		if err := cgroupProgramsOf(out, path, group, hooks); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if strings.Count(group, "/") == maxGroupDepth || isLeaf(path) {
			return filepath.SkipDir
		}
		return nil
	})
}

// isLeaf tells whether a folder has none in it, by its number of links (kernfs_refresh_inode in fs/kernfs/inode.c): a
// control group has some sixty files, and most have no group below.
func isLeaf(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Nlink == 2
}

func cgroupProgramsOf(out *bytes.Buffer, path, group string, hooks []cgroupHook) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if group != "" {
		group += " "
	}
	if strings.ContainsFunc(strings.TrimSuffix(group, " "), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil // no group of kubelet's or systemd's, and no word
	}
	for _, h := range hooks {
		ids, err := queryPrograms(uint32(dir.Fd()), h.typ, 0) //nolint:gosec // a small number
		if err != nil {
			return err
		}
		for _, id := range ids {
			fmt.Fprintf(out, "cgroup %s %sprogram %d\n", h.name, group, id)
		}
	}
	return nil
}

// The commands of bpf(2) that are used, and the type of links of netfilter (include/uapi/linux/bpf.h).
const (
	bpfNextProg   = 11
	bpfProgFD     = 13
	bpfInfo       = 15
	bpfQuery      = 16
	bpfLinkFD     = 30
	bpfNextLink   = 31
	linkNetfilter = 10

	maxPrograms = 64   // that are attached to one place
	maxLinks    = 4096 // and programs, of a node
)

func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (uintptr, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

// queryPrograms returns the programs that are attached to an interface or a control group (BPF_PROG_QUERY). A kernel
// that does not know the place has none.
func queryPrograms(target, typ, flags uint32) ([]uint32, error) {
	ids := make([]uint32, maxPrograms)
	attr := struct {
		target, typ, flags, attached uint32
		ids                          unsafe.Pointer // of 64 bits, as on every machine that the helper is built for
		count, _                     uint32
		_                            [4]uint64
	}{
		target: target, typ: typ, flags: flags, count: maxPrograms,
		ids: unsafe.Pointer(&ids[0]), //nolint:gosec // what bpf(2) takes
	}
	_, err := bpf(bpfQuery, unsafe.Pointer(&attr), unsafe.Sizeof(attr)) //nolint:gosec // what bpf(2) takes
	switch {
	case errors.Is(err, unix.ENOSPC):
		return ids, nil
	case errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.ENOENT),
		errors.Is(err, unix.E2BIG),
		errors.Is(err, unix.ENOSYS):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("bpf(BPF_PROG_QUERY): %w", err)
	}
	return ids[:min(attr.count, maxPrograms)], nil
}

// loadedPrograms returns which types of programs the kernel has. A program that is attached is among them, by whatever
// it is (bpf_prog_alloc_id in kernel/bpf/syscall.c).
func loadedPrograms() (map[uint32]bool, error) {
	types := map[uint32]bool{}
	id := uint32(0)
	for range maxLinks {
		fd, next, err := openNext(bpfNextProg, bpfProgFD, id)
		switch {
		case errors.Is(err, errLast):
			return types, nil
		case err != nil:
			return nil, err
		}
		id = next
		if fd < 0 {
			continue
		}
		var info struct {
			typ, _ uint32
			_      [32]uint64
		}
		//nolint:gosec // what bpf(2) takes
		err = infoOf(fd, unsafe.Pointer(&info), unsafe.Sizeof(info))
		if err != nil {
			return nil, err
		}
		types[info.typ] = true
	}
	return nil, fmt.Errorf("there are more than %d programs", maxLinks)
}

// netfilterPrograms lists the programs that are attached to netfilter's hooks. The kernel does not tell of which
// network namespace they are.
func netfilterPrograms(out *bytes.Buffer) error {
	families := map[uint32]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}
	hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
	id := uint32(0)
	for range maxLinks {
		fd, next, err := openNext(bpfNextLink, bpfLinkFD, id)
		switch {
		case errors.Is(err, errLast):
			return nil
		case err != nil:
			return err
		}
		id = next
		if fd < 0 {
			continue
		}
		var info struct {
			typ, id, program, _ uint32
			family, hook        uint32
			priority            int32
			flags               uint32
			_                   [8]uint64
		}
		//nolint:gosec // what bpf(2) takes
		err = infoOf(fd, unsafe.Pointer(&info), unsafe.Sizeof(info))
		if err != nil || info.typ != linkNetfilter || families[info.family] == "" || int(info.hook) >= len(hooks) {
			continue
		}
		fmt.Fprintf(out, "netfilter %s %s %d program %d\n", families[info.family], hooks[info.hook], info.priority,
			info.program)
	}
	return nil
}

// errLast says that there is none behind the one that was asked for, or that the kernel has none of this kind.
var errLast = errors.New("that was the last")

// openNext opens what is behind id, a program or a link, and returns its descriptor, below zero where it is gone
// meanwhile, and its id.
func openNext(nextCommand, openCommand uintptr, id uint32) (fd int, next uint32, err error) {
	ask := struct{ start, next, flags uint32 }{start: id}
	_, err = bpf(nextCommand, unsafe.Pointer(&ask), unsafe.Sizeof(ask)) //nolint:gosec // what bpf(2) takes
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return -1, 0, errLast
	case err != nil:
		return -1, 0, fmt.Errorf("bpf(BPF_OBJ_GET_NEXT_ID): %w", err)
	}
	open := struct{ id, next, flags uint32 }{id: ask.next}
	n, err := bpf(openCommand, unsafe.Pointer(&open), unsafe.Sizeof(open)) //nolint:gosec // what bpf(2) takes
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAGAIN): // gone, or not there yet
		return -1, ask.next, nil
	case err != nil:
		return -1, 0, fmt.Errorf("bpf(BPF_OBJ_GET_FD_BY_ID): %w", err)
	}
	return int(n), ask.next, nil
}

// infoOf asks what a descriptor is of, and closes it.
func infoOf(fd int, info unsafe.Pointer, size uintptr) error {
	defer unix.Close(fd)
	ask := struct {
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(fd), uint32(size), info} //nolint:gosec // small numbers
	if _, err := bpf(bpfInfo, unsafe.Pointer(&ask), unsafe.Sizeof(ask)); err != nil { //nolint:gosec // what bpf(2) takes
		return fmt.Errorf("bpf(BPF_OBJ_GET_INFO_BY_FD): %w", err)
	}
	return nil
}
