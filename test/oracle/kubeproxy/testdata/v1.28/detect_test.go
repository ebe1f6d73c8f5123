// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	proxyutiliptables "k8s.io/kubernetes/pkg/proxy/util/iptables"
)

// What tells local traffic, and what deletes entries of connection tracking, of 1.28 to 1.30.

type localDetector = proxyutiliptables.LocalTrafficDetector

var (
	byNothing = proxyutiliptables.NewNoOpLocalDetector
	byCIDR    = must(proxyutiliptables.NewDetectLocalByCIDR)
	byBridge  = must(proxyutiliptables.NewDetectLocalByBridgeInterface)
	byPrefix  = must(proxyutiliptables.NewDetectLocalByInterfaceNamePrefix)
)

func must(make func(string) (localDetector, error)) func(string) localDetector {
	return func(s string) localDetector {
		d, err := make(s)
		if err != nil {
			panic(err)
		}
		return d
	}
}

// withoutConntrack keeps a proxier from running the program conntrack: up to 1.29 it does so itself.
func withoutConntrack(p proxier) {
	if has(p, "exec") {
		set(p, "exec", noPrograms)
		return
	}
	set(place(p, "conntrack").Interface(), "execer", noPrograms)
}
