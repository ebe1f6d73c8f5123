// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programFaults are those of what hangs on the path and is not netfilter's: BPF programs, classifiers, policies of
// IPsec. Nothing tells of a program what it does; that it is there is the finding.
func programFaults() []matrixFault {
	const drop = `bpf da bytecode '1,6 0 0 2'` // return TC_ACT_SHOT
	return []matrixFault{
		{
			name:  "a program of tc drops what a pod sends",
			make:  `once tc qdisc add dev $CV clsact; once tc filter add dev $CV ingress ` + drop,
			undo:  `tc qdisc del dev $CV clsact`,
			fails: all, named: `\btc\b|bpf|clsact|filter`, ci: true,
		},
		{
			name: "a filter of tc takes what goes to an endpoint to an interface that is down",
			make: `once ip link add ifbfault type ifb; once tc qdisc add dev eth0 clsact
				once tc filter add dev eth0 egress protocol ip u32 match ip dst $R/32 action mirred egress redirect dev ifbfault`,
			undo:  `tc qdisc del dev eth0 clsact; ip link del ifbfault`,
			fails: some, named: `\btc\b|u32|clsact|filter`,
		},
		{
			name:  "a queueing discipline without a filter",
			make:  `once tc qdisc add dev $CV clsact`,
			undo:  `tc qdisc del dev $CV clsact`,
			fails: none,
		},
		{
			name:  "the rate of the node's interface is limited",
			make:  `once tc qdisc add dev eth0 root tbf rate 1gbit burst 1mb latency 50ms`,
			undo:  `tc qdisc del dev eth0 root`,
			fails: none, unknownToo: true,
		},
		{
			name: "a filter of tc for other addresses",
			make: `once tc qdisc add dev eth0 clsact
				once tc filter add dev eth0 egress protocol ip u32 match ip dst 198.51.100.9/32 action mirred egress redirect dev lo`,
			undo:  `tc qdisc del dev eth0 clsact`,
			fails: none, unknownToo: true,
		},
		{
			name: "a program of tcx drops what a pod sends",
			hold: func(s *scene) (func(), error) {
				return s.attach(program{kind: unix.BPF_PROG_TYPE_SCHED_CLS, attach: attachTCXIngress, returns: 2, device: "CV"})
			},
			fails: all, named: `tcx|bpf`,
		},
		{
			name: "a program of XDP drops what a pod sends",
			hold: func(s *scene) (func(), error) {
				return s.attach(program{kind: unix.BPF_PROG_TYPE_XDP, attach: unix.BPF_XDP, returns: 1, device: "CV"})
			},
			fails: all, named: `xdp`,
		},
		{
			name: "a program of XDP lets everything pass",
			hold: func(s *scene) (func(), error) {
				return s.attach(program{kind: unix.BPF_PROG_TYPE_XDP, attach: unix.BPF_XDP, returns: 2, device: "CV"})
			},
			fails: none, unknownToo: true,
		},
		{
			name: "a program of netfilter drops what is forwarded",
			hold: func(s *scene) (func(), error) {
				return s.attach(program{kind: progNetfilter, attach: attachNetfilter, returns: 0})
			},
			fails: all, named: `bpf`,
		},
		{
			name: "a program refuses connections to the frontend", from: "node",
			hold: func(s *scene) (func(), error) {
				return s.attach(program{kind: unix.BPF_PROG_TYPE_CGROUP_SOCK_ADDR, attach: unix.BPF_CGROUP_INET4_CONNECT})
			},
			fails: all, named: `cgroup|bpf|connect`,
		},
		{
			// It sees the address before DNAT (nf_nat_decode_session), and not what is bridged.
			name:  "a policy of IPsec blocks what is forwarded to the frontend",
			make:  `once ip xfrm policy add src $C dst $S dir fwd action block`,
			undo:  `ip xfrm policy del src $C dst $S dir fwd`,
			fails: some, named: `xfrm|ipsec`,
		},
		{
			name:  "a policy of IPsec for what is forwarded to an endpoint, which has the frontend's address there",
			make:  `once ip xfrm policy add src $C dst $R dir fwd action block`,
			undo:  `ip xfrm policy del src $C dst $R dir fwd`,
			fails: none, unknownToo: true,
		},
		{
			name: "a policy of IPsec blocks what the node sends to an endpoint", from: "node",
			make:  `once ip xfrm policy add src 0.0.0.0/0 dst $R dir out action block`,
			undo:  `ip xfrm policy del src 0.0.0.0/0 dst $R dir out`,
			fails: some, named: `xfrm|ipsec`,
		},
		{
			name:  "a policy of IPsec is for other addresses",
			make:  `once ip xfrm policy add src 198.51.100.0/24 dst 198.51.100.0/24 dir fwd action block`,
			undo:  `ip xfrm policy del src 198.51.100.0/24 dst 198.51.100.0/24 dir fwd`,
			fails: none, unknownToo: true,
		},
	}
}

