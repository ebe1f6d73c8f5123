// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A collector that says what it could not read has read everything else there is: then a file that is not there has no
// rules, and one that was not read makes Unknown whatever depends on it.
func TestUnreadFiles(t *testing.T) {
	const ep3Path, v6Path = "shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod", "shop/v6only ClusterIP " +
		"fd00:10:96::915a:80/TCP from pod"
	for _, tt := range []struct {
		name   string
		unread map[string]string
		do     func(w *capturedNode)
		want   map[string]string // by path
		note   string            // a node-wide finding's subject and message
	}{
		{name: "everything was read", want: map[string]string{ep3Path: "Match", v6Path: "Match"}},
		{
			name: "all rules were flushed",
			do:   func(w *capturedNode) { delete(w.files, v4); delete(w.files, v6); delete(w.files, "nft-ruleset.json") },
			want: map[string]string{ep3Path: "Mismatch: NotProgrammed", v6Path: "Mismatch: NotProgrammed"},
		},
		{
			name: "the other backend was not read", unread: map[string]string{
				"iptables-legacy-save.txt": "iptables-legacy-save is not there",
			},
			want: map[string]string{ep3Path: "Unknown", v6Path: "Match"},
		},
		{
			name: "one backend was not read, the other is empty", unread: map[string]string{
				"iptables-nft-save.txt": "table `nat' is incompatible, use 'nft' tool",
			},
			do:   func(w *capturedNode) { delete(w.files, v4) },
			want: map[string]string{ep3Path: "Unknown", v6Path: "Match"},
		},
		{
			name: "native tables were not read", unread: map[string]string{"nft-ruleset.json": "nft: netlink: Error"},
			want: map[string]string{ep3Path: "Unknown", v6Path: "Unknown"},
		},
		{
			name: "native tables were not read, nor is there a file", unread: map[string]string{
				snapshot.NFTFile: "Operation not permitted",
			},
			do:   func(w *capturedNode) { delete(w.files, "nft-ruleset.json") },
			want: map[string]string{ep3Path: "Unknown", v6Path: "Unknown"},
		},
		{
			name: "what rules do not depend on was not read", unread: map[string]string{
				"conntrack.txt": "Operation not permitted",
			},
			want: map[string]string{
				ep3Path: "Match",
				v6Path:  "Match",
			}, note: "conntrack.txt was not read: Operation not permitted",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			if tt.do != nil {
				tt.do(w)
			}
			w.files[snapshot.UnreadFile] = snapshot.EncodeUnread(tt.unread)
			r := w.run()
			if r.Error != "" && tt.want[ep3Path] == "Unknown" && tt.want[v6Path] == "Unknown" {
				for _, why := range tt.unread {
					if !strings.Contains(r.Error, why) {
						t.Errorf("%q does not say %q", r.Error, why)
					}
				}
				return
			}
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			got := facts(r)
			for path, want := range tt.want {
				if got[path] != want {
					t.Errorf("%s: %q, want %q", path, got[path], want)
				}
			}
			noted := ""
			for _, f := range r.Findings {
				if f.Code == NotCollected || f.Code == FileNotRead {
					noted += f.Subject + ": " + f.Message + "\n"
				}
			}
			if !strings.Contains(noted, tt.note) {
				t.Errorf("noted %q, want %q", noted, tt.note)
			}
		})
	}
}
