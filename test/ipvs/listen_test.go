// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

const (
	answerWait = 10 * time.Second // for an answer that is due: processors are slow here
	rounds     = 2                // how often each endpoint has to get its turn
)

var nodeAddresses = []string{"10.77.0.11", "fd00:77::11", "10.244.1.1", "fd00:10:244:1::1"}

// listen has every endpoint of the captured EndpointSlices answer.
func listen(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captured, "cluster", "endpointslices.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list discoveryv1.EndpointSliceList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	all := map[endpoint]bool{}
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			for _, p := range list.Items[i].Ports {
				if a, err := netip.ParseAddr(e.Addresses[0]); err == nil && p.Port != nil && *p.Protocol != "SCTP" {
					all[endpoint{string(*p.Protocol), netip.AddrPortFrom(a, uint16(*p.Port))}] = true
				}
			}
		}
	}
	places := map[string]testutil.Thread{"": threadAt(t, ""), "pods": threadAt(t, "pods"), "router": threadAt(t, "router")}
	has := map[netip.Addr]bool{}
	for e := range all {
		at := homeOf(e.address.Addr())
		if a := e.address.Addr(); at != "" && !has[a] && a.String() != "10.77.0.1" && a.String() != "10.77.0.12" {
			bind(t, at, a)
		}
		has[e.address.Addr()] = true
		if e.address.String() == "10.77.0.1:6443" { // what the API server says of itself
			e.protocol = "TCP"
		}
		testutil.Echo(t, places[at], strings.ToLower(e.protocol), e.address.String())
	}
}

// homeOf returns the network namespace in which an endpoint lives.
func homeOf(a netip.Addr) string {
	switch {
	case slices.Contains(nodeAddresses, a.String()):
		return ""
	case netip.MustParsePrefix("10.244.1.0/24").Contains(a), netip.MustParsePrefix("fd00:10:244:1::/64").Contains(a):
		return "pods"
	}
	return "router"
}

func bind(t *testing.T, namespace string, a netip.Addr) {
	t.Helper()
	if a.Is6() {
		do(t, fmt.Sprintf("ip -netns %s address replace %s/128 dev eth0 nodad", namespace, a))
		return
	}
	do(t, fmt.Sprintf("ip -netns %s address replace %s/32 dev eth0", namespace, a))
}
