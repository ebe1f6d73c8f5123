# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every part of the cluster shares. Sourced.

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
root="$(cd "$here/../.." && pwd)"

KUBERNETES_VERSION="${KUBERNETES_VERSION:-v1.37.1}"
# "NODE=MODE[@VERSION] …", with the modes iptables (nft backend), iptables-legacy and nftables, and a version of kube-proxy of its own.
MODES="${MODES:-node1=iptables node2=iptables-legacy node3=nftables}"

# How packets get from node to node: direct, by routes; or vxlan, by interfaces as flannel makes them.
NETWORK="${NETWORK:-direct}"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-svcproxy"
go_version="$(go env GOVERSION)"
bin="$cache/kubernetes-$KUBERNETES_VERSION-$go_version-$(go env GOARCH)"
runtime="$cache/containerd-$(sha256sum "$here/containerd/go.mod" | cut -c1-12)-$go_version-$(go env GOARCH)"
state="${CLUSTER_DIR:-/var/lib/kubectl-svcproxy-cluster}"

bridge=svcproxy0
api4=10.79.0.1 api6=fd00:79::1
pods=10.245.0.0/16,fd00:10:245::/56
services=10.97.0.0/16,fd00:10:97::/112
# Of a Service kube-dns, for whoever makes one: the cluster has none.
dns=10.97.0.10
cgroup=svcproxy-cluster

helper_image="ghcr.io/svcproxy/nodehelper:dev"
echo_image="svcproxy.test/echo:dev"
pause_image="svcproxy.test/pause:dev"
# proxy_image VERSION BACKEND
proxy_image() { echo "svcproxy.test/kube-proxy:$1-$2"; }
minor_of() { cut -d. -f2 <<<"$1"; }

export KUBECONFIG="$state/admin.kubeconfig"
export PATH="$bin:$PATH"

say() { echo "$*" >&2; }
die() {
	say "cluster: $*"
	exit 1
}

# start NAME COMMAND… runs in the background, in a session of its own; its pid and log are kept.
start() {
	local name="$1"
	shift
	setsid "$@" >"$state/log/$name.log" 2>&1 </dev/null &
	echo "$! $(born "$!")" >"$state/pid/$name"
}

# born PID prints when a process was started, in ticks since the machine was; nothing for one that is no more (proc(5), starttime).
born() {
	sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

# running NAME: the process is still there, and is not another one with its number.
running() {
	local pid since
	[[ -e "$state/pid/$1" ]] || return 1
	read -r pid since <"$state/pid/$1"
	[[ "$(born "$pid")" == "$since" ]]
}

# stop NAME ends what start began, and waits for it.
stop() {
	local name="$1" pid _
	if running "$name"; then
		read -r pid _ <"$state/pid/$name"
		kill "$pid" 2>/dev/null || true
		for _ in $(seq 100); do
			running "$name" || break
			sleep 0.1
		done
		if running "$name"; then
			kill -9 "$pid" 2>/dev/null || true
		fi
	fi
	rm -f "$state/pid/$name"
}

# until_true SECONDS WHAT COMMAND… waits until a command succeeds.
until_true() {
	local seconds="$1" what="$2" end
	shift 2
	end=$((SECONDS + seconds))
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || die "$what: not within $seconds s"
		sleep 0.1
	done
}

nodes() {
	local m
	for m in $MODES; do
		echo "${m%%=*}"
	done
}

mode_of() {
	local m
	for m in $MODES; do
		if [[ "${m%%=*}" == "$1" ]]; then
			echo "${m#*=}"
			return
		fi
	done
	die "there is no node $1 in MODES (\"$MODES\")"
}

# number_of NODE counts from 1.
number_of() {
	local n=0 name
	for name in $(nodes); do
		n=$((n + 1))
		if [[ "$name" == "$1" ]]; then
			echo "$n"
			return
		fi
	done
	die "there is no node $1: there is $(nodes | xargs)"
}
