// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// A link to a bug is printed for the versions of kube-proxy that have it, and where the version is not known.
func TestLinksFitTheVersion(t *testing.T) {
	const partialSync, markDrop = "kubernetes/kubernetes#121362", "kubernetes/kubernetes#80462"
	for _, tt := range []struct {
		issue, version string
		want           bool
	}{
		{partialSync, "v1.26.15", false},
		{partialSync, "v1.27.10", true},
		{partialSync, "v1.27.11", false},
		{partialSync, "v1.28.0", true},
		{partialSync, "v1.28.6-gke.1000", true},
		{partialSync, "v1.28.15", false},
		{partialSync, "v1.29", true},
		{partialSync, "v1.30.0", false},
		{partialSync, "v1.36.3", false},
		{partialSync, "", true},
		{partialSync, "of our own", true},
		{markDrop, "v1.25.0", true},
		{markDrop, "v1.26.0", false},
		{"kubernetes/kubernetes#28674", "v1.36.3", true},
	} {
		if got := concerns(tt.issue, tt.version); got != tt.want {
			t.Errorf("%s of %q: %t", tt.issue, tt.version, got)
		}
	}
	known := map[string]bool{}
	for _, k := range kinds {
		for _, i := range k.issues {
			known[i] = true
		}
	}
	for issue := range lifetimes {
		if !known[issue] {
			t.Errorf("%s is the issue of no kind", issue)
		}
	}
	for version, want := range map[string]bool{"v1.36.3": false, "v1.28.1": true} {
		w := openCaptured(t, "iptables")
		w.files["metrics.txt"] = bytes.ReplaceAll(w.files["metrics.txt"], []byte("v1.36.3"), []byte(version))
		w.drop(v4, "-A KUBE-SVC-", "10.244.2.20:8080")
		found := false
		for _, p := range w.run().Paths {
			for _, f := range p.Findings {
				if f.Code == MissingEndpoint {
					found = true
					if slices.Contains(f.Links, "https://github.com/kubernetes/kubernetes/issues/121362") != want {
						t.Errorf("%s: %q", version, f.Links)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s: no MissingEndpoint", version)
		}
	}
}

// What a kube-proxy is said to have done is something that its version does: since 1.26 none falls back to another
// mode.
func TestModeMismatchFitsTheVersion(t *testing.T) {
	for version, want := range map[string]bool{"v1.36.3": false, "v1.25.1": true} {
		w := openCaptured(t, "iptables")
		w.files["metrics.txt"] = bytes.ReplaceAll(w.files["metrics.txt"], []byte("v1.36.3"), []byte(version))
		w.edit("configz.json", oneLine(`"mode":"iptables"`, `"mode":"ipvs"`))
		found := false
		for _, f := range w.run().Findings {
			if f.Code == ModeMismatch {
				if found = true; strings.Contains(f.Message, "fell back") != want || (len(f.Links) > 0) != want {
					t.Errorf("%s: %s %q", version, f.Message, f.Links)
				}
			}
		}
		if !found {
			t.Errorf("%s: no ModeMismatch", version)
		}
	}
}
