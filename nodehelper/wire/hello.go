// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/internal/peer"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// magic begins a hello. Its first byte is a control character, so that no text that merely speaks of the protocol is
// taken for one.
const magic = "\x16svcproxy-wire "

// NoHelloError says that what answers is no peer.
type NoHelloError struct {
	Noise string // what it wrote instead, printable
	Err   error  // why reading ended
}

// Error tells what was received instead of a hello.
func (e *NoHelloError) Error() string {
	switch {
	case e.Noise != "":
		return fmt.Sprintf("what answers is not svcproxy's node helper; it wrote: %s", e.Noise)
	case errors.Is(e.Err, io.EOF):
		return "it ended without any output"
	}
	return fmt.Sprintf("it did not answer: %v", e.Err)
}

// Unwrap returns Err.
func (e *NoHelloError) Unwrap() error { return e.Err }

func writeHello(w io.Writer, h peer.Peer) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = w.Write([]byte(magic + string(data) + "\n"))
	return err
}

// readHello passes over noise and reads a hello. It reads not one byte beyond the hello's line, as far as r's user can
// tell.
func readHello(r *bufio.Reader) (h peer.Peer, noise string, err error) {
	var seen []byte
	for !bytes.HasSuffix(seen, []byte(magic)) {
		c, err := r.ReadByte()
		if err == nil && len(seen) >= maxNoise {
			err = fmt.Errorf("no hello within %d bytes", maxNoise)
		}
		if err != nil {
			return peer.Peer{}, "", &NoHelloError{Noise: safetext.Line(string(seen), 1000), Err: err}
		}
		seen = append(seen, c)
	}
	noise = safetext.Line(string(bytes.TrimSuffix(seen, []byte(magic))), 1000)
	var line []byte
	for {
		c, err := r.ReadByte()
		if err != nil {
			return peer.Peer{}, noise, &NoHelloError{Noise: noise, Err: fmt.Errorf("its hello is cut off: %w", unexpected(err))}
		}
		if c == '\n' {
			break
		}
		if len(line) >= maxHello {
			err := fmt.Errorf("its hello is longer than %d bytes", maxHello)
			return peer.Peer{}, noise, &NoHelloError{Noise: noise, Err: err}
		}
		line = append(line, c)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return peer.Peer{}, noise, &NoHelloError{Noise: noise, Err: fmt.Errorf("its hello cannot be read: %w", err)}
	}
	h.Build = safetext.Line(h.Build, 200)
	return h, noise, nil
}

// unexpected makes of an end in the middle what it is.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
