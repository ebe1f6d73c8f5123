// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The socket options of arptables, and the sizes and offsets of its structures on machines of 64 bits
// (include/uapi/linux/netfilter_arp/arp_tables.h).
const (
	arptInfo    = 96 // ARPT_SO_GET_INFO
	arptEntries = 97 // ARPT_SO_GET_ENTRIES

	arptEntry      = 192 // struct arpt_entry
	arptOffsets    = 164 // its target_offset and next_offset
	arptHead       = 40  // struct arpt_get_entries
	arptTargetName = 2   // struct xt_entry_target
	arptVerdict    = 32  // struct xt_standard_target

	maxArptables = 16 << 20 // bytes of a table
)

// arptGetInfo is struct arpt_getinfo.
type arptGetInfo struct {
	name                 [32]byte
	validHooks           uint32
	hookEntry, underflow [3]uint32
	nentries, size       uint32
}

// arptChains are the chains of the hooks NF_ARP_IN, NF_ARP_OUT and NF_ARP_FORWARD.
var arptChains = [3]string{"INPUT", "OUTPUT", "FORWARD"}

// arptables lists the rules of the kernel's own arptables, those of arptables-legacy; arptables-nft makes tables of
// nftables. Since Linux 5.15 a question about a table that the network namespace does not have makes it: only those are
// asked for that it has, which the kernel lists (xt_table_seq_ops in net/netfilter/x_tables.c).
func arptables(out *bytes.Buffer) error {
	names, err := os.ReadFile("/proc/thread-self/net/arp_tables_names")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for table := range strings.FieldsSeq(string(names)) {
		if err := arptable(out, table); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}

// arptable lists the rules of a table.
func arptable(out *bytes.Buffer, table string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info arptGetInfo
	copy(info.name[:len(info.name)-1], table)
	//nolint:gosec // what getsockopt(2) takes
	if err := arptAsk(fd, arptInfo, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info))); err != nil {
		return err
	}
	if info.size == 0 || info.size > maxArptables {
		return fmt.Errorf("its size is %d bytes", info.size)
	}
	data := make([]byte, arptHead+info.size)
	copy(data, info.name[:])
	binary.NativeEndian.PutUint32(data[32:], info.size)
	err = arptAsk(fd, arptEntries, unsafe.Pointer(&data[0]), uint32(len(data))) //nolint:gosec // getsockopt(2)
	runtime.KeepAlive(data)
	if err != nil {
		return err
	}
	return arptRules(out, table, &info, data[arptHead:])
}

func arptAsk(fd int, option uintptr, x unsafe.Pointer, size uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, option, uintptr(x),
		uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // what getsockopt(2) takes
	if errno != 0 {
		return errno
	}
	return nil
}

// errArptables is for what the kernel does not answer.
var errArptables = errors.New("its rules cannot be read")

// arptRules writes a line for each rule of a chain that a hook calls, as arptables-save prints it, and for each policy
// that drops. What the rule has besides is "…".
func arptRules(out *bytes.Buffer, table string, info *arptGetInfo, data []byte) error {
	for hook, chain := range arptChains {
		if info.validHooks&(1<<hook) == 0 {
			continue
		}
		first, policy := int(info.hookEntry[hook]), int(info.underflow[hook])
		for at := first; at <= policy; {
			if len(data)-at < arptEntry {
				return errArptables
			}
			e := data[at:]
			target, next := int(binary.NativeEndian.Uint16(e[arptOffsets:])), int(binary.NativeEndian.Uint16(e[arptOffsets+2:]))
			if target < arptEntry || next < target+arptVerdict+4 || next > len(e) {
				return errArptables
			}
			does := arptTarget(e[target:next])
			switch {
			case at < policy:
				fmt.Fprintf(out, "arptables %s %s%s -j %s\n", table, chain, arptMatch(e, target > arptEntry), does)
			case does != "ACCEPT":
				fmt.Fprintf(out, "arptables %s %s -j %s\n", table, chain, does)
			}
			at += next
		}
	}
	return nil
}

// arptTarget names what a rule does.
func arptTarget(b []byte) string {
	if name := word(b[arptTargetName : arptTargetName+29]); name != "" {
		return name
	}
	verdicts := map[int32]string{-1: "DROP", -2: "ACCEPT", -4: "QUEUE", -5: "RETURN"}
	v := int32(binary.NativeEndian.Uint32(b[arptVerdict:])) //nolint:gosec // a signed number
	if name := verdicts[v]; name != "" {
		return name
	}
	return "…" // a chain
}

// arptMatch writes the conditions of a rule (struct arpt_arp); more says that it has others.
func arptMatch(e []byte, more bool) string {
	const (
		inverted  = 160    // invflags
		inIface   = 1 << 0 // ARPT_INV_VIA_IN, and so on
		outIface  = 1 << 1
		sender    = 1 << 2
		target    = 1 << 3
		operation = 1 << 6
		anyElse   = ^uint16(inIface | outIface | sender | target | operation)
	)
	flags := binary.NativeEndian.Uint16(e[inverted:])
	var text strings.Builder
	add := func(not uint16, format string, args ...any) {
		text.WriteString(" ")
		if flags&not != 0 {
			text.WriteString("! ")
		}
		fmt.Fprintf(&text, format, args...)
	}
	iface := func(not uint16, option string, name, mask []byte) {
		n := bytes.IndexByte(mask, 0)
		if n < 0 {
			n = len(mask)
		}
		if n == 0 {
			return
		}
		if name = name[:n]; name[n-1] != 0 {
			name = append(slices.Clone(name), '+')
		}
		add(not, "%s %s", option, word(name))
	}
	address := func(not uint16, option string, ip, mask []byte) {
		ones := 0
		for _, b := range mask {
			for ; b&0x80 != 0; b <<= 1 {
				ones++
			}
			more = more || b != 0
		}
		if ones > 0 {
			add(not, "%s %s", option, netip.PrefixFrom(netip.AddrFrom4([4]byte(ip)), ones))
		}
	}
	iface(inIface, "-i", e[94:110], e[126:142])
	iface(outIface, "-o", e[110:126], e[142:158])
	address(sender, "-s", e[0:4], e[8:12])
	address(target, "-d", e[4:8], e[12:16])
	if mask := e[84:86]; mask[0] != 0 || mask[1] != 0 {
		add(operation, "--opcode %d", binary.BigEndian.Uint16(e[82:84]))
	}
	// The length and type of link-layer addresses, the addresses, and the protocol; arptables itself asks for Ethernet.
	some := func(b []byte) bool { return slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) }
	more = more || flags&anyElse != 0 || some(e[34:50]) || some(e[66:82]) || some(e[92:94])
	if e[17] != 0 && e[16] != 6 || some(e[88:90]) && binary.BigEndian.Uint16(e[86:88]) != 1 {
		more = true
	}
	if more {
		text.WriteString(" …")
	}
	return text.String()
}
