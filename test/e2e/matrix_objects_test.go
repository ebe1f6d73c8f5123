// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// objectFaults are those that no rule of the node shows: of the API's objects, of health checks, of what is behind.
func objectFaults() []matrixFault {
	return []matrixFault{
		{
			name: "a dead address in a slice made by hand", service: matrixByHand,
			hold:  deadAddress,
			fails: some, named: `10\.245\.\d+\.25[0-4]`, ci: true,
		},
		{
			name: "the health-check port is blocked", service: matrixHealth, from: "outside", health: true,
			make:  `ipt filter INPUT -i eth0 -p tcp --dport $HEALTH -j DROP`,
			fails: all, named: `health`, aside: true,
		},
		{
			name: "another port is blocked", service: matrixHealth, from: "outside", health: true,
			make:  `ipt filter INPUT -i eth0 -p tcp --dport 9 -j DROP`,
			fails: none,
		},
		{
			name: "another node drops what comes to its endpoint", beyond: true,
			hold: func(s *scene) (func(), error) {
				at := "/run/netns/svcproxy-" + s.remote()
				drop := []string{"ip", "saddr", s.vars["NODE"], "ip", "daddr", s.vars["R"], "drop"}
				return commands(at, [][]string{
					{"nft", "add", "table", "ip", "fault_far"},
					{"nft", "add chain ip fault_far c { type filter hook forward priority 0 ; }"},
					append([]string{"nft", "add", "rule", "ip", "fault_far", "c"}, drop...),
				}, []string{"nft", "delete", "table", "ip", "fault_far"})
			},
			fails: some, named: `EndpointTimeout|no answer|10\.245`,
		},
		{
			name: "the process of an endpoint is frozen", beyond: true, payload: true,
			hold: func(s *scene) (func(), error) {
				pid, err := strconv.Atoi(s.vars["LPID"])
				if err != nil {
					return nil, err
				}
				return func() { _ = unix.Kill(pid, unix.SIGCONT) }, unix.Kill(pid, unix.SIGSTOP)
			},
			fails: some, named: `10\.245|answer`,
		},
	}
}

// remote is the node of the endpoint R.
func (s *scene) remote() string { return s.vars["RNAME"] }

// commands runs some in a network namespace, and another one to take them back.
func commands(space string, argv [][]string, back []string) (func(), error) {
	run := func(argv []string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()

		out, err := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + space}, argv...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		return nil
	}
	release := func() { _ = run(back) } // the state of the node is compared
	for _, a := range argv {
		if err := run(a); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// deadAddress puts an address of the node's pod network that no pod has in the place of an endpoint's.
func deadAddress(s *scene) (release func(), err error) {
	cidr, err := netip.ParsePrefix(s.vars["CIDR"])
	if err != nil {
		return nil, err
	}
	b := cidr.Addr().As4()
	b[3] = 250
	slices := client.DiscoveryV1().EndpointSlices(namespace)
	set := func(address string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/0/addresses/0", "value": %q}]`, address)
		_, err := slices.Patch(ctx, matrixByHand, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			time.Sleep(1500 * time.Millisecond) // kube-proxy's minSyncPeriod, and its sync
		}
		return err
	}
	slice, err := slices.Get(context.Background(), matrixByHand, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	was := slice.Endpoints[0].Addresses[0]
	return func() { _ = set(was) }, set(netip.AddrFrom4(b).String())
}
