// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// layout is where the kernel has what the program reads, in bytes from the beginning of its structures.
type layout struct {
	head, data, network, device int32 // of struct sk_buff
	socket, route               int32 // of struct sk_buff
	index, namespace            int32 // of struct net_device
	socketNamespace             int32 // of struct sock
	routeDevice                 int32 // of struct dst_entry
	inode                       int32 // of struct net
	// reason: the tracepoint has a reason as its third argument (since Linux 5.17).
	reason bool
}

// layoutOf reads the kernel's own description of its types.
func layoutOf(spec *btf.Spec) (l layout, err error) {
	for _, f := range []struct {
		at   *int32
		of   string
		path []string
	}{
		{&l.head, "sk_buff", []string{"head"}},
		{&l.data, "sk_buff", []string{"data"}},
		{&l.network, "sk_buff", []string{"network_header"}},
		{&l.device, "sk_buff", []string{"dev"}},
		{&l.socket, "sk_buff", []string{"sk"}},
		{&l.route, "sk_buff", []string{"_skb_refdst"}},
		{&l.socketNamespace, "sock", []string{"__sk_common", "skc_net", "net"}},
		{&l.routeDevice, "dst_entry", []string{"dev"}},
		{&l.index, "net_device", []string{"ifindex"}},
		{&l.namespace, "net_device", []string{"nd_net"}},
		{&l.inode, "net", []string{"ns", "inum"}},
	} {
		var s *btf.Struct
		if err := spec.TypeByName(f.of, &s); err != nil {
			return l, fmt.Errorf("struct %s: %w", f.of, err)
		}
		at, ok := offset(s, f.path)
		if !ok {
			return l, fmt.Errorf("struct %s has no %v", f.of, f.path)
		}
		*f.at = at
	}
	var hook *btf.Typedef
	if err := spec.TypeByName("btf_trace_kfree_skb", &hook); err != nil {
		return l, fmt.Errorf("the tracepoint kfree_skb: %w", err)
	}
	if p, ok := btf.UnderlyingType(hook).(*btf.Pointer); ok {
		if f, ok := btf.UnderlyingType(p.Target).(*btf.FuncProto); ok && len(f.Params) > 3 { // behind a context of its own
			e, ok := btf.UnderlyingType(f.Params[3].Type).(*btf.Enum)
			l.reason = ok && e.Name == reasonType
		}
	}
	return l, nil
}

// offset finds a member, also in members without a name. Those of a path are within each other.
func offset(t btf.Type, path []string) (at int32, ok bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		begin := int32(m.Offset.Bytes()) //nolint:gosec // of a structure
		switch {
		case m.Name == path[0] && len(path) == 1:
			return begin, true
		case m.Name == path[0]:
			at, ok = offset(m.Type, path[1:])
		case m.Name == "":
			at, ok = offset(m.Type, path)
		}
		if ok {
			return begin + at, true
		}
	}
	return 0, false
}

// What the program reports of a packet, and where it puts it together on its stack.
const (
	eventSize = 64
	endSize   = 20 // of one end: an address of 16 bytes, a port in network order, a protocol, a byte of nothing

	atLocation = 0  // of the code, 8 bytes
	atReason   = 8  // 4 bytes
	atDevice   = 12 // its index, 4 bytes
	atInode    = 16 // of its network namespace, 4 bytes
	atKind     = 20 // of the site, 1 byte
	atFlags    = 21 // of TCP, 1 byte
	atSource   = 24 // an end
	atTarget   = 44 // an end

	event   = -eventSize // the stack's offsets
	pointer = event - 8
	word    = pointer - 8
	header  = word - 40
	other   = header - 24
)

// site is a place in the kernel where the program runs: one of its tracepoints, whose first argument is the packet.
type site struct {
	name, tracepoint string
	kind             Kind
	// atData: the network header begins where the packet's data do; else where the packet says.
	atData bool
	// flows: packets are reported of which one end is among the watched, and the other one's address, too; else those
	// of which one end is.
	flows bool
}

