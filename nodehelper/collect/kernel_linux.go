// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// kernel tells which modules of the kernel are available, built in or loaded. It makes no request that would load one:
// a request to a netlink family that is not registered does (request_module in nfnetlink_rcv_msg,
// genl_family_find_byname, inet_diag's handler lookup).
type kernel struct {
	modules func() (map[string]bool, error) // loaded ones
	builtin func() (map[string]bool, error)
	symbols func() (map[string]bool, error)
}

// symbolOf is a function of each module, which /proc/kallsyms contains if the module is available: for kernels without
// a modules.builtin.
var symbolOf = map[string]string{
	"nf_tables":            "nft_register_expr",
	"ip_set":               "ip_set_type_register",
	"ip_vs":                "register_ip_vs_scheduler",
	"nf_conntrack_netlink": "ctnetlink_dump_table",
	"nfnetlink_hook":       "nfnl_hook_dump",
	"xfrm_user":            "xfrm_user_rcv_msg",
	"tcp_diag":             "tcp_diag_dump",
	"udp_diag":             "udp_diag_dump",
	"wireguard":            "wg_get_device_dump",
}

func newKernel(root string) *kernel {
	return &kernel{
		modules: sync.OnceValues(func() (map[string]bool, error) {
			return names("/proc/modules", func(line string) string {
				name, _, _ := strings.Cut(line, " ")
				return name
			})
		}),
		builtin: sync.OnceValues(func() (map[string]bool, error) {
			var u unix.Utsname
			if err := unix.Uname(&u); err != nil {
				return nil, err
			}
			release := unix.ByteSliceToString(u.Release[:])
			return names(filepath.Join(root, "lib", "modules", release, "modules.builtin"), func(line string) string {
				return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(line), ".ko"), "-", "_")
			})
		}),
		symbols: builtinSymbols.read,
	}
}

// symbolTable tells which functions of symbolOf are in the kernel itself. Once they were read they are kept: there are
// some 200,000 symbols, and those that are built in never change. Behind a symbol of a module is the module's name.
type symbolTable struct {
	file string

	mu  sync.Mutex
	all map[string]bool // nil: it was not read so far
}

// builtinSymbols are those of the running kernel.
var builtinSymbols = &symbolTable{file: "/proc/kallsyms"}

func (s *symbolTable) read() (map[string]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		return s.all, nil
	}
	wanted := map[string]bool{}
	for _, name := range symbolOf {
		wanted[name] = true
	}
	all, err := names(s.file, func(line string) string {
		if name := line[strings.LastIndexByte(line, ' ')+1:]; wanted[name] {
			return name
		}
		return ""
	})
	if err == nil {
		s.all = all
	}
	return all, err
}

// asked are modules that answer when they are asked. A kernel that cannot load any may be: that is faster than to read
// its symbols.
var asked = map[string]func() (bool, error){"nf_tables": nftAnswers}

// HasNFTables tells whether the kernel has nf_tables, and does not load it for that. The error is why that is unknown.
func HasNFTables() (bool, error) { return newKernel("/").has("nf_tables") }

// has tells whether a module is available. The error is why that is unknown.
func (k *kernel) has(name string) (bool, error) {
	if _, err := os.Stat("/sys/module/" + name); err == nil {
		return true, nil
	}
	loaded, err := k.modules()
	switch {
	case errors.Is(err, fs.ErrNotExist): // so it is for a kernel without loadable modules
		if ask := asked[name]; ask != nil {
			return ask()
		}
	case err != nil:
		return false, err
	}
	if loaded[name] {
		return true, nil
	}
	builtin, err := k.builtin()
	if err == nil {
		if builtin[name] {
			return true, nil
		}
		return false, nil
	}
	symbols, symbolsErr := k.symbols()
	if symbolsErr != nil || len(symbols) == 0 {
		return false, fmt.Errorf("cannot determine whether the kernel has %s: %w", name, errors.Join(err, symbolsErr))
	}
	return symbols[symbolOf[name]], nil
}

// nftAnswers asks nf_tables for its generation (nfnetlink_rcv_msg in net/netfilter/nfnetlink.c: EINVAL where there is
// no such subsystem).
func nftAnswers() (bool, error) {
	_, err := nftGeneration()
	// EPROTONOSUPPORT is the error of a kernel without netfilter.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return false, nil
	}
	return err == nil, err
}

func nftGeneration() (uint32, error) {
	conn, err := netlink.Dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.Generation()
}

// names reads a file by lines.
func names(file string, of func(line string) string) (map[string]bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]bool{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		if name := of(s.Text()); name != "" {
			out[name] = true
		}
	}
	return out, s.Err()
}

// generation returns the number that the kernel gives to the state of this network namespace's nftables, and that each
// change makes another one (NFT_MSG_GETGEN, net/netfilter/nf_tables_api.c); 0 where there is none.
func (r *reader) generation() uint32 {
	if there, err := r.kernel.has("nf_tables"); err != nil || !there {
		return 0
	}
	return generationOf()
}
