// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/netlink"
)

// Bounds of a dump.
const (
	// dumpTries is how often a ruleset is read that changes while it is.
	dumpTries = 5
	// receive is more than the kernel puts into one answer (netlink_dump in net/netlink/af_netlink.c: 32 KiB).
	receive = 64 << 10
	// dumpTime is how long the kernel may take for one answer, in seconds.
	dumpTime = 30
)

// errChanged says that the rules have changed while they were read.
var errChanged = errors.New("the rules change faster than they can be read")

// readNftNetlink asks the kernel for all of nf_tables, as nft does, without nft. What is left out are the rules of tables that
// iptables-save shows.
func readNftNetlink(ctx context.Context, r *reader) ([]byte, error) {
	if there, err := r.kernel.has("nf_tables"); err != nil {
		return nil, err
	} else if !there {
		return nil, errAbsent
	}
	managed := nftables.IPTables
	if !r.wants("iptables-nft-save.txt") || !r.wants("ip6tables-nft-save.txt") {
		managed = nil
	}
	s, err := openNetfilter()
	if err != nil {
		return nil, err
	}
	defer s.close()
	for range dumpTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var out []byte
		if out, err = s.ruleset(managed); err == nil {
			return out, nil
		}
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return nil, err
}

// netfilterSocket speaks to the kernel's nf_tables. It is for one caller at a time.
type netfilterSocket struct {
	fd    int
	seq   uint32
	roomy bool // it has room for the answers to many requests
	// changed tells that the rules have changed during the dump (NLM_F_DUMP_INTR).
	changed bool
}

func openNetfilter() (*netfilterSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("a netlink socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind a netlink socket", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: dumpTime}); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("a netlink socket's time limit", err)
	}
	return &netfilterSocket{fd: fd}, nil
}

func (s *netfilterSocket) close() { _ = unix.Close(s.fd) }

// ruleset returns the file: the header, and the kernel's answers.
func (s *netfilterSocket) ruleset(managed func(family, table string) bool) ([]byte, error) {
	before, err := s.generation()
	if err != nil {
		return nil, err
	}
	header := netlink.Header{Order: byteOrder(), Generation: before}
	if header.Interfaces, err = interfaceNames(); err != nil {
		return nil, err
	}
	var answers []byte
	for _, kind := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETSET} {
		if answers, err = s.dump(answers, kind, unix.NFPROTO_UNSPEC); err != nil {
			return nil, err
		}
	}
	var ask []netlink.OutlineTable
	ask, header.Left, err = netlink.Outline(answers, binary.NativeEndian, managed)
	if err != nil {
		return nil, err
	}
	var questions []question
	for _, t := range ask {
		questions = append(questions, question{kind: unix.NFT_MSG_GETRULE, family: t.Number, attrs: []attribute{{unix.NFTA_RULE_TABLE, t.Name}}})
		for _, set := range t.Sets {
			questions = append(questions, question{kind: unix.NFT_MSG_GETSETELEM, family: t.Number, keys: set.Counted, attrs: []attribute{
				{unix.NFTA_SET_ELEM_LIST_TABLE, t.Name}, {unix.NFTA_SET_ELEM_LIST_SET, set.Name},
			}})
		}
	}
	// Those of one kind together.
	slices.SortStableFunc(questions, func(a, b question) int { return cmp.Compare(min(a.keys, 1), min(b.keys, 1)) })
	line, err := header.Encode()
	if err != nil {
		return nil, err
	}
	parts, err := answersTo(append(line, answers...), questions)
	if err != nil {
		return nil, err
	}
	after, err := s.generation()
	if err != nil {
		return nil, err
	}
	if before != after {
		return nil, errChanged
	}
	out := parts[0]
	for _, p := range parts[1:] {
		out = append(out, p...)
	}
	return out, nil
}

// question is a request for a dump.
type question struct {
	kind   uint16
	family uint8
	attrs  []attribute
	keys   int // of NFT_MSG_GETSETELEM: ask for the elements 0 to keys-1, see [netlink.OutlineSet]
}

// askers is how many sockets ask at once, at most. The kernel goes through all sets of a table for each request for the elements of one, three
// times for all elements and once for some (nf_tables_dump_set, nf_tables_getsetelem), which takes most of the time: kube-proxy has a map without
// a name in the rule of each Service.
const askers = 8

// elementRoom is about what the kernel answers for one element, in bytes.
const elementRoom = 192

// answersTo asks questions side by side, and appends to what there is. Which answer is in which part does not matter; there is one at least.
func answersTo(first []byte, questions []question) (parts [][]byte, err error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	elements := 0
	for i := range questions {
		elements += min(questions[i].keys, maxKeys)
	}
	parts = make([][]byte, max(1, min(askers, runtime.NumCPU(), (len(questions)+together-1)/together)))
	// Room for about all of it, as growing copies.
	parts[0] = append(make([]byte, 0, len(first)+elements*elementRoom+4*receive), first...)
	for i := range parts[1:] {
		parts[i+1] = make([]byte, 0, elements*elementRoom/len(parts)+4*receive)
	}
	errs := make([]error, len(parts))
	for i := range parts {
		wg.Go(func() {
			s, err := openNetfilter()
			if err != nil {
				errs[i] = err
				return
			}
			defer s.close()
			for errs[i] == nil {
				n := int(next.Add(together)) - together
				if n >= len(questions) {
					return
				}
				parts[i], errs[i] = s.answers(parts[i], questions[n:min(n+together, len(questions))])
			}
			next.Store(int64(len(questions))) // nobody needs the other answers
		})
	}
	wg.Wait()
	return parts, errors.Join(errs...)
}

