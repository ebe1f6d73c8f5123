// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Of a node that cannot be read nothing is claimed: one sentence says why, and there is no path.
func TestNothingIsClaimedOfWhatCannotBeRead(t *testing.T) {
	for _, tt := range []struct {
		name, base string
		do         func(w *capturedNode)
		want       string
	}{
		{
			"an nftables node without its tables",
			"nftables",
			func(w *capturedNode) { delete(w.files, "nft-ruleset.json") },
			"nft-ruleset.json was not collected",
		},
		{
			"an IPVS node without its virtual servers",
			"ipvs",
			func(w *capturedNode) { delete(w.files, "ipvsadm.txt") },
			"ipvsadm.txt was not collected",
		},
		{
			"a damaged list of virtual servers",
			"ipvs",
			func(w *capturedNode) { w.files["ipvsadm.txt"] = []byte("-A -t 10.96.0.1\n") },
			"ipvsadm.txt was not read: line 1",
		},
		{
			"empty files",
			"iptables",
			func(w *capturedNode) { w.files[v4], w.files[v6] = []byte("\n"), nil; delete(w.files, v6) },
			"no packet can be followed",
		},
		{"no save file", "iptables", func(w *capturedNode) { delete(w.files, v4); delete(w.files, v6) }, "no packet can " +
			"be followed"},
		{"another machine's files", "iptables", func(w *capturedNode) {
			w.files["ip-addr.json"] = bytes.ReplaceAll(
				bytes.ReplaceAll(w.files["ip-addr.json"], []byte("10.77.0.11"), []byte("10.77.0.99")),
				[]byte("fd00:77::11"), []byte("fd00:77::99"),
			)
		}, "another machine"},
		{
			"a damaged nft ruleset",
			"iptables",
			func(w *capturedNode) { w.files["nft-ruleset.json"] = []byte(`{"nftables":[{"table"`) },
			"nft-ruleset.json",
		},
		{
			"a node that the cluster does not have",
			"iptables",
			func(w *capturedNode) { w.cluster.Nodes = w.cluster.Nodes[1:] },
			"has no Node of that name",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, tt.base)
			tt.do(w)
			r := w.run()
			if !strings.Contains(r.Error, tt.want) || strings.Contains(r.Error, "\n") {
				t.Errorf("got %q, want one line with %q", r.Error, tt.want)
			}
			if r.Verdict != report.Unknown || len(r.Paths) > 0 || len(r.Findings) > 0 || r.Summary.Paths > 0 {
				t.Errorf("something is claimed: %+v", r)
			}
		})
	}
}

// What was not collected makes what depends on it Unknown, never a match.
func TestWhatWasNotCollectedIsUnknown(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(w *capturedNode)
		path string // of a path that depends on it
		want string
	}{
		{
			"the IPv6 rules",
			func(w *capturedNode) { delete(w.files, v6) },
			"shop/v6only ClusterIP fd00:10:96::915a:80/TCP from pod",
			"Unknown",
		},
		{"the addresses, for a NodePort on an address that only they can tell", func(w *capturedNode) {
			delete(w.files, "ip-addr.json")
			w.cluster.Missing, w.cluster.Nodes = []string{"nodes"}, nil
		}, "shop/ep3 ClusterIP 10.96.77.154:80/TCP from node", "Unknown"},
		{
			"kube-proxy's configuration",
			func(w *capturedNode) { delete(w.files, "configz.json"); delete(w.files, "kube-proxy-config.yaml") },
			"shop/np-etp-local NodePort 10.77.0.11:30082/TCP from external", "Match",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, "iptables")
			tt.do(w)
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if got := facts(r)[tt.path]; got != tt.want {
				t.Errorf("%s: %q, want %q", tt.path, got, tt.want)
			}
			for path, f := range facts(r) {
				if strings.HasPrefix(f, string(report.Mismatch)) {
					t.Errorf("a mismatch for want of a file: %s: %s", path, f)
				}
			}
		})
	}
}

// A backend whose save file is missing is seen in nft's own dump, and not passed over.
func TestIptablesNFTRulesWithoutTheirSaveFileAreOpaque(t *testing.T) {
	w := openCaptured(t, "iptables")
	w.files["iptables-legacy-save.txt"] = bytes.ReplaceAll(w.files[v4], []byte(" (nf_tables)"), nil)
	delete(w.files, v4)
	r := w.run()
	if got := facts(r)["shop/ep3 ClusterIP 10.96.77.154:80/TCP from pod"]; got != "Unknown" {
		t.Errorf("%q: rules that were not read passed for none", got)
	}
}

// TestScaleFixture judges 5,000 Services, above kube-proxy's threshold for leaving comments out and chains behind.
func TestScaleFixture(t *testing.T) {
	c, n := openSnapshot(t, "testdata/snapshots/scale-iptables", "node1")
	r := Files(c, n, Request{Backwards: true, PerPathService: true})
	if r.Error != "" || r.Verdict != report.Match || r.Summary.Matched != r.Summary.Paths || r.Summary.Paths < 11000 {
		t.Errorf("%s %s %+v", r.Error, r.Verdict, r.Summary)
	}
	for _, f := range r.Findings {
		if f.Severity != report.Info {
			t.Errorf("%+v", f)
		}
	}
	if facts(r)["node"] == "" {
		t.Error("the chain of the deleted Service svc-05000 was not noticed")
	}
}

func TestAnEmptySaveFileIsNotCalledMissing(t *testing.T) {
	w := openCaptured(t, "iptables")
	delete(w.files, "iptables-nft-save.txt")
	w.files[v4] = []byte{}
	r := w.run()
	const want = "iptables-save.txt is empty, as after a save command that failed"
	for i := range r.Paths {
		for _, f := range r.Paths[i].Findings {
			if f.Code == NotCollected && f.Message == want {
				return
			}
		}
	}
	t.Errorf("no path says %q", want)
}
