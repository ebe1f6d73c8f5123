// SPDX-License-Identifier: Apache-2.0

package random

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

type end uint8

func (e end) String() string { return [...]string{"dropped", "rejected", "sent", "delivered"}[e] }

type answer struct {
	end                end
	src, dst           netip.AddrPort // at the end, of what was sent or delivered
	in, out            string
	mark, ctmark       uint32
	untracked          bool
	events             []kerneltrace.Event // of the rules that were loaded
	err                error               // of the sending
	refusals, passages int
}

func (a *answer) String() string {
	if a.end < sent {
		if a.err != nil {
			return fmt.Sprintf("%v (%v)", a.end, a.err)
		}
		return a.end.String()
	}
	s := fmt.Sprintf("%v, %s > %s, in %q, out %q, mark %#x", a.end, a.src, a.dst, a.in, a.out, a.mark)
	if a.untracked {
		return s + ", untracked"
	}
	return s + fmt.Sprintf(", connmark %#x", a.ctmark)
}

var flush = packet{
	proto: netfilter.UDP, src: netip.MustParseAddrPort("10.77.0.1:9"),
	dst: netip.MustParseAddrPort("10.77.0.11:9"), in: "eth0",
}

func (w *kernelNode) send(p packet) (answer, error) {
	if _, err := w.tracer.Collect(0); err != nil {
		return answer{}, err
	}
	a := answer{err: w.put(p)}
	if err := w.put(flush); err != nil {
		return a, err
	}
	events, err := w.tracer.Read(func(e *kerneltrace.Event) bool { return e.Table == watcher && e.Chain == "through" },
		2*time.Second)
	if err != nil {
		return a, fmt.Errorf("after %d messages: %w", len(events), err)
	}
	ended := false
	for i := range events {
		e := &events[i]
		if e.Table != watcher {
			if !ended {
				a.events = append(a.events, *e)
			}
			continue
		}
		switch {
		case e.Handle == 0: // the end of a chain
		case e.Chain == "refused":
			a.refusals++
			a.end = max(a.end, refused)
		case e.Chain == "sent" || e.Chain == "delivered":
			if !e.Source.IsValid() {
				return a, errors.New("a trace message without the packet's headers")
			}
			ended = true
			a.passages++
			a.end = map[string]end{"sent": sent, "delivered": delivered}[e.Chain]
			a.src, a.dst = e.Source, e.Destination
			a.in, a.out, a.mark, a.untracked = w.links[e.In], w.links[e.Out], e.Mark, true
		case e.Chain == "ended" && e.Verdict == "continue":
			a.ctmark, a.untracked = e.Mark, false
		}
	}
	if a.passages+a.refusals > 1 {
		return a, fmt.Errorf("%v: it has ended %d times, and was refused %d times: who else sends here?", p,
			a.passages, a.refusals)
	}
	return a, nil
}

func (w *kernelNode) put(p packet) error {
	b := p.bytes()
	if p.in == "" {
		if p.v4() {
			return unix.Sendto(w.raw[true], b, 0, &unix.SockaddrInet4{Addr: p.dst.Addr().As4()})
		}
		return unix.Sendto(w.raw[false], b, 0, &unix.SockaddrInet6{Addr: p.dst.Addr().As16()})
	}
	wire := w.wires[p.in]
	typ := uint16(unix.ETH_P_IPV6)
	if p.v4() {
		typ = unix.ETH_P_IP
	}
	frame := append(append([]byte{}, wire.mac...), 2, 0, 0, 0, 0, 0x77)
	frame = append(binary.BigEndian.AppendUint16(frame, typ), b...)
	_, err := unix.Write(wire.fd, frame)
	return err
}