// The sites. A packet's network header is set behind the tracepoint of received packets only
// (__netif_receive_skb_core in net/core/dev.c), where its data begin with it.
var (
	discarding = site{name: "svcproxy_drops", tracepoint: "kfree_skb", kind: Discarded} // net/core/skbuff.c
	following  = []site{
		{name: "svcproxy_lost", tracepoint: "kfree_skb", kind: Discarded, flows: true},
		{name: "svcproxy_in", tracepoint: "netif_receive_skb", kind: In, atData: true, flows: true},
		{name: "svcproxy_out", tracepoint: "net_dev_queue", kind: Out, flows: true},
	}
)

// program is the one that runs at a site: it reports packets of which one end is among the watched. missed counts those
// that there was no room for; it may be nil.
func program(at site, l layout, watched, events, missed *ebpf.Map) *ebpf.ProgramSpec {
	read := func(to int32, size int32, from asm.Register, at int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, to),
			asm.Mov.Imm(asm.R2, size),
			asm.Mov.Reg(asm.R3, from), asm.Add.Imm(asm.R3, at),
			asm.FnProbeReadKernel.Call(),
		}
	}
	move := func(from, to int16, size asm.Size) asm.Instructions {
		return asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, from, size), asm.StoreMem(asm.RFP, to, asm.R1, size),
		}
	}
	lookup := func(end int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, watched.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, end),
			asm.FnMapLookupElem.Call(),
		}
	}
	var code asm.Instructions
	add := func(parts ...asm.Instructions) {
		for _, p := range parts {
			code = append(code, p...)
		}
	}
	one := func(i ...asm.Instruction) { code = append(code, i...) }

	one(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R1, 0))
	for at := int16(0); at < eventSize; at += 8 {
		one(asm.StoreMem(asm.RFP, event+at, asm.R1, asm.DWord))
	}
	one(
		asm.LoadMem(asm.R7, asm.R6, 0, asm.DWord), // the packet
		asm.StoreImm(asm.RFP, event+atKind, int64(at.kind), asm.Byte),
	)
	if at.kind == Discarded {
		one(asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), asm.StoreMem(asm.RFP, event+atLocation, asm.R1, asm.DWord))
		if l.reason {
			one(asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord), asm.StoreMem(asm.RFP, event+atReason, asm.R1, asm.Word))
		}
	}
	if at.atData {
		add(read(pointer, 8, asm.R7, l.data))
		one(asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord))
	} else {
		add(read(pointer, 8, asm.R7, l.head), read(word, 2, asm.R7, l.network))
		one(
			asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord),
			asm.LoadMem(asm.R1, asm.RFP, word, asm.Half),
			asm.Add.Reg(asm.R8, asm.R1), // the network header
		)
	}
	add(read(header, 40, asm.R8, 0))
	one(
		asm.LoadMem(asm.R1, asm.RFP, header, asm.Byte),
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 4),
		asm.JEq.Imm(asm.R2, 4, "v4"), // RFC 791
		asm.JEq.Imm(asm.R2, 6, "v6"), // RFC 8200
		asm.Ja.Label("end"),

		asm.And.Imm(asm.R1, 0xf).WithSymbol("v4"), asm.LSh.Imm(asm.R1, 2),
		asm.Mov.Reg(asm.R9, asm.R8), asm.Add.Reg(asm.R9, asm.R1),
	)
	add(
		move(header+12, event+atSource, asm.Word), move(header+16, event+atTarget, asm.Word),
		move(header+9, event+atSource+18, asm.Byte), move(header+9, event+atTarget+18, asm.Byte),
	)
	one(
		asm.Ja.Label("ports"),
		asm.Mov.Reg(asm.R9, asm.R8).WithSymbol("v6"), asm.Add.Imm(asm.R9, 40),
	)
	for at := int16(0); at < 16; at += 4 {
		add(move(header+8+at, event+atSource+at, asm.Word), move(header+24+at, event+atTarget+at, asm.Word))
	}
	add(move(header+6, event+atSource+18, asm.Byte), move(header+6, event+atTarget+18, asm.Byte))
	ports := read(word, 4, asm.R9, 0)
	ports[0] = ports[0].WithSymbol("ports")
	add(ports, move(word, event+atSource+16, asm.Half), move(word+2, event+atTarget+16, asm.Half))
	if at.flows {
		// address has the address of an end looked up, as an end without a port.
		address := func(of int16) {
			for k := int16(0); k < endSize; k += 4 {
				add(move(event+of+k, other+k, asm.Word))
			}
			one(asm.StoreImm(asm.RFP, other+16, 0, asm.Half))
			add(lookup(other))
		}
		add(lookup(event + atSource))
		one(asm.JEq.Imm(asm.R0, 0, "target"))
		address(atTarget)
		one(asm.JNE.Imm(asm.R0, 0, "found"))
		target := lookup(event + atTarget)
		target[0] = target[0].WithSymbol("target")
		add(target)
		one(asm.JEq.Imm(asm.R0, 0, "end"))
		address(atSource)
	} else {
		add(lookup(event + atSource))
		one(asm.JNE.Imm(asm.R0, 0, "found"))
		add(lookup(event + atTarget))
	}
	one(
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMem(asm.R1, asm.RFP, event+atSource+18, asm.Byte).WithSymbol("found"),
		asm.JNE.Imm(asm.R1, unix.IPPROTO_TCP, "device"),
	)
	add(read(word, 1, asm.R9, 13), move(word, event+atFlags, asm.Byte)) // RFC 9293, 3.1

	// The namespace is that of the packet's device, else that of its socket, else that of its route's device.
	device := read(pointer, 8, asm.R7, l.device)
	device[0] = device[0].WithSymbol("device")
	add(device)
	one(asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord), asm.JEq.Imm(asm.R8, 0, "socket"))
	add(read(event+atDevice, 4, asm.R8, l.index), read(pointer, 8, asm.R8, l.namespace))
	one(asm.Ja.Label("namespace"))
	socket := read(pointer, 8, asm.R7, l.socket)
	socket[0] = socket[0].WithSymbol("socket")
	add(socket)
	one(asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord), asm.JEq.Imm(asm.R8, 0, "route"))
	add(read(pointer, 8, asm.R8, l.socketNamespace))
	one(asm.Ja.Label("namespace"))
	route := read(pointer, 8, asm.R7, l.route)
	route[0] = route[0].WithSymbol("route")
	add(route)
	one(
		asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord),
		asm.And.Imm(asm.R8, -8), // without its flags (SKB_DST_NOREF in include/linux/skbuff.h)
		asm.JEq.Imm(asm.R8, 0, "report"),
	)
	add(read(pointer, 8, asm.R8, l.routeDevice))
	one(asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord), asm.JEq.Imm(asm.R8, 0, "report"))
	add(read(pointer, 8, asm.R8, l.namespace))
	one(
		asm.LoadMem(asm.R8, asm.RFP, pointer, asm.DWord).WithSymbol("namespace"),
		asm.JEq.Imm(asm.R8, 0, "report"),
	)
	add(read(event+atInode, 4, asm.R8, l.inode))
	one(
		asm.LoadMapPtr(asm.R1, events.FD()).WithSymbol("report"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, event),
		asm.Mov.Imm(asm.R3, eventSize),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
	)
	if missed != nil {
		one(
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.StoreImm(asm.RFP, word, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, missed.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, word),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		)
	}
	one(
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
	return &ebpf.ProgramSpec{
		Name: at.name, Type: ebpf.RawTracepoint, Instructions: code,
		// The kernel lets only programs under such a licence read its memory (bpf_probe_read_kernel). This one is
		// available under the BSD 2-Clause License and the GPL, too.
		License: "Dual BSD/GPL",
	}
}

// errNoBTF says what the kernel lacks.
var errNoBTF = errors.New("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
