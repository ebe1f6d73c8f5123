// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// opener reads one file whole, uncompressed.
type opener func() ([]byte, error)

// maxFile is the largest size of one file in memory, in bytes: far above any real dump, and a limit for decompression
// bombs.
const maxFile = 1 << 30

// list finds every file of a directory or archive, by its slash path.
func list(name string) (map[string]opener, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no snapshot at %s: give a directory or a .tar.gz", name)
	case err != nil:
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	case info.IsDir():
		// filepath.WalkDir follows no symbolic links, not even the root.
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return nil, fmt.Errorf("cannot read the snapshot: %w", err)
		}
		return listDir(name)
	}
	return listArchive(name)
}

func listDir(root string) (map[string]opener, error) {
	files := map[string]opener{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(rel)] = func() ([]byte, error) {
			f, err := os.Open(p)
			if err != nil {
				return nil, fmt.Errorf("cannot read the snapshot: %w", err)
			}
			defer f.Close()
			size := int64(0)
			if info, err := f.Stat(); err == nil {
				size = info.Size()
			}
			return readMaybeGzip(p, f, size)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	return files, nil
}

func listArchive(name string) (map[string]opener, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	defer f.Close()
	return readTar(name, f)
}

func readTar(name string, r io.Reader) (map[string]opener, error) {
	plain, err := gunzip(r)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	files := map[string]opener{}
	var total int64
	for tr := tar.NewReader(plain); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// gzip's checksum comes after the archive's own end.
			if _, err := io.Copy(io.Discard, plain); errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("%s is damaged or cut off: %w", name, err)
			}
			return files, nil
		}
		if err != nil {
			if len(files) == 0 && errors.Is(err, tar.ErrHeader) {
				return nil, fmt.Errorf("%s is neither a directory nor a .tar.gz", name)
			}
			return nil, fmt.Errorf("%s is damaged or cut off: %w", name, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := readUpTo(tr, maxFile-total, min(h.Size, 1<<20))
		if err != nil {
			return nil, fmt.Errorf("%s is damaged or cut off at %s: %w", name, h.Name, err)
		}
		total += int64(len(data))
		member := path.Clean(h.Name)
		files[strings.TrimPrefix(member, "/")] = memory(name+" "+member, data)
	}
}

func memory(name string, data []byte) opener {
	return func() ([]byte, error) { return unpack(name, data) }
}

// readMaybeGzip reads a file, and uncompresses it if its content is compressed with gzip.
func readMaybeGzip(name string, r io.Reader, size int64) ([]byte, error) {
	data, err := readUpTo(r, maxFile, size)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return unpack(name, data)
}

// unpack uncompresses a file's content if it is compressed.
func unpack(name string, data []byte) ([]byte, error) {
	plain, err := gunzip(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	if _, compressed := plain.(*gzip.Reader); !compressed {
		return data, nil
	}
	// The last four bytes of gzip are the uncompressed size (RFC 1952, ISIZE). It is not trusted beyond the largest
	// compression ratio of deflate.
	const most = 1032
	size := min(int64(binary.LittleEndian.Uint32(data[max(0, len(data)-4):])), most*int64(len(data)))
	if data, err = readUpTo(plain, maxFile, size); err != nil {
		return nil, fmt.Errorf("%s is damaged or cut off: %w", name, err)
	}
	return data, nil
}

// gunzip returns the plain text of r, which is compressed if it starts with gzip's magic number (RFC 1952).
func gunzip(r io.Reader) (io.Reader, error) {
	var magic [2]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	whole := io.MultiReader(bytes.NewReader(magic[:n]), r)
	if magic != [2]byte{0x1f, 0x8b} {
		return whole, nil
	}
	return gzip.NewReader(whole)
}

var errTooBig = fmt.Errorf("it is larger than %d bytes", maxFile)

// readUpTo reads all of r; about size bytes are expected.
func readUpTo(r io.Reader, limit, size int64) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(int(min(size, limit)) + bytes.MinRead)
	n, err := io.Copy(&buf, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = errTooBig
	}
	return buf.Bytes(), err
}
