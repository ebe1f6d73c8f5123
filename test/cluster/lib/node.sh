# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A node: containerd, runc and kubelet, in namespaces of their own. Its process 1 is in the node's network namespace, so that a pod
# with hostPID that reads process 1 finds the node and not this machine. Sourced.

namespace_of() { echo "svcproxy-$1"; }

# The controllers of cgroup v1, or "" for the one tree of cgroup v2.
cgroup_roots() {
	if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
		echo /sys/fs/cgroup
	else
		local c
		for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
			[[ ! -d "/sys/fs/cgroup/$c" ]] || echo "/sys/fs/cgroup/$c"
		done
	fi
}

# The kubelet wants its root to be there in every controller, and cpuset's to be filled in.
make_cgroups() {
	local node="$1" dir p f
	for dir in $(cgroup_roots); do
		mkdir -p "$dir/$cgroup/$node"
		if [[ -e "$dir/cgroup.controllers" ]]; then
			for p in "$dir" "$dir/$cgroup"; do
				for f in $(cat "$p/cgroup.controllers"); do
					echo "+$f" >"$p/cgroup.subtree_control" 2>/dev/null || true
				done
			done
		fi
		[[ -e "$dir/cpuset.mems" && ! -e "$dir/cgroup.controllers" ]] || continue
		for p in "$dir/$cgroup" "$dir/$cgroup/$node"; do
			for f in cpuset.cpus cpuset.mems; do
				[[ -n "$(cat "$p/$f")" ]] || cat "$(dirname "$p")/$f" >"$p/$f"
			done
		done
	done
}

make_network() {
	local node="$1" number="$2" ns
	ns="$(namespace_of "$node")"
	[[ ! -e "/run/netns/$ns" ]] || return 0
	ip netns add "$ns"
	ip link add "sp-$node" type veth peer name eth0 netns "$ns"
	ip link set "sp-$node" master "$bridge" up
	ip -n "$ns" link set lo up
	ip -n "$ns" link set eth0 up
	ip -n "$ns" addr add "${api4%.*}.$((10 + number))/24" dev eth0
	ip -n "$ns" -6 addr add "${api6%::*}::1$number/64" dev eth0 nodad
	ip -n "$ns" route add default via "$api4"
	ip -n "$ns" -6 route add default via "$api6"
	# Not by ip netns exec, which mounts another /sys and so hides the cgroups.
	nsenter --net="/run/netns/$ns" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
}

write_config() {
	local node="$1" etc="$state/nodes/$1/etc"
	kubeconfig "$state/kubelet-$node.kubeconfig" "system:node:$node" system:nodes
	cp "$state/kubelet-$node.kubeconfig" "$etc/kubelet.kubeconfig"
	cp "$state/pki/ca.crt" "$etc/"
	echo "nameserver 127.0.0.1" >"$etc/resolv.conf"
	# restrict_oom_score_adj and oomScoreAdj: a sandbox may not grant CAP_SYS_RESOURCE.
	cat >"$etc/containerd.toml" <<-EOF
		version = 3
		oom_score = 0
		[plugins.'io.containerd.cri.v1.images'.pinned_images]
		  sandbox = '$pause_image'
		[plugins.'io.containerd.cri.v1.runtime']
		  restrict_oom_score_adj = true
		  disable_apparmor = true
		  [plugins.'io.containerd.cri.v1.runtime'.cni]
		    bin_dirs = ['$runtime']
		    conf_dir = '/etc/cni/net.d'
		  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
		    runtime_type = 'io.containerd.runc.v2'
		    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
		      BinaryName = '$runtime/runc'
		      SystemdCgroup = false
	EOF
	cat >"$etc/kubelet.yaml" <<-EOF
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		failCgroupV1: false
		cgroupDriver: cgroupfs
		cgroupRoot: /$cgroup/$node
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/svcproxy/ca.crt}}
		authorization: {mode: Webhook}
		featureGates: {KubeletInUserNamespace: true}
		oomScoreAdj: 0
		failSwapOn: false
		enforceNodeAllocatable: [pods]
		evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
		imageGCHighThresholdPercent: 100
		imageGCLowThresholdPercent: 99
		maxPods: 200
		nodeStatusUpdateFrequency: 5s
		shutdownGracePeriod: 0s
		resolvConf: /etc/svcproxy/resolv.conf
		clusterDNS: [$dns]
		clusterDomain: cluster.local
	EOF
}

