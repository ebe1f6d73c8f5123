// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What ipvs mode leaves behind is told apart from virtual servers that somebody else has.
func TestLeftoversOfIPVS(t *testing.T) {
	bind := func(w *capturedNode) {
		w.files["ip-addr.json"] = append(
			bytes.TrimSuffix(bytes.TrimSpace(w.files["ip-addr.json"]), []byte("]")),
			`,{"ifindex":99,"ifname":"kube-ipvs0","flags":["NOARP"],"addr_info":[{"family":"inet","local":"10.96.77.154","prefixlen":32,"scope":"global"}]}]`...)
	}
	for _, tt := range []struct {
		name, base, servers string
		do                  func(w *capturedNode)
		want                []string
	}{
		{
			name:    "virtual servers of a cluster IP and a NodePort",
			base:    "iptables",
			servers: "-A -t 10.96.77.154:80 -s rr\n-A -t 10.77.0.11:30080 -s rr\n",
			want:    []string{"virtual servers of IPVS"},
		},
		{name: "addresses", base: "iptables", do: bind, want: []string{"addresses on kube-ipvs0"}},
		{
			name:    "both, in nftables mode",
			base:    "nftables",
			servers: "-A -t 10.96.77.154:80 -s rr\n",
			do:      bind,
			want:    []string{"virtual servers of IPVS", "addresses on kube-ipvs0"},
		},
		{
			name:    "someone else's",
			base:    "iptables",
			servers: "-A -t 10.77.0.11:8443 -s rr\n-a -t 10.77.0.11:8443 -r 10.77.0.12:6443 -m -w 1\n-A -f 3 -s rr\n",
		},
		{name: "none", base: "ipvs"},
		{name: "a table of nftables mode in ipvs mode", base: "ipvs", do: func(w *capturedNode) {
			w.files[snapshot.NFTFile] = []byte(`{"nftables":[{"table":{"family":"ip","name":"kube-proxy","handle":1}}]}`)
		}, want: []string{"table kube-proxy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openCaptured(t, tt.base)
			if tt.servers != "" {
				w.files[snapshot.IPVSFile] = []byte(tt.servers)
			}
			if tt.do != nil {
				tt.do(w)
			}
			r := w.run()
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if !slices.Equal(r.Mode.Leftovers, tt.want) {
				t.Errorf("leftovers %q, want %q", r.Mode.Leftovers, tt.want)
			}
			if r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{PathsAlone: true}); r.Mode.Leftovers != nil {
				t.Errorf("leftovers %q, where only paths were asked for", r.Mode.Leftovers)
			}
			found := 0
			for _, f := range r.Findings {
				if f.Code == ModeLeftover {
					found++
				}
			}
			if found != len(tt.want) {
				t.Errorf("%d findings, want %d", found, len(tt.want))
			}
			if r.Mode.Actual != tt.base {
				t.Errorf("actual mode %q, want %s", r.Mode.Actual, tt.base)
			}
		})
	}
}

// Which mode the kernel is in is told from the kernel, also where kube-proxy says nothing.
func TestIPVSModeIsReadFromTheKernel(t *testing.T) {
	w := openCaptured(t, "ipvs")
	for _, f := range []string{"proxyMode.txt", "configz.json", "kube-proxy-config.yaml", "metrics.txt"} {
		delete(w.files, f)
	}
	w.cluster.ConfigMaps = nil
	r := w.run()
	if r.Error != "" || r.Mode.Actual != "ipvs" || r.Mode.Backend != "nft" {
		t.Fatalf("%q: %+v", r.Error, r.Mode)
	}
	if r.Summary.Mismatched > 0 || r.Summary.Matched == 0 {
		t.Errorf("%+v", r.Summary)
	}
}

// kube-proxy says that it runs in iptables mode, having found no ip_vs, and what it wrote in ipvs mode before is still
// there.
func TestIPVSRulesUnderIPTablesMode(t *testing.T) {
	w := openCaptured(t, "ipvs")
	w.files["proxyMode.txt"] = []byte("iptables")
	r := w.run()
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	if r.Mode.Actual != "ipvs" || r.Mode.Reported != "iptables" || len(r.Mode.Leftovers) == 0 {
		t.Errorf("%+v", r.Mode)
	}
	if r.Verdict != report.Mismatch {
		t.Errorf("%s", r.Verdict)
	}
}

// Where a scheduler has no fixed shares, none is claimed, and none is missed.
func TestSharesThatDependOnLoad(t *testing.T) {
	w := openCaptured(t, "ipvs")
	w.replace("configz.json", `"scheduler":"rr"`, `"scheduler":"lc"`, "scheduler")
	w.edit(snapshot.IPVSFile, func(l string) []string {
		return []string{string(bytes.Replace([]byte(l), []byte("-s rr"), []byte("-s lc"), 1))}
	})
	r := w.run()
	if r.Error != "" || r.Summary.Mismatched > 0 {
		t.Fatalf("%q %+v", r.Error, r.Summary)
	}
	shared := 0
	for _, p := range r.Paths {
		if len(p.Expected.Endpoints) > 1 && p.Actual.Sharing != "load" {
			t.Errorf("%+v: shared by %q", p.Frontend, p.Actual.Sharing)
		}
		if p.Actual.Sharing != "" {
			shared++
		}
	}
	if shared == 0 {
		t.Error("nothing is shared by load")
	}
}

// A list of virtual servers, or of sets, that is empty is what a command leaves behind that failed, unless a collector
// says what it could not read: that no virtual server is there was once taken for known.
func TestAnEmptyListOfVirtualServersIsNoList(t *testing.T) {
	for _, file := range []string{"ipvsadm.txt", "ipset-save.txt"} {
		w := openCaptured(t, "ipvs")
		w.files[file] = []byte("\n")
		if r := w.run(); r.Verdict != report.Unknown || r.Summary.Mismatched > 0 {
			t.Errorf("%s: %s %+v", file, r.Verdict, r.Summary)
		}
		w = openCaptured(t, "iptables")
		w.files[file] = []byte("\n")
		if r := w.run(); r.Verdict != report.Match {
			t.Errorf("%s in iptables mode: %s %+v", file, r.Verdict, r.Summary)
		}
	}
}
