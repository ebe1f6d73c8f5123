// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Where the client's node has the address of an endpoint's pod, its own sockets say nothing of the pod: the fault is
// the address alone.
func TestATakenAddressIsOneFault(t *testing.T) {
	const taken = "10.245.1.2"
	c := openEnds(t)
	files := c.files[endsClient]
	end := []byte("]")
	add := func(name, entry string) []byte {
		list := bytes.TrimSpace(files[name])
		return append(bytes.TrimSuffix(slices.Clone(list), end), []byte(","+entry+"]")...)
	}
	r := c.change(endsClient, map[string][]byte{
		snapshot.AddrFile: add(snapshot.AddrFile, `{"ifindex":99,"ifname":"old0","flags":["UP"],"addr_info":[`+
			`{"family":"inet","local":"`+taken+`","prefixlen":32,"scope":"global"}]}`),
		snapshot.RouteFile: add(snapshot.RouteFile, `{"type":"local","dst":"`+taken+`","dev":"old0","table":"local",`+
			`"protocol":"kernel","scope":"host","prefsrc":"`+taken+`","flags":[]}`),
	}).judged()
	if len(r.Paths) != 1 || r.Paths[0].Verdict != report.Mismatch {
		t.Fatalf("%s %+v", r.Error, r.Paths)
	}
	p := &r.Paths[0]
	for _, f := range p.Findings {
		if f.Severity == report.Error && f.Code != EndpointAddressTaken {
			t.Errorf("%+v", f)
		}
	}
	for i := range p.Segments {
		if s := &p.Segments[i]; s.Endpoint == taken+":8080" {
			t.Errorf("%+v", s)
		}
	}
}
