// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// metaName is the file that says which program made a snapshot, and when. An archive of this program begins with it;
// one that tar made of a directory has it anywhere.
const metaName = "snapshot.json"

// maxMeta is how many bytes that file may have.
const maxMeta = 16 << 10

// Meta reads snapshot.json. A snapshot made by hand need not have it: then the error is fs.ErrNotExist. Nothing is
// judged by it.
func (s *Snapshot) Meta() (m Meta, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return m, err
	}
	var data []byte
	if info.IsDir() {
		data, err = metaInDirectory(s.path)
	} else {
		data, err = metaInArchive(s.path)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return Meta{}, fmt.Errorf("%s: %w", metaName, err)
	}
	return m, nil
}

func metaInDirectory(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(metaName)
	if errors.Is(err, fs.ErrNotExist) {
		if below := onlyMeta(dir); below != "" {
			return metaInDirectory(below)
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, bounds.Errorf("%s is %s: a regular file was expected", metaName, irregular(info.Mode().Type()))
	}
	f, err := root.Open(metaName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readUpTo(metaName, f, maxMeta, info.Size())
}

// onlyMeta returns the one directory within another that has the file, as the directory of a snapshot may be in one of
// its own; "" where none has it, or several have.
func onlyMeta(dir string) (found string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		below := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			continue
		}
		if _, err := os.Lstat(filepath.Join(below, metaName)); err != nil {
			continue
		}
		if found != "" {
			return ""
		}
		found = below
	}
	return found
}

func metaInArchive(name string) (data []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	missing := fmt.Errorf("the archive has no %s: %w", metaName, fs.ErrNotExist)
	err = readTar(name, f, func(h *tar.Header, r io.Reader) error {
		if path.Base(h.Name) == metaName && h.Typeflag == tar.TypeReg {
			if data, err = readUpTo(metaName, r, maxMeta, h.Size); err != nil {
				return err
			}
			missing = nil
			return errStop
		}
		return nil
	})
	if err == nil {
		err = missing
	}
	return data, err
}
