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
	objects struct {
		Program *ebpf.Program `ebpf:"svcproxy_drops"`
		packetsMaps
	}
	attached link.Link
	reader   *ringbuf.Reader
	reasons  map[uint32]string // nil: the kernel tells none
	inode    uint32            // of the network namespace
	ends     []End
}

// Open begins. No packet is reported before [Watcher.Watch]. The caller closes the Watcher. The error says what the
// kernel lacks, or refuses.
func Open() (w *Watcher, err error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return nil, err
	}
	w = &Watcher{inode: uint32(s.Ino)} //nolint:gosec // as the kernel has it (struct ns_common)
	if w.reasons, err = load(&w.objects, kept); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.reader, err = ringbuf.NewReader(w.objects.SvcproxySeen); err != nil {
		return w, err
	}
	if w.attached, err = attach(w.objects.Program, "kfree_skb"); err != nil {
		return w, err
	}
	return w, nil
}

// load loads the programs and maps of objects, with room for so many bytes of reports, and returns the names of the
// kernel's reasons; nil: it tells none. The error says what the kernel lacks.
func load(objects any, room uint32) (reasons map[uint32]string, err error) {
	kernel, err := btf.LoadKernelSpec()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, btf.ErrNotSupported) {
		return nil, errors.New("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
	}
	if err != nil {
		return nil, fmt.Errorf("the kernel's description of its types: %w", err)
	}
	if reasons, err = reasonsOf(kernel); err != nil {
		return nil, err
	}
	all, err := loadPackets()
	if err != nil {
		return nil, err
	}
	var spec packetsSpecs
	if err := all.Assign(&spec); err != nil {
		return nil, err
	}
	spec.SvcproxySeen.MaxEntries = room
	if reasons != nil {
		if err := spec.HasReason.Set(uint8(1)); err != nil {
			return nil, err
		}
	}
	if err := all.LoadAndAssign(objects, nil); err != nil {
		return nil, refused(err)
	}
	return reasons, nil
}

// reasonsOf returns the names of reasons; nil where the tracepoint has none as its third argument (before Linux 5.17).
func reasonsOf(kernel *btf.Spec) (map[uint32]string, error) {
	var hook *btf.Typedef
	if err := kernel.TypeByName("btf_trace_kfree_skb", &hook); err != nil {
		return nil, fmt.Errorf("the tracepoint kfree_skb: %w", err)
	}
	p, ok := btf.UnderlyingType(hook).(*btf.Pointer)
	if !ok {
		return nil, nil
	}
	f, ok := btf.UnderlyingType(p.Target).(*btf.FuncProto)
	if !ok || len(f.Params) < 4 { // after a context of its own
		return nil, nil
	}
	names, ok := btf.UnderlyingType(f.Params[3].Type).(*btf.Enum)
	if !ok || names.Name != reasonType {
		return nil, nil
	}
	reasons := map[uint32]string{}
	for _, v := range names.Values {
		reasons[uint32(v.Value)] = strings.TrimPrefix(v.Name, reasonPrefix) //nolint:gosec // an enum's
	}
	return reasons, nil
}

func attach(p *ebpf.Program, tracepoint string) (link.Link, error) {
	attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
	if err != nil {
		return nil, refused(err)
	}
	return attached, nil
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
	return errors.Join(err, w.objects.Program.Close(), w.objects.Close())
}

// Watch has the packets reported of which one of these is an end, in place of those before.
func (w *Watcher) Watch(ends ...End) error {
	for _, e := range w.ends {
		if err := w.objects.SvcproxyEnds.Delete(keyOf(e)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	w.ends = ends[:min(len(ends), maxEnds)]
	for _, e := range w.ends {
		if err := w.objects.SvcproxyEnds.Put(keyOf(e), []byte{1}); err != nil {
			return err
		}
	}
	_, err := w.Collect() // what is left of those before
	return err
}

// keyOf is an end as the program has it.
func keyOf(e End) *packetsEnd {
	key := &packetsEnd{Protocol: e.Protocol, Port: bigEndian(e.At.Port())}
	copy(key.Address[:], e.At.Addr().AsSlice())
	return key
}

// bigEndian is a port in the order of a packet, or of such a port in this machine's.
func bigEndian(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

// endOf reads an end that the program has written; is4 tells the family, which an address of 16 bytes does not.
func endOf(e *packetsEnd, is4 bool) netip.AddrPort {
	a := netip.AddrFrom16(e.Address)
	if is4 {
		a = netip.AddrFrom4([4]byte(e.Address[:4]))
	}
	return netip.AddrPortFrom(a, bigEndian(e.Port))
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
		e, err := eventOf(r.RawSample)
		if err != nil {
			return nil, err
		}
		p := Packet{Protocol: e.Source.Protocol, Reason: reasonName(w.reasons, e.Reason)}
		p.From, p.To = endsOf(e)
		switch e.Inode {
		case w.inode:
			if i, err := net.InterfaceByIndex(int(e.Device)); err == nil {
				p.Interface = i.Name
			}
		default:
			p.Elsewhere = e.Inode != 0
		}
		out, at = append(out, p), append(at, e.Location)
	}
	names, err := functions(at)
	for i := range out {
		out[i].Function = names[at[i]]
	}
	return out, err
}

// eventOf reads a report.
func eventOf(sample []byte) (*packetsEvent, error) {
	var e packetsEvent
	if _, err := binary.Decode(sample, binary.NativeEndian, &e); err != nil {
		return nil, fmt.Errorf("a report of %d bytes: %w", len(sample), err)
	}
	return &e, nil
}

// endsOf are both ends of a reported packet.
func endsOf(e *packetsEvent) (from, to netip.AddrPort) {
	// What comes after the first 4 bytes of both addresses is 0 for IPv4 alone: nobody sends from ::/32 to ::/32.
	is4 := [12]byte(e.Source.Address[4:]) == [12]byte{} && [12]byte(e.Target.Address[4:]) == [12]byte{}
	return endOf(&e.Source, is4), endOf(&e.Target, is4)
}

// reasonName is the name of a reason, or its number; empty where the kernel tells none.
func reasonName(names map[uint32]string, n uint32) string {
	if names == nil {
		return ""
	}
	if name := names[n]; name != "" {
		return name
	}
	return strconv.FormatUint(uint64(n), 10)
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
