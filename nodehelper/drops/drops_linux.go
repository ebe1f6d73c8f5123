// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

const (
	// maxEnds is how many ends of connections are watched at most.
	maxEnds = 1024
	// kept is how many bytes of reports the kernel keeps until they are read: 2,000 packets. It discards the rest.
	kept = 1 << 17
	// most is how many reports are read at once.
	most = 2000
)

// reasonType is the kernel's list of reasons (include/net/dropreason-core.h), reasonPrefix what all of them begin with.
const (
	reasonType   = "skb_drop_reason"
	reasonPrefix = "SKB_DROP_REASON_"
)

// End is one end of a connection.
type End struct {
	Protocol uint8 // unix.IPPROTO_…
	At       netip.AddrPort
}

// Packet is a packet that the kernel discarded.
type Packet struct {
	// Reason is the kernel's name for it without its prefix ("IP_RPFILTER"), or a number; empty before Linux 5.17.
	Reason   string
	Function string // of the kernel, where that was; empty where it is not told
	// Interface is the name of the packet's device at that moment; empty where it has none, or if that is not one of the
	// network namespace that the Watcher was opened in.
	Interface string
	Elsewhere bool // the device is in another network namespace
	Protocol  uint8
	From, To  netip.AddrPort
}

// Watcher is told of discarded packets.
type Watcher struct {
	watched, events *ebpf.Map
	program         *ebpf.Program
	attached        link.Link
	reader          *ringbuf.Reader
	reasons         map[uint32]string
	inode           uint32 // of the network namespace
	hasReason       bool
	ends            []End
}

// Open begins. No packet is reported before [Watcher.Watch]. The caller closes the Watcher. The error says what the
// kernel lacks, or refuses.
func Open() (w *Watcher, err error) {
	l, reasons, err := kernel()
	if err != nil {
		return nil, err
	}
	w = &Watcher{reasons: reasons, hasReason: l.reason}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return w, err
	}
	w.inode = uint32(s.Ino) //nolint:gosec // as the kernel has it (struct ns_common)
	w.watched, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "svcproxy_ends", Type: ebpf.Hash, KeySize: endSize, ValueSize: 1, MaxEntries: maxEnds,
	})
	if err != nil {
		return w, refused(err)
	}
	w.events, err = ebpf.NewMap(&ebpf.MapSpec{Name: "svcproxy_drops", Type: ebpf.RingBuf, MaxEntries: kept})
	if err != nil {
		return w, refused(err)
	}
	if w.program, err = ebpf.NewProgram(program(discarding, l, w.watched, w.events, nil)); err != nil {
		return w, refused(err)
	}
	if w.reader, err = ringbuf.NewReader(w.events); err != nil {
		return w, err
	}
	w.attached, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: discarding.tracepoint, Program: w.program})
	if err != nil {
		return w, refused(err)
	}
	return w, nil
}

// kernel reads the kernel's description of its own types: where the program finds what it reports, and the names of
// reasons. The error says what the kernel lacks.
func kernel() (l layout, reasons map[uint32]string, err error) {
	spec, err := btf.LoadKernelSpec()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, btf.ErrNotSupported) {
		return l, nil, errNoBTF
	}
	if err != nil {
		return l, nil, fmt.Errorf("the kernel's description of its types: %w", err)
	}
	if l, err = layoutOf(spec); err != nil {
		return l, nil, err
	}
	reasons = map[uint32]string{}
	var names *btf.Enum
	if err := spec.TypeByName(reasonType, &names); err == nil {
		for _, v := range names.Values {
			reasons[uint32(v.Value)] = strings.TrimPrefix(v.Name, reasonPrefix) //nolint:gosec // an enum's
		}
	}
	return l, reasons, nil
}

// refused says what a kernel that does not take the program asks for.
func refused(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the helper may not load BPF programs (CAP_BPF and CAP_PERFMON, or kernel lockdown): %w", err)
	}
	return fmt.Errorf("the kernel rejects the BPF program: %w", err)
}

