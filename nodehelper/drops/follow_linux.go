// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// Kind is what happened to a packet.
type Kind uint8

// The kinds.
const (
	Discarded Kind = iota
	In             // it came in by a device
	Out            // it was given to a device to be sent
)

const (
	// followed is how many bytes of reports the kernel keeps for a Follower until they are read: 14,000 packets. What
	// does not fit is counted.
	followed = 1 << 20
	// maxSights is how many different sights a Follower keeps.
	maxSights = 1 << 14
)

// Sight is where a packet was seen. Equal ones are counted.
type Sight struct {
	Kind Kind
	// Namespace is the inode of the network namespace; 0 where the kernel does not tell.
	Namespace uint32
	Device    uint32 // its index there; 0 where the packet has none at that moment
	Reset     bool   // it ends a connection of TCP (RST)
	Protocol  uint8
	From, To  netip.AddrPort
	Reason    string // of a discarded one, as of Packet
	Location  uint64 // of the kernel's code, of a discarded one
}

// Seen is a sight and how many packets were seen so.
type Seen struct {
	Sight

	Count int
}

// Follower has the kernel report where the packets of some flows come in, go out and are discarded, in all of its
// network namespaces.
type Follower struct {
	objects struct {
		Lost *ebpf.Program `ebpf:"svcproxy_lost"`
		In   *ebpf.Program `ebpf:"svcproxy_in"`
		Out  *ebpf.Program `ebpf:"svcproxy_out"`
		packetsMaps
	}
	attached []link.Link
	reader   *ringbuf.Reader
	reasons  map[uint32]string // nil: the kernel tells none

	once sync.Once
	done chan struct{} // closed when nothing is read any more; the fields below are the reader's until then
	at   map[Sight]int // its index in seen
	seen []Seen        // in the order in which they were first seen
	more bool          // there were more than are kept
	err  error         // of reading reports
}

// Follow begins to follow packets between servers and the addresses of clients. The caller closes the Follower. The
// error says what the kernel lacks, or refuses.
func Follow(servers []End, clients []netip.Addr) (f *Follower, err error) {
	f = &Follower{at: map[Sight]int{}, done: make(chan struct{})}
	if f.reasons, err = load(&f.objects, followed); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.release())
		}
	}()
	for _, e := range servers {
		ends := []End{e}
		for _, c := range clients {
			ends = append(ends, End{e.Protocol, netip.AddrPortFrom(c, 0)})
		}
		for _, e := range ends {
			if err := f.objects.SvcproxyEnds.Put(keyOf(e), []byte{1}); err != nil {
				return f, refused(err)
			}
		}
	}
	if f.reader, err = ringbuf.NewReader(f.objects.SvcproxySeen); err != nil {
		return f, err
	}
	for _, at := range []struct {
		tracepoint string
		program    *ebpf.Program
	}{{"kfree_skb", f.objects.Lost}, {"netif_receive_skb", f.objects.In}, {"net_dev_queue", f.objects.Out}} {
		a, err := attach(at.program, at.tracepoint)
		if err != nil {
			return f, err
		}
		f.attached = append(f.attached, a)
	}
	go f.read()
	return f, nil
}

// read takes the kernel's reports until the Follower stops.
func (f *Follower) read() {
	defer close(f.done)
	var r ringbuf.Record
	for {
		err := f.reader.ReadInto(&r)
		if errors.Is(err, ringbuf.ErrFlushed) {
			return // what had come was read before
		}
		var e *packetsEvent
		if err == nil {
			e, err = eventOf(r.RawSample)
		}
		if err != nil {
			f.err = err
			return
		}
		f.note(e)
	}
}

// note counts a report.
func (f *Follower) note(e *packetsEvent) {
	const reset = 0x04
	s := Sight{
		Kind: Kind(e.Kind), Namespace: e.Inode, Device: e.Device, Protocol: e.Source.Protocol, Location: e.Location,
		Reset: e.Flags&reset != 0,
	}
	s.From, s.To = endsOf(e)
	if s.Kind == Discarded {
		s.Reason = reasonName(f.reasons, e.Reason)
	}
	k, ok := f.at[s]
	switch {
	case ok:
		f.seen[k].Count++
	case len(f.seen) == maxSights:
		f.more = true
	default:
		f.at[s] = len(f.seen)
		f.seen = append(f.seen, Seen{s, 1})
	}
}

// Stop ends the following, and returns what was seen in the order of its first packets. missed tells that there was
// more than is kept. Nothing is returned the second time.
func (f *Follower) Stop() (seen []Seen, missed bool, err error) {
	f.once.Do(func() {
		// Without its programs nothing comes any more.
		err = errors.Join(f.detach(), f.reader.Flush())
		<-f.done
		var n uint64
		err = errors.Join(err, f.objects.SvcproxyMissed.Lookup(uint32(0), &n), f.err, f.release())
		seen, missed = f.seen, f.more || n > 0
	})
	return seen, missed, err
}

// Close is [Follower.Stop] where nobody asks for what was seen.
func (f *Follower) Close() error {
	_, _, err := f.Stop()
	return err
}

// detach has the programs run no more.
func (f *Follower) detach() error {
	var err error
	for _, a := range f.attached {
		err = errors.Join(err, a.Close())
	}
	f.attached = nil
	return err
}

// release gives up what the kernel holds.
func (f *Follower) release() error {
	err := f.detach()
	if f.reader != nil {
		err = errors.Join(err, f.reader.Close())
	}
	return errors.Join(err, f.objects.Lost.Close(), f.objects.In.Close(), f.objects.Out.Close(),
		f.objects.Close())
}

// Functions names the functions of the kernel that places in its code are in, where it tells.
func Functions(at []uint64) (map[uint64]string, error) { return functions(at) }
