// SPDX-License-Identifier: Apache-2.0

//go:build vm

package ipvs

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// threadAt begins a thread in a network namespace of ip netns; without name, in that of the node.
func threadAt(t *testing.T, name string) testutil.Thread {
	t.Helper()
	return testutil.NewThread(t, namespaceFile(name))
}

func namespaceFile(name string) string {
	if name == "" {
		return ""
	}
	return "/run/netns/" + name
}

// endpoint is an address at which a pod listens.
type endpoint struct {
	protocol string // TCP or UDP
	address  netip.AddrPort
}

// ask opens a connection and waits for the answer of an endpoint. Without source address the kernel chooses it.
func ask(at testutil.Thread, protocol string, source netip.Addr, to netip.AddrPort,
	wait time.Duration,
) (testutil.Echoed, error) {
	return testutil.Ask(at, strings.ToLower(protocol), source, to.String(), wait)
}