// Close ends the watching.
func (w *Watcher) Close() error {
	var err error
	if w.attached != nil {
		err = w.attached.Close()
	}
	if w.reader != nil {
		err = errors.Join(err, w.reader.Close())
	}
	return errors.Join(err, w.program.Close(), w.events.Close(), w.watched.Close())
}

// Watch has the packets reported of which one of these is an end, in place of those before.
func (w *Watcher) Watch(ends ...End) error {
	for _, e := range w.ends {
		if err := w.watched.Delete(keyOf(e)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	w.ends = ends[:min(len(ends), maxEnds)]
	for _, e := range w.ends {
		if err := w.watched.Put(keyOf(e), []byte{1}); err != nil {
			return err
		}
	}
	_, err := w.Collect() // what is left of those before
	return err
}

// keyOf is an end as the program has it.
func keyOf(e End) []byte {
	key := make([]byte, endSize)
	copy(key, e.At.Addr().AsSlice())
	binary.BigEndian.PutUint16(key[16:], e.At.Port())
	key[18] = e.Protocol
	return key
}

// endOf reads an end that the program has written; is4 tells the family, which an address of 16 bytes does not.
func endOf(key []byte, is4 bool) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(key[:16]))
	if is4 {
		a = netip.AddrFrom4([4]byte(key[:4]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(key[16:]))
}

// Collect returns the packets that were discarded since it was called last.
func (w *Watcher) Collect() ([]Packet, error) {
	var out []Packet
	var at []uint64
	w.reader.SetDeadline(time.Now())
	for len(out) < most {
		r, err := w.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		e := r.RawSample
		if len(e) < eventSize {
			return nil, errShort(e)
		}
		p := Packet{Protocol: e[atSource+18]}
		p.From, p.To = endsOf(e)
		if w.hasReason {
			p.Reason = reasonName(w.reasons, e)
		}
		inode, index := binary.NativeEndian.Uint32(e[atInode:]), binary.NativeEndian.Uint32(e[atDevice:])
		switch inode {
		case w.inode:
			if i, err := net.InterfaceByIndex(int(index)); err == nil {
				p.Interface = i.Name
			}
		default:
			p.Elsewhere = inode != 0
		}
		out, at = append(out, p), append(at, binary.NativeEndian.Uint64(e[atLocation:]))
	}
	names, err := functions(at)
	for i := range out {
		out[i].Function = names[at[i]]
	}
	return out, err
}

func errShort(e []byte) error {
	return fmt.Errorf("a report of %d bytes, where %d were expected", len(e), eventSize)
}

// endsOf are both ends of a reported packet.
func endsOf(e []byte) (from, to netip.AddrPort) {
	// What is behind the first 4 bytes of both addresses is 0 for IPv4 alone: nobody sends from ::/32 to ::/32.
	is4 := isZero(e[atSource+4:atSource+16]) && isZero(e[atTarget+4:atTarget+16])
	return endOf(e[atSource:], is4), endOf(e[atTarget:], is4)
}

// reasonName is the name of a report's reason, or its number.
func reasonName(names map[uint32]string, e []byte) string {
	n := binary.NativeEndian.Uint32(e[atReason:])
	if name := names[n]; name != "" {
		return name
	}
	return strconv.FormatUint(uint64(n), 10)
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// functions returns the names of the kernel's functions that addresses are in. A kernel that hides its addresses
// (kernel.kptr_restrict) names none.
func functions(at []uint64) (map[uint64]string, error) {
	names, begins := map[uint64]string{}, map[uint64]uint64{}
	if len(at) == 0 {
		return names, nil
	}
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return names, nil
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 || !strings.ContainsAny(f[1], "tTwW") {
			continue
		}
		begin, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil || begin == 0 {
			continue
		}
		for _, a := range at {
			if begin <= a && begin >= begins[a] {
				names[a], begins[a] = f[2], begin
			}
		}
	}
	return names, lines.Err()
}
