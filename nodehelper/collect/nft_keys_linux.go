// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// together is how many questions one socket takes at once.
	together = 32
	// maxKeys is how many elements of one set are asked for by their keys, and maxAsked of all that are asked for at once: the kernel answers
	// with a message for each, all of which have to wait in the socket.
	maxKeys, maxAsked = 64, 512
	// keyRoom is for these messages.
	keyRoom = 8 << 20
)

// answers asks questions one after the other; those for elements by their keys together.
func (s *netfilterSocket) answers(out []byte, questions []question) ([]byte, error) {
	var byKey []question
	asked := 0
	var err error
	for _, q := range questions {
		if q.keys > 0 && q.keys <= maxKeys {
			if asked+q.keys > maxAsked {
				if out, err = s.elements(out, byKey); err != nil {
					return out, err
				}
				byKey, asked = nil, 0
			}
			byKey, asked = append(byKey, q), asked+q.keys
			continue
		}
		if out, err = s.dump(out, q.kind, q.family, q.attrs...); err != nil {
			return out, err
		}
	}
	return s.elements(out, byKey)
}

// elements asks for elements by their keys, and for all elements of the sets that have not all of these.
func (s *netfilterSocket) elements(out []byte, sets []question) ([]byte, error) {
	if len(sets) == 0 {
		return out, nil
	}
	out, others, err := s.counted(out, sets)
	for _, q := range others {
		if err == nil {
			out, err = s.dump(out, q.kind, q.family, q.attrs...)
		}
	}
	return out, err
}

// counted sends a request for the elements of each set in one go, and appends the answers. others are the sets that lack an element.
func (s *netfilterSocket) counted(out []byte, sets []question) (all []byte, others []question, err error) {
	if !s.roomy {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, keyRoom); err != nil {
			return out, sets, nil //nolint:nilerr // there is another way to ask
		}
		s.roomy = true
	}
	first := s.seq + 1
	var requests []byte
	for i := range sets {
		s.seq++
		requests = sets[i].request(requests, s.seq, i == len(sets)-1)
	}
	if err := unix.Sendto(s.fd, requests, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return out, nil, os.NewSyscallError("a request to nf_tables", err)
	}
	// next is the set that is being answered, kept where its answers begin, and have how many there are.
	next, kept, have := 0, len(out), 0
	finish := func() {
		if have != sets[next].keys {
			others, out = append(others, sets[next]), out[:kept]
		}
		next, kept, have = next+1, len(out), 0
	}
	for next < len(sets) {
		if cap(out)-len(out) < receive {
			out = append(make([]byte, 0, 2*cap(out)+2*receive), out...)
		}
		n, from, err := unix.Recvfrom(s.fd, out[len(out):len(out)+receive], unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			return out[:kept], nil, errors.New("an answer of nf_tables was lost")
		case err != nil:
			return out, nil, os.NewSyscallError("an answer of nf_tables", err)
		case n > receive:
			return out, nil, fmt.Errorf("nf_tables answers with %d bytes at once, where %d were expected at most", n, receive)
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // not from the kernel
		}
		for got := out[len(out) : len(out)+n]; len(got) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(got))
			if size < unix.SizeofNlMsghdr || size > len(got) {
				return out, nil, errors.New("nf_tables answers with half a message")
			}
			about := int(binary.NativeEndian.Uint32(got[8:]) - first)
			for next < about && about < len(sets) {
				finish()
			}
			switch {
			case about != next:
			case binary.NativeEndian.Uint16(got[4:]) != unix.NLMSG_ERROR:
				out, have = append(out, got[:aligned(size)]...), have+1 // which is where it stands already
			default: // an element that is not there, or the end
				finish()
			}
			got = got[min(aligned(size), len(got)):]
		}
	}
	return out, others, nil
}

// request appends the message that asks for a set's elements (nf_tables_getsetelem in net/netfilter/nf_tables_api.c): there is an answer for each,
// or one that an element is not there. Of the last set's the end is told.
func (q *question) request(out []byte, seq uint32, last bool) []byte {
	begin := len(out)
	order := binary.NativeEndian
	out = append(out, make([]byte, unix.SizeofNlMsghdr+nfgenSize)...)
	out[begin+unix.SizeofNlMsghdr] = q.family
	for _, a := range q.attrs {
		out = a.append(out)
	}
	const (
		key      = unix.SizeofNlAttr + 4   // NFTA_DATA_VALUE
		inKey    = unix.SizeofNlAttr + key // NFTA_SET_ELEM_KEY
		inMember = unix.SizeofNlAttr + inKey
	)
	head := func(size int, kind uint16) {
		out = order.AppendUint16(out, uint16(size)) //nolint:gosec // maxKeys times some bytes
		out = order.AppendUint16(out, kind)
	}
	head(unix.SizeofNlAttr+q.keys*inMember, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED)
	for k := range q.keys {
		head(inMember, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED)
		head(inKey, unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED)
		head(key, unix.NFTA_DATA_VALUE)
		out = order.AppendUint32(out, uint32(k))
	}
	order.PutUint32(out[begin:], uint32(len(out)-begin)) //nolint:gosec // some hundred bytes
	order.PutUint16(out[begin+4:], unix.NFNL_SUBSYS_NFTABLES<<8|q.kind)
	flags := uint16(unix.NLM_F_REQUEST)
	if last {
		flags |= unix.NLM_F_ACK
	}
	order.PutUint16(out[begin+6:], flags)
	order.PutUint32(out[begin+8:], seq)
	return out
}
