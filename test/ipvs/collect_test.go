// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
)

// collected is what the helper reads of the node. Processes of an emulated machine that is busy may be slower than the
// helper waits for them: a file that was not read is tried again twice.
func collected(t *testing.T, files ...string) map[string]string {
	t.Helper()
	for try := 1; ; try++ {
		out, unread := map[string]string{}, []string{}
		err := collect.Collect(t.Context(), collect.Options{Root: "/", Files: files}, func(f collect.File) error {
			if f.Unread != "" {
				unread = append(unread, f.Name+" was not read: "+f.Unread)
			}
			out[f.Name] = string(f.Data)
			return nil
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case len(unread) == 0:
			return out
		case try == 3:
			t.Error(strings.Join(unread, "\n"))
			return out
		}
		t.Log(strings.Join(unread, "\n"))
	}
}

// unusual are virtual servers that kube-proxy makes none of, but others on a node may.
const unusual = `-A -t 192.0.2.1:80 -s sh -b sh-fallback,sh-port
-a -t 192.0.2.1:80 -r 10.9.0.1:80 -g -w 3
-a -t 192.0.2.1:80 -r 10.9.0.2:80 -i -w 0
-A -t 192.0.2.2:80 -s mh -b mh-fallback,mh-port
-A -t 192.0.2.3:80 -s wrr -p 60 -M 255.255.255.0
-a -t 192.0.2.3:80 -r 10.9.0.3:8080 -m -w 65535
-A -u 192.0.2.4:53 -s fo -o
-A -u 192.0.2.5:5060 -s wlc -p 300
-A --sctp-service 192.0.2.6:3868 -s ovf
-A -f 7 -s lblcr
-a -f 7 -r 10.9.0.4:0 -g -w 1
-A -f 8 -6 -s nq -p 90 -M 64
-A -t [2001:db8:7::1]:80 -s sed -p 120 -M 64
-a -t [2001:db8:7::1]:80 -r [fd00:9::1]:80 -m -w 1
-A -t [2001:db8:7::2]:80 -s dh
-a -t [2001:db8:7::2]:80 -r [fd00:9::2]:80 -g -w 1
`

// TestCollectedIPVSIsWhatIPVSAdmSaves compares what the helper reads by netlink with what the standard tool prints,
// of what kube-proxy makes and of the rest.
func TestCollectedIPVSIsWhatIPVSAdmSaves(t *testing.T) {
	before := do(t, "ipvsadm-save -n")
	for line := range strings.Lines(unusual) { // ipvsadm-restore would take away what is there
		do(t, "ipvsadm "+line)
	}
	defer func() {
		for line := range strings.Lines(unusual) {
			if at := strings.Index(line, " -s "); at > 0 {
				do(t, "ipvsadm -D"+line[2:at])
			}
		}
		if after := do(t, "ipvsadm-save -n"); !slices.Equal(sorted(after), sorted(before)) {
			t.Error("the test's virtual servers are still there")
		}
	}()
	// Of a tunnel's type and of a persistence engine moby/ipvs reads nothing: the usual type is not told, an engine the
	// test has none of.
	want, got := sorted(strings.ReplaceAll(do(t, "ipvsadm-save -n"), " --tun-type ipip", "")),
		sorted(collected(t, "ipvsadm.txt")["ipvsadm.txt"])
	if len(want) < 150+strings.Count(unusual, "\n") {
		t.Errorf("ipvsadm-save prints %d lines: kube-proxy's and the test's are more", len(want))
	}
	same(t, want, got)
}

func TestCollectedIPSetsAreWhatIPSetSaves(t *testing.T) {
	same(t, sorted(do(t, "ipset save")), sorted(collected(t, "ipset-save.txt")["ipset-save.txt"]))
}

// TestCollectedAddressesAreWhatIPPrints covers the addresses that kube-proxy binds.
func TestCollectedAddressesAreWhatIPPrints(t *testing.T) {
	want, got := addressesOf(t, do(t, "ip -j addr show")), addressesOf(t, collected(t, "ip-addr.json")["ip-addr.json"])
	if n := len(want["kube-ipvs0"]); n < 60 {
		t.Errorf("kube-ipvs0 has %d addresses, 60 and more are those of the Services", n)
	}
	if !maps.EqualFunc(want, got, slices.Equal[[]string]) {
		t.Errorf("want %v\ngot  %v", want, got)
	}
}

func addressesOf(t *testing.T, text string) map[string][]string {
	t.Helper()
	var links []struct {
		Ifname string `json:"ifname"`
		Info   []struct {
			Local string `json:"local"`
		} `json:"addr_info"`
	}
	// The file has the labels of addresses behind them.
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&links); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out := map[string][]string{}
	for _, l := range links {
		out[l.Ifname] = []string{}
		for _, a := range l.Info {
			out[l.Ifname] = append(out[l.Ifname], a.Local)
		}
		slices.Sort(out[l.Ifname])
	}
	return out
}

// TestCollectingChangesNothing is what Collect promises: on a kernel with modules not yet loaded, too.
func TestCollectingChangesNothing(t *testing.T) {
	nodeState(t) // whatever the tools load is loaded
	before := nodeState(t)
	if files := collected(t); files["ipvsadm.txt"] == "" || files["ipset-save.txt"] == "" {
		t.Error("nothing was collected")
	}
	same(t, before, nodeState(t))
}

// stateOf is all that a Service is made of on this node, and which modules are loaded; sorted, and without what changes
// by itself.
func stateOf(ctx context.Context) ([]string, error) {
	var lines []string
	for _, tool := range []string{
		"ipvsadm-save -n", "ipset save", "iptables-save", "ip6tables-save",
		"ip -o addr show dev kube-ipvs0", "lsmod",
	} {
		words := strings.Fields(tool)
		out, err := command(ctx, "", words[0], words[1:]...)
		if err != nil {
			return nil, err
		}
		for _, line := range sorted(out) {
			switch {
			case strings.HasPrefix(line, "#"):
				continue // with the hour
			case strings.HasPrefix(line, ":"), tool == "lsmod":
				line = strings.Fields(line)[0] // a chain or module without its counter
			}
			lines = append(lines, tool+": "+line)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

func nodeState(t *testing.T) []string {
	t.Helper()
	lines, err := stateOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func sorted(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \r")
	}
	slices.Sort(lines)
	return lines
}

// same tells what only one of two sorted lists has.
func same(t *testing.T, first, second []string) {
	t.Helper()
	for _, w := range first {
		if _, found := slices.BinarySearch(second, w); !found {
			t.Errorf("only the first has %q", w)
		}
	}
	for _, g := range second {
		if _, found := slices.BinarySearch(first, g); !found {
			t.Errorf("only the second has %q", g)
		}
	}
	if len(first) != len(second) {
		t.Errorf("%d lines, and %d", len(first), len(second))
	}
}
