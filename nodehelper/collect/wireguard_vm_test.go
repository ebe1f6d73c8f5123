// SPDX-License-Identifier: Apache-2.0

//go:build vm

package collect

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// What is read of WireGuard is what wg prints: of several interfaces, and of more peers than one answer of the kernel
// has room for.
//
//	go test -tags vm -run '^TestWireGuardAsWGPrintsIt$' -exec "$PWD/test/vm/vm run" ./nodehelper/collect
func TestWireGuardAsWGPrintsIt(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "wg", "modprobe") {
		return
	}
	testutil.Run(t, "", "modprobe", "wireguard")
	r := &reader{Options: Options{Root: "/"}, kernel: newKernel("/")}
	if _, there := r.fileOf(t.Context(), source{"wireguard.txt", module("wireguard", readWireGuard)}); there {
		t.Error("there is no interface, and it is read")
	}
	var script strings.Builder
	script.WriteString(`ip link add wg0 type wireguard; ip link add wg1 type wireguard; ip link add wg2 type wireguard
wg genkey | wg set wg0 private-key /dev/fd/0 listen-port 51820 fwmark 0x77
wg genkey | wg set wg1 private-key /dev/fd/0
`)
	for i := range 120 {
		fmt.Fprintf(&script, "wg set wg0 peer $(wg genkey | wg pubkey) endpoint 192.0.2.%d:51820 allowed-ips 10.%d.0.0/16,"+
			"fd00:%d::/32 persistent-keepalive %d\n", i+1, i, i, 50+i)
	}
	script.WriteString("wg genpsk | wg set wg1 peer $(wg genkey | wg pubkey) preshared-key /dev/fd/0 endpoint " +
		"[2001:db8::1]:1\n")
	testutil.Run(t, script.String(), "sh", "-e")
	f, there := r.fileOf(t.Context(), source{"wireguard.txt", module("wireguard", readWireGuard)})
	if want := testutil.Run(t, "", "wg", "show", "all"); !there || f.Unread != "" || string(f.Data) != want {
		t.Errorf("%s\ngot\n%s\nwant\n%s", f.Unread, f.Data, want)
	}
}
