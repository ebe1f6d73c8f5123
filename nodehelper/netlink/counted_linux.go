// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Counted is a request that is no dump, and that the kernel answers with a known number of messages.
type Counted struct {
	Request

	Answers int
}

// AppendCounted sends requests as one datagram and appends the messages that the kernel answers with, as [Conn.Append]
// does. Of the requests only the last is acknowledged, as the number of answers tells that a request was successful,
// and each message takes as long as an answer. incomplete are the indices of the requests with an error or another
// number of answers: nothing is appended for them.
//
// All answers wait in the socket, which needs a receive buffer that is large enough: see [Conn.SetReceiveBuffer]. It is
// an error (unix.ENOBUFS) if it was not.
func (c *Conn) AppendCounted(out []byte, requests []Counted) (all []byte, incomplete []int, err error) {
	if len(requests) == 0 {
		return out, nil, nil
	}
	batch := make([]Request, len(requests))
	for i := range requests {
		batch[i] = requests[i].Request
	}
	batch[len(batch)-1].Flags |= unix.NLM_F_ACK
	sent, err := c.send(batch...)
	if err != nil {
		return out, nil, err
	}
	// current is the request that is being answered, start where its answers begin, and count how many there are.
	current, start, count := 0, len(out), 0
	finish := func() {
		if count != requests[current].Answers {
			incomplete, out = append(incomplete, current), out[:start]
		}
		current, start, count = current+1, len(out), 0
	}
	for current < len(requests) {
		var datagram []byte
		if out, datagram, err = c.receiveBehind(out); err != nil {
			return out[:start], nil, err
		}
		for m, err := range Messages(datagram) {
			if err != nil {
				return out[:start], nil, err
			}
			about := int(m.Sequence - sent[0].Header.Sequence)
			for current < about && about < len(requests) {
				finish()
			}
			switch {
			case about != current: // an earlier request, or one that is finished
			case m.Type == netlink.Error: // of an answer that there is not, or the acknowledgement
				finish()
			default:
				out, count = append(out, m.raw...), count+1 // it was received at this place or behind it
			}
		}
	}
	return out, incomplete, nil
}
