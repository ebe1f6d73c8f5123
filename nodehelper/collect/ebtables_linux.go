// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The socket options of ebtables, and the sizes and offsets of its structures on machines of 64 bits
// (include/uapi/linux/netfilter_bridge/ebtables.h).
const (
	ebtInfo    = 128 // EBT_SO_GET_INFO
	ebtEntries = 129 // EBT_SO_GET_ENTRIES

	ebtChainHead = 48  // struct ebt_entries
	ebtRuleHead  = 112 // struct ebt_entry
	ebtRuleNext  = 108 // its next_offset

	maxEbtables = 16 << 20 // bytes of a table
)

// ebtReplace is struct ebt_replace.
type ebtReplace struct {
	name           [32]byte
	validHooks     uint32
	nentries, size uint32
	_              uint32
	hooks          [6]uint64
	counters, _    uint32
	_              uint64
	entries        unsafe.Pointer
}

// readEbtables lists the chains of the kernel's own ebtables (those of ebtables-legacy; ebtables-nft makes tables of
// nftables) that have rules, or a policy that drops. A question about a table whose module is not loaded would load it,
// and since Linux 5.15 one about a table that the network namespace does not have makes it, without rules
// (find_inlist_lock_noload in net/bridge/netfilter/ebtables.c): a table is asked for only where its module is in use,
// which it is while a table of some namespace has rules (do_replace_finish), and where the hooks do not tell otherwise.
func readEbtables(ctx context.Context, r *reader) ([]byte, error) {
	var there []string
	for _, table := range []string{"broute", "nat", "filter"} {
		has, err := r.kernel.has("ebtable_" + table)
		if err != nil {
			return nil, err
		}
		if has {
			there = append(there, table)
		}
	}
	makes, err := makesTables()
	if err != nil {
		return nil, err
	}
	if makes && len(there) > 0 {
		if there, err = ebtablesInUse(ctx, r, there); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	for _, table := range there {
		if err := ebtable(&out, table); err != nil {
			return nil, fmt.Errorf("table %s of ebtables: %w", table, err)
		}
	}
	if out.Len() == 0 {
		return nil, errAbsent
	}
	return out.Bytes(), nil
}

// ebtablesInUse are those of some tables that may have rules.
func ebtablesInUse(ctx context.Context, r *reader, tables []string) (used []string, err error) {
	hooks, err := module("nfnetlink_hook", command("nft", "list", "hooks"))(ctx, r)
	listed := err == nil
	for _, table := range tables {
		if listed && !bytes.Contains(hooks, []byte("[ebtable_"+table+"]")) {
			continue
		}
		count, err := os.ReadFile("/sys/module/ebtable_" + table + "/refcnt")
		switch {
		case err != nil && !listed:
			return nil, fmt.Errorf("whether table %s of ebtables is in use cannot be determined without creating it: "+
				"%w", table, err)
		case err == nil && strings.TrimSpace(string(count)) == "0":
			continue
		}
		used = append(used, table)
	}
	return used, nil
}

// makesTables tells whether the kernel makes a table of ebtables that somebody asks for: since Linux 5.15.
func makesTables() (bool, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false, err
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false, fmt.Errorf("the kernel's version: %w", err)
	}
	return major > 5 || major == 5 && minor >= 15, nil
}

// ebtable lists the chains of a table.
func ebtable(out *bytes.Buffer, table string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var x ebtReplace
	copy(x.name[:len(x.name)-1], table)
	if err := ebtAsk(fd, ebtInfo, &x, 0); err != nil {
		if errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.ENOENT) {
			return nil // there is no such table
		}
		return err
	}
	if x.size == 0 || x.size > maxEbtables {
		return fmt.Errorf("its size is %d bytes", x.size)
	}
	data := make([]byte, x.size)
	x.entries, x.counters = unsafe.Pointer(&data[0]), 0 //nolint:gosec // what getsockopt(2) takes
	err = ebtAsk(fd, ebtEntries, &x, x.size)
	runtime.KeepAlive(data)
	if err != nil {
		return err
	}
	return ebtChains(out, table, data)
}

// ebtAsk asks for a table. The size that the kernel wants to be told is that of the question with what the answer has
// behind it (copy_everything_to_user in net/bridge/netfilter/ebtables.c).
func ebtAsk(fd int, option uintptr, x *ebtReplace, behind uint32) error {
	size := uint32(unsafe.Sizeof(*x)) + behind
	//nolint:gosec // what getsockopt(2) takes
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, option,
		uintptr(unsafe.Pointer(x)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// errEbtables is for what the kernel does not answer.
var errEbtables = errors.New("its rules cannot be read")

// ebtChains writes a line for each chain of a table that is called by a hook and does something.
func ebtChains(out *bytes.Buffer, table string, data []byte) error {
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(data[at:]) }
	policies := map[int32]string{-1: "accept", -2: "drop", -3: "continue", -4: "return"}
	for at := 0; at < len(data); {
		if len(data)-at < ebtChainHead {
			return errEbtables
		}
		if word(at) != 0 { // a rule of the chain above
			if len(data)-at < ebtRuleHead {
				return errEbtables
			}
			next := int(word(at + ebtRuleNext))
			if next < ebtRuleHead || next > len(data)-at {
				return errEbtables
			}
			at += next
			continue
		}
		name := unix.ByteSliceToString(data[at+4 : at+36])
		policy, rules := policies[int32(word(at+40))], word(at+44) //nolint:gosec // a signed number
		if builtin := strings.ToUpper(name) == name; builtin && len(strings.Fields(name)) == 1 &&
			(rules > 0 || policy != "accept") {
			fmt.Fprintf(out, "ebtables %s %s %d rules policy %s\n", table, name, rules, policy)
		}
		at += ebtChainHead
	}
	return nil
}
