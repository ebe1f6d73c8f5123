// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
)

// What tells local traffic, and what deletes entries of connection tracking, from 1.31 on.

type localDetector = proxyutil.LocalTrafficDetector

var (
	byNothing = proxyutil.NewNoOpLocalDetector
	byCIDR    = proxyutil.NewDetectLocalByCIDR
	byBridge  = proxyutil.NewDetectLocalByBridgeInterface
	byPrefix  = proxyutil.NewDetectLocalByInterfaceNamePrefix
)

func withoutConntrack(p proxier) { set(p, "conntrack", conntrack.NewFake()) }