// What golang.org/x/sys/unix has no name for (include/uapi/linux/bpf.h).
const (
	progNetfilter    = 32
	attachNetfilter  = 45
	attachTCXIngress = 46
	xdpGeneric       = 1 << 1 // XDP_FLAGS_SKB_MODE
)

// program is a BPF program that returns a number; one for connections of a cgroup refuses those to the frontend.
type program struct {
	kind, attach uint32
	returns      int32
	device       string // the variable that names the interface
}

// instruction is one of BPF (struct bpf_insn).
type instruction struct {
	code      uint8
	registers uint8 // destination, source in the upper half
	offset    int16
	value     int32
}

// attach loads a program and attaches it on the node; it is gone when the link is closed.
func (s *scene) attach(p program) (release func(), err error) {
	text := []instruction{{code: 0xb7, value: p.returns}, {code: 0x95}} // r0 = returns; exit
	target, flags := 0, uint32(0)
	switch p.attach {
	case unix.BPF_CGROUP_INET4_CONNECT:
		address := net.ParseIP(s.vars["S"]).To4()
		text = []instruction{
			{code: 0x61, registers: 1<<4 | 2, offset: 4}, // r2 = ctx->user_ip4
			{code: 0xb7, value: 0},                       // r0 = refuse
			{code: 0x16, registers: 2, offset: 1, value: int32(binary.LittleEndian.Uint32(address))},
			{code: 0xb7, value: 1}, // where r2 is another: allow
			{code: 0x95},
		}
		group, err := os.MkdirTemp("", "cgroup")
		if err != nil {
			return nil, err
		}
		if err := unix.Mount("none", group, "cgroup2", 0, ""); err != nil {
			return nil, fmt.Errorf("cgroup2: %w", err)
		}
		defer func() {
			err = errors.Join(err, unix.Unmount(group, unix.MNT_DETACH), os.Remove(group))
		}()
		root, err := os.Open(group)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		target = int(root.Fd())
	case unix.BPF_XDP:
		flags = xdpGeneric
	}
	fd, err := load(p, text)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	link := -1
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			space, err := os.Open(s.spaces["node"])
			if err != nil {
				return err
			}
			defer space.Close()
			if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			if p.device != "" {
				device, err := net.InterfaceByName(s.vars[p.device])
				if err != nil {
					return err
				}
				target = device.Index
			}
			link, err = createLink(p, fd, target, flags)
			return err
		}()
	}()
	if err := <-done; err != nil {
		return nil, err
	}
	return func() { _ = unix.Close(link) }, nil
}

// bpf is the system call.
func bpf(command int, attributes []byte) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(&attributes[0])),
		uintptr(len(attributes)))
	runtime.KeepAlive(attributes)
	if errno != 0 {
		return -1, fmt.Errorf("bpf(%d): %w", command, errno)
	}
	return int(fd), nil
}

func load(p program, text []instruction) (int, error) {
	var code []byte
	for _, i := range text {
		code = append(code, i.code, i.registers)
		code = binary.NativeEndian.AppendUint16(code, uint16(i.offset))
		code = binary.NativeEndian.AppendUint32(code, uint32(i.value))
	}
	license := []byte("GPL\x00")
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&code[0])
	pin.Pin(&license[0])
	a := make([]byte, 128) // union bpf_attr, BPF_PROG_LOAD
	put := func(at int, v uint32) { binary.NativeEndian.PutUint32(a[at:], v) }
	put(0, p.kind)
	put(4, uint32(len(text)))
	binary.NativeEndian.PutUint64(a[8:], uint64(uintptr(unsafe.Pointer(&code[0]))))
	binary.NativeEndian.PutUint64(a[16:], uint64(uintptr(unsafe.Pointer(&license[0]))))
	put(68, p.attach) // expected_attach_type
	return bpf(unix.BPF_PROG_LOAD, a)
}

func createLink(p program, fd, target int, flags uint32) (int, error) {
	a := make([]byte, 64) // union bpf_attr, BPF_LINK_CREATE
	put := func(at int, v uint32) { binary.NativeEndian.PutUint32(a[at:], v) }
	put(0, uint32(fd))
	put(4, uint32(target))
	put(8, p.attach)
	put(12, flags)
	if p.attach == attachNetfilter {
		put(16, unix.NFPROTO_IPV4)
		put(20, unix.NF_INET_FORWARD)
		put(24, 17) // the priority, as an int: one that nobody has
	}
	return bpf(unix.BPF_LINK_CREATE, a)
}
