// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// archive is an archive on a disk that is too large to be kept in memory. Nothing in it can be found but by reading
// it from its beginning, so its nodes are read in its order (see [archive.nodes]).
type archive struct {
	path string
	info os.FileInfo // when it was listed
	// of the nodes' files, in the archive's order
	members []archived
	nodes   map[string]*archivedNode
}

// archived is a member.
type archived struct {
	node, file string // file is its name in the contract
	size       int64
}

// archivedNode is what the members of a node are together.
type archivedNode struct {
	first, last int   // in archive.members
	size        int64 // of its members, in bytes, as they are in the archive
}

// openArchive reads an archive once, and checks all of it: what it lists, its sizes, its checksum. The cluster's
// objects stay in memory, and the nodes' files unless they have more than bounds.Kept bytes.
func openArchive(name string, info os.FileInfo) (*Snapshot, error) {
	l := &lister{
		index: newIndex(name), archive: &archive{path: name, info: info, nodes: map[string]*archivedNode{}},
		files: map[string]opener{},
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	}
	defer f.Close()
	return l.list(f)
}

// lister is an archive that is being listed.
type lister struct {
	*index
	archive *archive

	files         map[string]opener // nil: a file of a node that is not kept
	kept, cluster int64
	dropped       bool // the nodes' files are not kept
}

// list lists an archive.
func (l *lister) list(r io.Reader) (*Snapshot, error) {
	if err := readTar(l.path, r, l.member); err != nil {
		return nil, err
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	s := &Snapshot{path: l.path, files: l.files}
	if l.dropped {
		s.archive = l.archive
	}
	return s, nil
}

// member takes a member of the archive.
func (l *lister) member(h *tar.Header, r io.Reader) error {
	if err := l.count(); err != nil {
		return err
	}
	name, err := memberName(l.path, h)
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
		link := h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink
		return l.refuse(name, memberKind(h.Typeflag), link && structural(name))
	}
	if h.Size > bounds.File {
		return bounds.TooLarge(l.path+" "+name, bounds.File)
	}
	file, err := l.add(name)
	if err != nil || file == "" {
		return err
	}
	full := l.path + " " + name
	if node, ok := nodeOf(file); ok {
		return l.node(full, node, file, h.Size, r)
	}
	if l.cluster += h.Size; l.cluster > bounds.Node {
		return bounds.Errorf("%s: the files in cluster/ are larger than %s together: at most %s were expected", l.path,
			bounds.Bytes(bounds.Node), bounds.Bytes(bounds.Node))
	}
	data, err := readUpTo(full, r, bounds.File, min(h.Size, 1<<20))
	l.files[file] = memory(full, data)
	return err
}

// node takes a file of a node.
func (l *lister) node(full, node, file string, size int64, r io.Reader) error {
	n := l.archive.nodes[node]
	if n == nil {
		n = &archivedNode{first: len(l.archive.members)}
		l.archive.nodes[node] = n
	}
	n.last = len(l.archive.members)
	if n.size += size; n.size > bounds.Node {
		return bounds.Errorf("%s: the files of node %s are larger than %s together: at most %s were expected", l.path, node,
			bounds.Bytes(bounds.Node), bounds.Bytes(bounds.Node))
	}
	l.archive.members = append(l.archive.members, archived{node, inNode(file), size})
	l.files[file] = nil
	if l.kept += size; l.kept > bounds.Kept {
		if !l.dropped {
			l.dropped = true
			for f := range l.files {
				if _, ok := nodeOf(f); ok {
					l.files[f] = nil
				}
			}
		}
		return nil
	}
	data, err := readUpTo(full, r, bounds.File, min(size, 1<<20))
	l.files[file] = memory(full, data)
	return err
}

// memberName returns the slash path of a member.
func memberName(archive string, h *tar.Header) (string, error) {
	if path.IsAbs(h.Name) || slices.Contains(strings.Split(h.Name, "/"), "..") {
		return "", bounds.Errorf("%s holds a member named %q: names below the archive's own folder were expected, "+
			"without a / at the beginning and without ..", archive, h.Name)
	}
	return path.Clean(h.Name), nil
}

