// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// nodePort judges the state of the bridge's port that the node's end of the pair is: what comes by one that does not
// forward is discarded, too (br_handle_frame in net/bridge/br_input.c).
func (v *veth) nodePort() (s report.Segment, ok bool) {
	bridge := v.node.Host.Master(v.end)
	state := v.node.Host.PortState(bridge, v.end)
	if state == "" {
		return s, true
	}
	return with(v.cannot("the bridge %s neither takes nor sends anything by its port %s, behind which the pod is", bridge,
		v.end), fmt.Sprintf("ip -d link: %s master %s state %s", v.end, bridge, state)), false
}

// sentFrom judges whether the node's bridge takes the pod's frames, which come from a link-layer address.
func (v *veth) sentFrom(mac string) (s report.Segment, ok bool) {
	bridge := v.node.Host.Master(v.end)
	refuses, known := v.node.Host.Refuses(bridge, v.end, mac)
	switch {
	case !known:
		return unknown(v.segment, v.place, v.node.Name, "bridge fdb show br "+bridge, "the port %s of the bridge %s is "+
			"locked, and whether the bridge knows the pod's link-layer address %s was not read", v.end, bridge, mac), false
	case !refuses:
		return s, true
	}
	return with(v.cannot("the bridge %s takes nothing from the pod: its port %s is locked, and the bridge does not know "+
		"that the pod's link-layer address %s is there", bridge, v.end, mac),
		fmt.Sprintf("ip -d link: %s master %s locked on", v.end, bridge),
		fmt.Sprintf("bridge fdb: no entry for %s dev %s", mac, v.end)), false
}

// takenFrom judges whether interfaces of the pod take the node's frames, which come from a link-layer address: a port
// of a bridge of the pod's own, as of KubeVirt, and a macvlan.
func (v *veth) takenFrom(mac string) (s report.Segment, ok bool) {
	own := v.pod.Host
	bridge := own.Master(v.pair)
	if refuses, known := own.Refuses(bridge, v.pair, mac); !known {
		return unknown(v.segment, v.place, v.node.Name, enter("bridge fdb show br "+bridge), "the port %s of the pod's own "+
			"bridge %s is locked, and whether the bridge knows the node's link-layer address %s was not read", v.pair, bridge,
			mac), false
	} else if refuses {
		return with(v.cannot("the pod's own bridge %s takes nothing from the node: its port %s is locked, and the bridge "+
			"does not know that %s is there", bridge, v.pair, mac),
			fmt.Sprintf("ip -d link in the pod: %s master %s locked on", v.pair, bridge)), false
	}
	takes, list := own.TakesFrom(v.dev, mac)
	if takes || mac == "" {
		return s, true
	}
	return with(v.cannot("the pod's %s is a macvlan with mode source, and does not take frames from the node's address %s",
		v.dev, mac), fmt.Sprintf("ip -d link in the pod: %s macvlan mode source %s", v.dev, strings.Join(list, " "))), false
}
