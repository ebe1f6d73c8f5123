// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"time"
)

// Config is the part of KubeProxyConfiguration (pkg/proxy/apis/config) that decides what is programmed.
type Config struct {
	// Source is where it was read ("configz.json", "configmaps.yaml", "kube-proxy-config.yaml"); "defaults" when it was
	// not found. With "defaults", expectations that depend on settings without a meaningful default (detectLocal,
	// clusterCIDR) are MasqUnknown.
	Source              string
	Mode                string // as configured; "" stands for iptables
	DetectLocalMode     string // ClusterCIDR (also for ""), NodeCIDR, BridgeInterface, InterfaceNamePrefix
	ClusterCIDRs        []netip.Prefix
	BridgeInterface     string
	InterfaceNamePrefix string
	MasqueradeAll       bool
	MasqueradeBit       int  // 14 by default: mark 0x4000
	LocalhostNodePorts  bool // iptables mode; true by default
	NodePortAddresses   []string
	Scheduler           string         // ipvs mode; rr by default
	StrictARP           bool           // ipvs mode
	ExcludeCIDRs        []netip.Prefix // ipvs mode: virtual servers that kube-proxy does not manage
	HostnameOverride    string
	BindAddress         netip.Addr // overrides the node's IP, which decides on load-balancer source ranges and "primary"
	FeatureGates        map[string]bool
	MinSyncPeriod       time.Duration // the least time between two syncs; 0: its default
	Version             string        // kube-proxy's version ("v1.36.3"), empty when not known
}

// The modes of detectLocalMode (pkg/proxy/apis/config/types.go).
const (
	DetectClusterCIDR = "ClusterCIDR"
	DetectNodeCIDR    = "NodeCIDR"
	DetectBridge      = "BridgeInterface"
	DetectNamePrefix  = "InterfaceNamePrefix"
)

// The proxy modes, as the configuration and /proxyMode name them (pkg/proxy/apis/config/types.go). Userspace mode was
// removed after 1.25.
const (
	IPTables  = "iptables"
	NFTables  = "nftables"
	IPVS      = "ipvs"
	Userspace = "userspace"
)
