// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestUnreadKinds: Nodes, Pods and ConfigMaps that cannot be read cost what depends on them, and are named with the
// reason.
func TestUnreadKinds(t *testing.T) {
	for name, tt := range map[string]struct{ file, data, why string }{
		"cut":           {"cluster/pods.json", `{"kind":"List","items":[{"kind":"Pod","metada`, "cut off"},
		"an HTML page":  {"cluster/pods.json", "<html>404</html>", "not JSON"},
		"empty":         {"cluster/pods.json", "", "is empty"},
		"noise":         {"cluster/nodes.json", "\x00\xff\x17", "not JSON"},
		"of other kind": {"cluster/configmaps.json", `{"kind":"PodList","items":[]}`, `kind "PodList"`},
		"a refusal":     {"cluster/nodes.json", `{"kind":"Status","code":403}`, `kind "Status"`},
		"bad YAML":      {"cluster/nodes.yaml", "a: [b", "not YAML"},
		"cut YAML":      {"cluster/pods.yaml", "kind: List\nitems:\n- metadata:\n    name", "/items/0/metadata"},
		"cut gzip":      {"cluster/pods.json.gz", gz(t, strings.Repeat(" ", 999))[:15], "damaged or cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			files := small()
			kind, _, _ := strings.Cut(strings.TrimPrefix(tt.file, "cluster/"), ".")
			maps.DeleteFunc(files, func(f, _ string) bool { return strings.HasPrefix(f, "cluster/"+kind+".") })
			files[tt.file] = tt.data
			s, err := Open(writeDir(t, files))
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Cluster()
			if err != nil {
				t.Fatal(err)
			}
			why := c.Unread[strings.TrimSuffix(tt.file, ".gz")]
			if len(c.Unread) != 1 || !strings.Contains(why, tt.why) || strings.Contains(why, "\n") {
				t.Errorf("%q, want %q", c.Unread, tt.why)
			}
			of := map[string]int{"pods": len(c.Pods), "nodes": len(c.Nodes), "configmaps": len(c.ConfigMaps)}
			if !slices.Contains(c.Missing, kind) || of[kind] > 0 || len(c.Services) == 0 {
				t.Errorf("missing %q, %v", c.Missing, of)
			}
		})
	}
}

// TestRequiredKindsNameThePosition: Services and EndpointSlices that cannot be read are an error that names the file,
// and where in it the reader stopped.
func TestRequiredKindsNameThePosition(t *testing.T) {
	const head = `{"kind":"List","items":[` + "\n"
	for data, at := range map[string]string{
		head + `{"kind":"Service","metadata":{"name":"a"}},` + "\n" + `{"kind":"Service","metadata":{"na`: "/items/1/metadata\" after offset",
		head + `{"kind":"Service","metadata":{"name":"a"}},` + "\n\xff\x00":                               "/items/1\" after offset",
		`<html>`: "first byte",
		head + `{"kind":"Service","metadata":{"name":7}}]}`: "/items/0",
	} {
		for _, file := range []string{"cluster/services.json", "cluster/endpointslices.json"} {
			if strings.Contains(file, "slices") {
				data = strings.ReplaceAll(data, "Service", "EndpointSlice")
			}
			files := small()
			files[file] = data
			s, err := Open(writeDir(t, files))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.Cluster(); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%q: %v", data, err)
			} else if !strings.Contains(err.Error(), at) {
				t.Errorf("%q: %v, want %q", data, err, at)
			}
		}
	}
}
