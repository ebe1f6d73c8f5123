// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// build makes the image of each architecture, writes them as one, and pushes that if it is asked for. It prints the
// name with the digest, which is that of the archive and of the registry.
func build(o options) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range o.archs {
		if triplets[arch] == "" {
			return fmt.Errorf("%q is not an architecture: use %s", arch,
				strings.Join(slices.Sorted(maps.Keys(triplets)), " or "))
		}
		img, err := imageOf(o, arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	if err := write(o.output, o.tag, index); err != nil {
		return err
	}
	if o.push {
		if err := push(o.tag, index); err != nil {
			return fmt.Errorf("push: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s@%s\n", o.tag, digest)
	return err
}

// push writes the image to its registry.
func push(tag string, index v1.ImageIndex) error {
	ref, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return err
	}
	return remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// imageOf has Debian's files in one layer, which changes rarely, and the binaries in another.
func imageOf(o options, arch string) (v1.Image, error) {
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	config := &v1.ConfigFile{
		OS: "linux", Architecture: arch,
		Config: v1.Config{
			Entrypoint: words(o.entrypoint), Env: []string{"PATH=/usr/sbin:/usr/bin"}, User: "0:0",
			Labels: map[string]string{"org.opencontainers.image.source": o.source},
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
	if o.source == "" {
		config.Config.Labels = nil
	}
	img, err := mutate.ConfigFile(img, config)
	if err != nil {
		return nil, err
	}
	var layers []tree
	if len(o.packages) > 0 {
		debs, err := fetch(o.cache, arch, append(slices.Clone(o.packages), baseFiles))
		if err != nil {
			return nil, err
		}
		all, err := unpack(debs)
		if err != nil {
			return nil, err
		}
		kept, err := prune(all, o.keep, arch)
		if err != nil {
			return nil, err
		}
		if err := addNotices(kept, all); err != nil {
			return nil, err
		}
		for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
			kept[dir] = &entry{link: "usr/" + dir, mode: 0o777}
		}
		layers = append(layers, kept)
	}
	binaries := tree{}
	for _, add := range o.add {
		from, to, ok := strings.Cut(add, ":")
		if !ok {
			return nil, fmt.Errorf("-add %s is not FILE:PATH", add)
		}
		if target, ok := strings.CutPrefix(from, "link="); ok {
			binaries[strings.TrimPrefix(path.Clean(to), "/")] = &entry{link: target, mode: 0o777}
			continue
		}
		data, err := os.ReadFile(strings.ReplaceAll(from, "{arch}", arch))
		if err != nil {
			return nil, err
		}
		name, mode := strings.TrimPrefix(path.Clean(to), "/"), int64(0o755)
		if strings.HasPrefix(name, docs) {
			mode = 0o644
		}
		binaries[name] = &entry{data: data, mode: mode}
	}
	layers = append(layers, binaries)
	for _, t := range layers {
		plain, err := t.tar()
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain)), nil }
		layer, err := tarball.LayerFromOpener(open,
			tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, err
		}
		size, err := layer.Size()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s: a layer of %d files, %d bytes, %d compressed\n", arch, len(t), len(plain), size)
	}
	return img, nil
}

// tar writes the files in the order of their names, all of one time, and the folders above them.
func (t tree) tar() ([]byte, error) {
	dirs := map[string]bool{}
	for name := range t {
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(union(dirs, t))) {
		h := &tar.Header{Name: name, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		e := t[name]
		switch {
		case e == nil:
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, e.mode
		default:
			h.Typeflag, h.Size, h.Mode = tar.TypeReg, int64(len(e.data)), e.mode
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if e != nil {
			if _, err := w.Write(e.data); err != nil {
				return nil, err
			}
		}
	}
	return b.Bytes(), w.Close()
}

func union(dirs map[string]bool, t tree) map[string]bool {
	for name := range t {
		dirs[name] = true
	}
	return dirs
}

// write writes the image as a tar of an OCI layout (opencontainers/image-spec, image-layout.md).
func write(output, tag string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp(filepath.Dir(output), ".image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	_, version, _ := strings.Cut(tag[strings.LastIndex(tag, "/")+1:], ":")
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": version,
	})); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(output), ".image-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := tar.NewWriter(f)
	if err := addDir(w, dir); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), output)
}

func addDir(w *tar.Writer, dir string) error {
	return filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if filepath.ToSlash(rel) == "index.json" {
			// The order of annotations is that of a map.
			var v any
			if err := json.Unmarshal(data, &v); err != nil {
				return err
			}
			if data, err = json.Marshal(v); err != nil {
				return err
			}
		}
		err = w.WriteHeader(&tar.Header{
			Name: filepath.ToSlash(rel), Size: int64(len(data)), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		})
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}
