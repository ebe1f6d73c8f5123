// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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

// maxFile bounds one file in memory: far above any real dump, far below what a decompression bomb asks for.
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
			return slurp(p, f)
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
		data, err := readUpTo(tr, maxFile-total)
		if err != nil {
			return nil, fmt.Errorf("%s is damaged or cut off at %s: %w", name, h.Name, err)
		}
		total += int64(len(data))
		member := path.Clean(h.Name)
		files[strings.TrimPrefix(member, "/")] = memory(name+" "+member, data)
	}
}

func memory(name string, data []byte) opener {
	return func() ([]byte, error) { return slurp(name, bytes.NewReader(data)) }
}

// slurp reads a file that may be gzipped, whatever its name says.
func slurp(name string, r io.Reader) ([]byte, error) {
	plain, err := gunzip(r)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	data, err := readUpTo(plain, maxFile)
	if err != nil {
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

func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = errTooBig
	}
	return buf.Bytes(), err
}
