// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// opener opens one file, of which at most limit bytes are asked for.
type opener func(limit int64) (content, error)

// read reads the file whole, uncompressed, if it has at most limit bytes.
func (o opener) read(limit int64) ([]byte, error) {
	c, err := o(limit)
	if err != nil {
		return nil, err
	}
	return c.read(limit)
}

// parts reads the file in parts, uncompressed, if it has at most limit bytes, as it says itself; it reads no more. What
// is wrong with it read tells.
func (o opener) parts(limit int64) (io.Reader, error) {
	c, err := o(limit)
	if err != nil {
		return nil, err
	}
	var r io.Reader = bytes.NewReader(c.data)
	size := int64(len(c.data))
	if c.compressed {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
		size = sizeToldBy(c.data)
	}
	if size > limit {
		return nil, bounds.TooLarge(c.name, limit)
	}
	return io.LimitReader(r, limit), nil
}

// content is that of a file of a snapshot, as it was read or received.
type content struct {
	name       string
	data       []byte
	compressed bool
}

// read returns the content uncompressed, if it has at most limit bytes.
func (c content) read(limit int64) ([]byte, error) {
	switch {
	case c.compressed:
		return unpack(c.name, c.data, limit)
	case int64(len(c.data)) > limit:
		return nil, bounds.TooLarge(c.name, limit)
	}
	return c.data, nil
}

// memory opens the content of a file of a snapshot, which may be compressed.
func memory(name string, data []byte) opener {
	return func(int64) (content, error) { return content{name, data, bytes.HasPrefix(data, gzipMagic)}, nil }
}

// plain opens a content that is not compressed.
func plain(name string, data []byte) opener {
	return func(int64) (content, error) { return content{name, data, false}, nil }
}

// gzipMagic begins what gzip writes (RFC 1952).
var gzipMagic = []byte{0x1f, 0x8b}

// unpack uncompresses a file's content, once: a file is not compressed twice.
func unpack(name string, data []byte, limit int64) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	size := sizeToldBy(data)
	// Of several members it is that of the last. Then the rest is counted: what grows as it is read takes memory.
	out, again, err := readSized(io.LimitReader(zip, limit+1), min(size, limit))
	if again {
		rest, counted := io.Copy(io.Discard, io.LimitReader(zip, limit-int64(len(out))+1))
		size, out = int64(len(out))+rest, nil
		if err = counted; err == nil {
			err = zip.Reset(bytes.NewReader(data))
		}
		if err == nil {
			out, err = readUpTo(name, zip, limit, size)
		}
	}
	switch {
	case int64(len(out)) > limit:
		return nil, bounds.TooLarge(name, limit)
	case bounds.Is(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s is damaged or cut off: %w", name, err)
	case bytes.HasPrefix(out, gzipMagic):
		return nil, bounds.Errorf("%s is compressed twice: a file that is compressed once by gzip, or not, was expected",
			name)
	}
	return out, nil
}

// sizeToldBy returns the uncompressed size of what gzip has written: its last four bytes (RFC 1952, ISIZE). They are
// not trusted beyond the largest compression ratio of deflate.
func sizeToldBy(data []byte) int64 {
	const most = 1032
	return min(int64(binary.LittleEndian.Uint32(data[max(0, len(data)-4):])), most*int64(len(data)))
}

// readUpTo reads all of r; about size bytes are expected. The error is a [bounds.Error] if there are more than limit.
// What it returns takes no more memory than that, nearly.
func readUpTo(name string, r io.Reader, limit, size int64) ([]byte, error) {
	r = io.LimitReader(r, limit+1)
	data, more, err := readSized(r, min(size, limit))
	if more {
		data, err = io.ReadAll(io.MultiReader(bytes.NewReader(data), r))
	}
	if int64(len(data)) > limit {
		return nil, bounds.TooLarge(name, limit)
	}
	return data, err
}

// readSized reads what is expected to be size bytes, and one byte more: more tells whether there is one, and maybe
// others.
func readSized(r io.Reader, size int64) (data []byte, more bool, err error) {
	data = make([]byte, size+1)
	n := 0
	for n < len(data) && err == nil {
		var k int
		k, err = r.Read(data[n:])
		n += k
	}
	if err == nil {
		return data, true, nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if n < len(data)/2 {
		return bytes.Clone(data[:n]), false, err
	}
	return data[:n], false, err
}

// Packed is the content of a file in memory, compressed where it is not small.
type Packed struct {
	data       []byte
	size       int64
	compressed bool
}

// Pack makes a Packed of a content, which must not change any more.
func Pack(data []byte) Packed { return Packed{data: data, size: int64(len(data))} }

// Len returns the size in bytes, uncompressed; Held that in memory.
func (p Packed) Len() int64 { return p.size }

// Held returns the size in memory, in bytes.
func (p Packed) Held() int64 { return int64(cap(p.data)) }

// Bytes returns the content.
func (p Packed) Bytes() ([]byte, error) {
	if !p.compressed {
		return p.data, nil
	}
	zip, err := gzip.NewReader(bytes.NewReader(p.data))
	if err != nil {
		return nil, err
	}
	return readUpTo("a file", zip, p.size, p.size)
}

// open opens a content that was received.
func (p Packed) open(name string) opener {
	return func(limit int64) (content, error) {
		if p.size > limit {
			return content{}, bounds.TooLarge(name, limit)
		}
		data, err := p.Bytes()
		return content{name, data, false}, err
	}
}

// packFrom is from how many bytes on a [Packer] compresses.
const packFrom = 256 << 10

// Packer makes a [Packed] of what is written to it. The zero Packer is empty.
type Packer struct {
	data bytes.Buffer
	zip  *gzip.Writer // nil while nothing was compressed
	size int64
}

// Write adds bytes.
func (p *Packer) Write(data []byte) (n int, err error) {
	p.size += int64(len(data))
	if p.zip == nil && p.size <= packFrom {
		return p.data.Write(data)
	}
	if p.zip == nil {
		first := p.data.Bytes()
		p.data = bytes.Buffer{}
		if p.zip, err = gzip.NewWriterLevel(&p.data, gzip.BestSpeed); err != nil {
			return 0, err
		}
		if _, err := p.zip.Write(first); err != nil {
			return 0, err
		}
	}
	return p.zip.Write(data)
}

// Len returns how many bytes were written, Held how many are in memory.
func (p *Packer) Len() int64 { return p.size }

// Held returns how many bytes are in memory.
func (p *Packer) Held() int64 { return int64(p.data.Len()) }

// Pack ends writing, and returns the content.
func (p *Packer) Pack() (Packed, error) {
	if p.zip != nil {
		if err := p.zip.Close(); err != nil {
			return Packed{}, err
		}
	}
	// A buffer has up to twice as much memory as it needs; an empty content is not nil.
	data := append([]byte{}, p.data.Bytes()...)
	return Packed{data: data, size: p.size, compressed: p.zip != nil}, nil
}

// errUnexpected tells whether an error is that of a text that is cut off.
func errUnexpected(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum)
}
