// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
)

// lifetime is in which versions of kube-proxy the bug of an upstream issue is: from minor version since on, before
// minor version fixed, and in older minor versions before a patch release.
type lifetime struct {
	since, fixed int
	patches      map[int]int // the first patch release without it, by minor version
}

// lifetimes are those of issues about bugs that were fixed. Other issues are open, or tell of something that may happen
// with any version.
var lifetimes = map[string]lifetime{
	// pull request 122204, with 122757 and 122815: PendingChanges in pkg/proxy/iptables/proxier.go was replaced.
	"kubernetes/kubernetes#121362": {since: 27, fixed: 30, patches: map[int]int{27: 11, 28: 7, 29: 2}},
	// No rule of kube-proxy's jumps to KUBE-MARK-DROP since 1.26 (proxier.go in pkg/proxy/iptables and pkg/proxy/ipvs).
	"kubernetes/kubernetes#80462": {fixed: 26},
	// A kube-proxy that cannot run in its mode ends since 1.26 (cmd/kube-proxy/app/server_others.go).
	"kubernetes/kubernetes#66454": {fixed: 26},
	// Problems of the images of 1.10 and 1.11, and of the first versions of graceful termination.
	"kubernetes/kubernetes#67292": {fixed: 14},
	"kubernetes/kubernetes#68974": {fixed: 14},
	"kubernetes/kubernetes#71071": {fixed: 14},
}

var proxyVersion = lazyregexp.New(`^v?1\.(\d{1,4})(?:\.(\d{1,4}))?`)

// includes tells whether a version of kube-proxy is in the lifetime; one that is not known may be.
func (l lifetime) includes(version string) bool {
	m := proxyVersion().FindStringSubmatch(version)
	if m == nil {
		return true
	}
	minor, _ := strconv.Atoi(m[1]) // digits
	patch, err := strconv.Atoi(m[2])
	first, patched := l.patches[minor]
	return minor >= l.since && minor < l.fixed && !(patched && err == nil && patch >= first)
}

// concerns tells whether an issue may be about a kube-proxy of a version; of one that is not known all may.
func concerns(issue, version string) bool {
	l, bounded := lifetimes[issue]
	return !bounded || l.includes(version)
}

// links are those of a kind's issues that may be about a kube-proxy of a version.
func links(k *kind, version string) []string {
	out := make([]string, 0, len(k.issues))
	for _, l := range k.issues {
		if concerns(l, version) {
			repo, number, _ := strings.Cut(l, "#")
			out = append(out, "https://github.com/"+repo+"/issues/"+number)
		}
	}
	return out
}