start_node() {
	local node="$1" number dir pid addresses
	if running "node-$node"; then
		return 0
	fi
	number="$(number_of "$node")"
	dir="$state/nodes/$node"
	addresses="${api4%.*}.$((10 + number)),${api6%::*}::1$number"
	mkdir -p "$dir"/{kubelet,containerd,log,cni-conf,cni-lib,etc}
	make_network "$node" "$number"
	make_cgroups "$node"
	write_config "$node"
	start "node-$node" nsenter --net="/run/netns/$(namespace_of "$node")" \
		unshare --mount --propagation private --pid --fork --uts --ipc --mount-proc --kill-child=KILL \
		env PATH="$runtime:$PATH" bash "$here/lib/node-init.sh" "$node" "$dir" "$addresses" "$state/images"
	until_true 60 "node $node has pod addresses" has_pod_cidrs "$node"
	pid="$(init_of "$node")"
	[[ -n "$pid" ]] || die "node $node has no process 1: $(tail -n 3 "$dir/log/init.log")"
	cat >"$dir/cni-conf/10-svcproxy.conflist" <<-EOF
		{"cniVersion": "1.0.0", "name": "svcproxy", "plugins": [
		  {"type": "bridge", "bridge": "cni0", "mtu": $(pod_mtu), "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam": {"type": "host-local",
		   "ranges": $(kubectl get node "$node" -o json | jq -c '[.spec.podCIDRs[] | [{subnet: .}]]'), "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	EOF
}

has_pod_cidrs() {
	running "node-$1" || die "node $1 ended: $(tail -n 3 "$state/log/node-$1.log")"
	[[ -n "$(kubectl get node "$1" -o jsonpath='{.spec.podCIDRs}')" ]]
}

# init_of NODE prints the number that the node's process 1 has on this machine.
init_of() {
	local pid _
	[[ -e "$state/pid/node-$1" ]] || return 0
	read -r pid _ <"$state/pid/node-$1"
	pgrep -P "$pid" | head -n 1 || true
}

# in_node NODE COMMAND… runs a command on a node.
in_node() {
	local pid
	pid="$(init_of "$1")"
	[[ -n "$pid" ]] || die "node $1 does not run"
	shift
	# Behind the tools of the machine: one of the CNI plugins is named bridge.
	nsenter -t "$pid" -m -p -n -u -i -- env PATH="$PATH:$runtime" "$@"
}

# pod_mtu prints that of the pods' interfaces: what an Ethernet takes, less the headers of VXLAN over IPv6.
pod_mtu() { [[ "$NETWORK" == vxlan ]] && echo 1430 || echo 1500; }

# connect_nodes lays the routes to every node's pods, as a CNI's own routing would.
connect_nodes() {
	local node
	if [[ "$NETWORK" == vxlan ]]; then
		for node in $(nodes); do
			each_network "$node" make_tunnel "$node"
		done
	fi
	for node in $(nodes); do
		each_network "$node" reach "$node"
	done
}

# each_network NODE COMMAND… runs a command for each family of a node's pods, with: the device of the tunnel, the node's
# address, the pods' network, the family as ip wants it, the node's number.
each_network() {
	local node="$1" cidr number
	shift
	number="$(number_of "$node")"
	for cidr in $(kubectl get node "$node" -o jsonpath='{.spec.podCIDRs[*]}'); do
		if [[ "$cidr" == *:* ]]; then
			"$@" flannel-v6.1 "${api6%::*}::1$number" "$cidr" -6 "$number"
		else
			"$@" flannel.1 "${api4%.*}.$((10 + number))" "$cidr" -4 "$number"
		fi
	done
}

# reach NODE DEV ADDRESS CIDR FAMILY NUMBER lays the routes to a node's pods, here and on the other nodes.
reach() {
	local node="$1" at="$3" cidr="$4" family="$5" from
	shift
	ip "$family" route replace "$cidr" via "$at"
	for from in $(nodes); do
		[[ "$from" == "$node" ]] || connect "$from" "$@"
	done
}

# mac_of DEV NUMBER prints the link-layer address of a node's end of the tunnel.
mac_of() { printf '02:00:00:%s:00:%02x' "$([[ "$1" == flannel.1 ]] && echo 04 || echo 06)" "$2"; }

# make_tunnel NODE DEV ADDRESS CIDR FAMILY NUMBER makes a node's end of the tunnel (flannel's pkg/backend/vxlan/device.go).
make_tunnel() {
	local node="$1" dev="$2" at="$3" cidr="$4" family="$5" number="$6" ns
	ns="$(namespace_of "$node")"
	if ! ip -n "$ns" link show "$dev" >/dev/null 2>&1; then
		ip -n "$ns" link add "$dev" address "$(mac_of "$dev" "$number")" type vxlan id 1 local "$at" dev eth0 dstport 8472 nolearning
		ip -n "$ns" "$family" addr add "${cidr%/*}/$([[ "$family" == -4 ]] && echo 32 || echo 128)" dev "$dev"
		ip -n "$ns" link set "$dev" up
	fi
}

# connect NODE DEV ADDRESS CIDR FAMILY NUMBER lays a node's route to another one's pods, with what a tunnel needs besides
# (flannel's pkg/backend/vxlan/vxlan_network.go).
connect() {
	local node="$1" dev="$2" at="$3" cidr="$4" family="$5" number="$6" ns mac
	ns="$(namespace_of "$node")"
	if [[ "$NETWORK" == direct ]]; then
		ip -n "$ns" "$family" route replace "$cidr" via "$at"
		return
	fi
	mac="$(mac_of "$dev" "$number")"
	ip -n "$ns" "$family" neigh replace "${cidr%/*}" lladdr "$mac" dev "$dev" nud permanent
	bridge -n "$ns" fdb replace "$mac" dev "$dev" dst "$at"
	ip -n "$ns" "$family" route replace "$cidr" via "${cidr%/*}" dev "$dev" onlink
}

# stop_node ends a node: when its process 1 goes, the kernel ends all that run in it.
stop_node() {
	local node="$1" pid dir _
	pid="$(init_of "$node")"
	if [[ -n "$pid" ]]; then
		kill -9 "$pid" 2>/dev/null || true
	fi
	stop "node-$node"
	for _ in $(seq 100); do
		[[ -n "$pid" && -e "/proc/$pid" ]] || break
		sleep 0.1
	done
	ip netns del "$(namespace_of "$node")" 2>/dev/null || true
	ip link del "sp-$node" 2>/dev/null || true
	for dir in $(cgroup_roots); do
		for _ in $(seq 50); do
			[[ -d "$dir/$cgroup/$node" ]] || break
			find "$dir/$cgroup/$node" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
		done
	done
	rm -rf "${state:?}/nodes/$node"
}
