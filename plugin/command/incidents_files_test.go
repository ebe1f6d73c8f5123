// SPDX-License-Identifier: Apache-2.0

package command

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
)

// deleteService takes a Service and its EndpointSlices out of the objects of a snapshot.
func deleteService(t *testing.T, dir, service string) {
	t.Helper()
	for _, file := range []string{"services.json", "endpointslices.json"} {
		path := filepath.Join(dir, "cluster", file)
		data, err := os.ReadFile(path)
		fatal(t, err)
		var list unstructured.UnstructuredList
		fatal(t, list.UnmarshalJSON(data))
		before := len(list.Items)
		list.Items = slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool {
			name := o.GetName()
			if of := o.GetLabels()["kubernetes.io/service-name"]; of != "" {
				name = of
			}
			return o.GetNamespace()+"/"+name == service
		})
		if len(list.Items) == before {
			t.Fatalf("%s holds nothing of %s", path, service)
		}
		data, err = list.MarshalJSON()
		fatal(t, err)
		fatal(t, os.WriteFile(path, data, 0o600))
	}
}

// unpackSnapshot unpacks an archive that a test of this repository reads.
func unpackSnapshot(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	fatal(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	fatal(t, err)
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		fatal(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		fatal(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		fatal(t, err)
		fatal(t, os.WriteFile(path, data, 0o600))
	}
}

// dir makes the snapshot of an incident.
func (in *incident) dir(t *testing.T) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		fatal(t, err)
	}
	if in.fault == "" && in.replaced == nil && in.without == "" {
		return in.snapshot
	}
	base, out := in.snapshot, filepath.Join(t.TempDir(), in.name)
	file := filepath.FromSlash("../../testdata/faults/" + in.fault + ".fault")
	if in.fault != "" {
		base = filepath.Join(filepath.Dir(file), "healthy")
	}
	if strings.HasSuffix(base, ".tar.gz") {
		unpackSnapshot(t, base, out)
	} else {
		must(os.CopyFS(out, os.DirFS(base)))
	}
	if in.without != "" {
		deleteService(t, out, in.without)
	}
	for _, r := range in.replaced {
		path := filepath.Join(out, filepath.FromSlash(r.file))
		if r.old == "" {
			must(os.WriteFile(path, []byte(r.text), 0o600))
			continue
		}
		data, err := os.ReadFile(path)
		must(err)
		if !bytes.Contains(data, []byte(r.old)) {
			t.Fatalf("%s does not hold %q", path, r.old)
		}
		must(os.WriteFile(path, bytes.Replace(data, []byte(r.old), []byte(r.text), 1), 0o600))
	}
	if in.fault == "" {
		return out
	}
	f, err := faultdata.Read(file)
	must(err)
	must(f.Make(out))
	return out
}