// memberKind names the type of a member that is not a regular file.
func memberKind(t byte) string {
	switch t {
	case tar.TypeLink:
		return "a hard link (tar --hard-dereference writes files)"
	case tar.TypeSymlink:
		return "a symbolic link (tar --dereference writes files)"
	case tar.TypeDir:
		return "a directory"
	case tar.TypeFifo:
		return "a named pipe"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	}
	return fmt.Sprintf("a member of type %q", t)
}

// errStop ends reading an archive.
var errStop = errors.New("no more is needed")

// readTar reads an archive, compressed or not, and calls visit for each member; what visit does not read of its
// content is passed over. It reads to the end, as gzip's checksum is there, unless visit returns errStop.
func readTar(name string, r io.Reader, visit func(h *tar.Header, r io.Reader) error) error {
	m, err := newMeter(name, r)
	if err != nil {
		return err
	}
	members := 0
	for tr := tar.NewReader(m); ; members++ {
		m.allow()
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF) && m.bytes == 0:
			return fmt.Errorf("%s is empty: a snapshot was expected, which is a directory or a .tar.gz", name)
		case errors.Is(err, io.EOF):
			return m.end()
		case bounds.Is(err):
			return err
		case err != nil && members == 0:
			return fmt.Errorf("%s %s", name, m.kind(err))
		case err != nil:
			return fmt.Errorf("%s is damaged or cut off: %w", name, err)
		}
		switch err := visit(h, tr); {
		case errors.Is(err, errStop):
			return nil
		case bounds.Is(err):
			return err
		case err != nil:
			return fmt.Errorf("%s is damaged or cut off at %s: %w", name, h.Name, err)
		}
	}
}

// meter reads an archive, and counts.
type meter struct {
	path       string
	in         io.Reader // uncompressed
	compressed *counted  // nil where the archive is not compressed
	bytes      int64     // that were read of in
	left       int64     // bytes that may be read before the next member
	begin      []byte    // of what was read of in
}

// counted counts the bytes of a file.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func newMeter(name string, r io.Reader) (*meter, error) {
	file := &counted{Reader: r}
	in := bufio.NewReaderSize(file, 64<<10)
	m := &meter{path: name, in: in}
	if magic, err := in.Peek(len(gzipMagic)); err != nil || !bytes.Equal(magic, gzipMagic) {
		return m, nil //nolint:nilerr // a file that is too short is not an archive, as tar.Reader finds
	}
	zip, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	m.in, m.compressed = zip, file
	return m, nil
}

// allow lets the next member be read: the rest of one before it, and its header.
func (m *meter) allow() { m.left = 2 * bounds.File }

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, bounds.Errorf("%s holds a member that is larger than %s: files of at most %s were expected", m.path,
			bounds.Bytes(bounds.File), bounds.Bytes(bounds.File))
	}
	n, err := m.in.Read(p[:min(int64(len(p)), m.left)])
	if have := len(m.begin); have < kindBytes {
		m.begin = append(m.begin, p[:min(n, kindBytes-have)]...)
	}
	m.bytes += int64(n)
	m.left -= int64(n)
	if m.compressed != nil && m.bytes > bounds.RatioFree && m.bytes > bounds.Ratio*m.compressed.n {
		return n, bounds.Errorf("%s is compressed more than %d times, as no real snapshot is: an archive with the files "+
			"of a snapshot was expected", m.path, bounds.Ratio)
	}
	return n, err
}

// end reads what follows the end of the archive: zeros that fill the last block, and gzip's checksum.
func (m *meter) end() error {
	m.allow()
	buf := make([]byte, 32<<10)
	for {
		n, err := m.Read(buf)
		for _, b := range buf[:n] {
			if b != 0 {
				return bounds.Errorf("%s continues after the end of its archive: one archive was expected", m.path)
			}
		}
		switch {
		case bounds.Is(err):
			return err
		case errUnexpected(err):
			return fmt.Errorf("%s is damaged or cut off: %w", m.path, err)
		case err != nil:
			return nil //nolint:nilerr // the archive is whole
		}
	}
}