func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

func interfaceNames() (map[int]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("the names of interfaces: %w", err)
	}
	out := make(map[int]string, len(all))
	for _, i := range all {
		out[i.Index] = i.Name
	}
	return out, nil
}

// generation returns the number of the ruleset's state (NFT_MSG_GETGEN).
func (s *netfilterSocket) generation() (uint32, error) {
	answer, err := s.ask(nil, unix.NFT_MSG_GETGEN, 0, unix.NFPROTO_UNSPEC)
	if err != nil {
		return 0, err
	}
	for rest := answer[min(unix.SizeofNlMsghdr+nfgenSize, len(answer)):]; len(rest) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofNlAttr || size > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == unix.NFTA_GEN_ID && size == unix.SizeofNlAttr+4 {
			return binary.BigEndian.Uint32(rest[unix.SizeofNlAttr:]), nil
		}
		rest = rest[min(aligned(size), len(rest)):]
	}
	return 0, errors.New("the kernel does not tell the generation of its rules")
}

// attribute is one of a request, a string.
type attribute struct {
	kind uint16
	text string
}

func (a *attribute) append(out []byte) []byte {
	size := unix.SizeofNlAttr + len(a.text) + 1
	out = binary.NativeEndian.AppendUint16(out, uint16(size)) //nolint:gosec // names have at most 255 bytes
	out = binary.NativeEndian.AppendUint16(out, a.kind)
	out = append(out, a.text...)
	return append(out, make([]byte, aligned(size)-size+1)...)
}

// nfgenSize is that of struct nfgenmsg.
const nfgenSize = 4

func aligned(n int) int { return (n + 3) &^ 3 }

// dump appends all messages of a kind. What is gone by now is a change.
func (s *netfilterSocket) dump(out []byte, kind uint16, family uint8, attrs ...attribute) ([]byte, error) {
	s.changed = false
	out, err := s.ask(out, kind, unix.NLM_F_DUMP, family, attrs...)
	if errors.Is(err, unix.ENOENT) || err == nil && s.changed {
		return out, errChanged
	}
	return out, err
}

// ask sends a request, and appends the messages of the answer as the kernel gives them (struct nlmsghdr, struct nfgenmsg, attributes).
func (s *netfilterSocket) ask(out []byte, kind, flags uint16, family uint8, attrs ...attribute) ([]byte, error) {
	s.seq++
	req := make([]byte, unix.SizeofNlMsghdr+nfgenSize, 128)
	req[unix.SizeofNlMsghdr] = family
	for _, a := range attrs {
		req = a.append(req)
	}
	binary.NativeEndian.PutUint32(req, uint32(len(req))) //nolint:gosec // a few hundred bytes
	binary.NativeEndian.PutUint16(req[4:], unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(req[8:], s.seq)
	if err := unix.Sendto(s.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return out, os.NewSyscallError("a request to nf_tables", err)
	}
	for done := false; !done; {
		if cap(out)-len(out) < receive {
			out = append(make([]byte, 0, 2*cap(out)+2*receive), out...)
		}
		n, from, err := unix.Recvfrom(s.fd, out[len(out):len(out)+receive], unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return out, os.NewSyscallError("an answer of nf_tables", err)
		case n > receive:
			return out, fmt.Errorf("nf_tables answers with %d bytes at once, where %d were expected at most", n, receive)
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // not from the kernel
		}
		var used int
		if used, done, err = s.answer(out[len(out) : len(out)+n]); err != nil {
			return out, err
		}
		out = out[:len(out)+used]
		done = done || flags&unix.NLM_F_DUMP == 0
	}
	return out, nil
}

// answer looks at the messages that came together: how many bytes of them are to be kept, and whether they are the last. An answer to
// a request that was given up is passed over.
func (s *netfilterSocket) answer(got []byte) (used int, done bool, err error) {
	for used < len(got) {
		m := got[used:]
		if len(m) < unix.SizeofNlMsghdr {
			return used, true, errors.New("nf_tables answers with half a message")
		}
		size := int(binary.NativeEndian.Uint32(m))
		kind, flags := binary.NativeEndian.Uint16(m[4:]), binary.NativeEndian.Uint16(m[6:])
		switch {
		case size < unix.SizeofNlMsghdr || size > len(m):
			return used, true, errors.New("nf_tables answers with half a message")
		case binary.NativeEndian.Uint32(m[8:]) != s.seq:
			return 0, false, nil
		}
		s.changed = s.changed || flags&unix.NLM_F_DUMP_INTR != 0
		if kind == unix.NLMSG_ERROR || kind == unix.NLMSG_DONE {
			if size >= unix.SizeofNlMsghdr+4 {
				if code := int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])); code < 0 { //nolint:gosec // it is an int in the kernel
					return used, true, os.NewSyscallError("nf_tables", unix.Errno(-code))
				}
			}
			return used, true, nil
		}
		used += aligned(size)
	}
	return min(used, len(got)), false, nil
}
