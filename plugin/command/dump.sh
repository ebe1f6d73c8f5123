#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes what kubectl svcproxy reads of a node: the files of a snapshot, with the node's own tools. Run it as root on the
# node, in the node's network namespace:
#
#   sh collect.sh [OUT]
#
# OUT is a new directory, or a file that ends in .tar.gz; without it, svcproxy-NODE in the working directory. Nothing on
# the node is changed: a tool is run only where the kernel's module that it asks is there already. Then, where kubectl
# works, add the API's side, within seconds, and read both:
#
#   mkdir -p OUT/cluster
#   for kind in services endpointslices pods nodes; do kubectl get "$kind" -A -o json > "OUT/cluster/$kind.json"; done
#   kubectl -n kube-system get configmap kube-proxy -o json > OUT/cluster/configmaps.json    # where there is one
#   kubectl svcproxy verify -A --snapshot OUT
#
# The files hold names, addresses and firewall rules.
set -eu
umask 077

node='@NODE@'
: "${node:=$(uname -n)}" # the Node's name in the API
out=${1:-svcproxy-$node}

if [ -e "$out" ]; then
	echo "error: $out exists: name another directory or file" >&2
	exit 2
fi
if [ "$(id -u)" != 0 ]; then
	echo "error: only root may read the rules of a node" >&2
	exit 2
fi
case $out in
*.tar.gz)
	base=$(mktemp -d)
	trap 'rm -rf "$base"' EXIT
	;;
*) base=$out ;;
esac
dir=$base/nodes/$node
mkdir -p "$dir"

limit=
if command -v timeout >/dev/null 2>&1; then
	limit="timeout 60"
fi

# run FILE COMMAND… writes what a command prints. The file of a command that fails, or that prints nothing, is left out:
# a file that is not there was not collected.
run() {
	file=$1
	shift
	if ! command -v "$1" >/dev/null 2>&1; then
		echo "$file: not collected, $1 is not installed" >&2
		return 0
	fi
	# shellcheck disable=SC2086 # the words of a command
	if ! $limit "$@" >"$dir/$file" 2>"$base/errors"; then
		echo "$file: not collected, $* failed: $(head -n 1 "$base/errors")" >&2
		rm -f "$dir/$file"
	elif [ ! -s "$dir/$file" ]; then
		rm -f "$dir/$file"
	fi
}

# routes FILE FAMILY reads the routes of IPv4 (-4) or IPv6 (-6). Where they go by next hop objects, -d alone may tell where
# these lead (net.ipv4.nexthop_compat_mode).
routes() {
	run "$1" ip -j "$2" route show table all
	if [ -e "$dir/$1" ] && grep -q '"nhid"' "$dir/$1"; then
		run "$1" ip -j -d "$2" route show table all
	fi
	also "$1" ip -j "$2" route show cache
}

# also FILE COMMAND… appends to a file that was read the list that a further command prints: older programs and kernels do
# not know all of them.
also() {
	file=$1
	shift
	[ -e "$dir/$file" ] || return 0
	if $limit "$@" >"$base/further" 2>/dev/null && grep -q '^\[' "$base/further"; then
		cat "$base/further" >>"$dir/$file"
	fi
	rm -f "$base/further"
}

# loaded MODULE FUNCTION: the kernel has the module, which has that function, so that a request does not load it. One
# without loadable modules loads none.
loaded() {
	[ ! -e /proc/modules ] || [ -e "/sys/module/$1" ] || grep -q "^$1 " /proc/modules ||
		grep -q "/$1\\.ko" "/lib/modules/$(uname -r)/modules.builtin" 2>/dev/null || grep -q " $2\$" /proc/kallsyms
}

# saved FAMILY: the rules of iptables or ip6tables, of each backend.
saved() {
	if ! command -v "$1-nft-save" >/dev/null 2>&1 && ! command -v "$1-legacy-save" >/dev/null 2>&1; then
		run "$1-save.txt" "$1-save" -c
		return 0
	fi
	if loaded nf_tables nft_register_expr; then
		run "$1-nft-save.txt" "$1-nft-save" -c
	fi
	tables=/proc/net/ip_tables_names
	if [ "$1" = ip6tables ]; then
		tables=/proc/net/ip6_tables_names
	fi
	if [ -s "$tables" ]; then
		run "$1-legacy-save.txt" "$1-legacy-save" -c
	fi
}

# not_root FILE: it is not root's, or others may write it.
not_root() {
	case $(stat -L -c %u:%a "$1" 2>/dev/null) in
	0:*[2367] | 0:*[2367]? | '') return 0 ;;
	0:*) return 1 ;;
	esac
}

# outside_pods: the process of this directory is in no control group of a pod's, made by the kubelet through directories that only
# root may write.
outside_pods() {
	pods='\(.*[/-]kubepods\(\.slice\)\{0,1\}/\([^:]*/\)\{0,1\}\([^:/]*-\)\{0,1\}pod[0-9a-f][0-9a-f_-]\{14,35\}\(\.slice\)\{0,1\}\)\(/.*\)\{0,1\}'
	at=$(sed -n "s!^[0-9]*:\([^:]*\):$pods\$!\1 \2!p" cgroup | head -n 1)
	group=${at#* }
	tree=/sys/fs/cgroup/$(echo "${at%% *}" | sed 's/^name=//')
	if [ -d /sys/fs/cgroup/unified ] && [ "$tree" = /sys/fs/cgroup/ ]; then
		tree=/sys/fs/cgroup/unified
	fi
	while [ -n "$group" ]; do
		case $group in
		*..*) return 0 ;;
		esac
		if not_root "$tree$group"; then
			return 0
		fi
		group=${group%/*}
	done
	[ -z "$at" ]
}

# doubt prints why the process of this directory is not what the name of its executable says; nothing if root vouches for it
# (docs/security.md has the rule): anyone may give that name to a program.
doubt() {
	uids=$(sed -n 's/^Uid:[[:space:]]*//p' status | tr -s '[:space:]' ' ')
	if [ "$(readlink ns/user)" != "$(readlink /proc/1/ns/user)" ]; then
		echo "it is in a user namespace of its own"
		return 0
	fi
	# What the kernel says of it comes first: a file system of a user's may never answer.
	why=
	case $(sed -n 's/^CapEff:.*\(.\)...$/\1/p' status) in # CAP_NET_ADMIN is bit 12
	[13579bdf]) ! outside_pods || why=$(own_root "and its control group is no pod's") ;;
	*) why=$(own_root "without CAP_NET_ADMIN") ;;
	esac
	if [ -n "$why" ]; then
		echo "$why"
		return 0
	fi
	case $(stat -L -c %a exe 2>/dev/null) in
	???) ;;
	'') echo "its executable cannot be looked at" ;;
	*) echo "its executable gives rights to whoever runs it" ;;
	esac
}

# own_root WHY: doubt, of a process that is to be root's on the node itself.
own_root() {
	if [ "$uids" != "0 0 0 0 " ] && [ "$uids" != "0 0 0 0" ]; then
		echo "it runs as user ${uids%% *}, $1"
	elif grep -q kubepods cgroup; then
		echo "it is in a pod, $1"
	elif [ "$(stat -L -c %d:%i root/ 2>/dev/null)" != "$(stat -L -c %d:%i /)" ]; then
		echo "it is in a container, $1"
	elif not_root exe; then
		echo "its executable can be written by others than root"
	fi
}

# processes writes which processes may serve Services, and of which that is doubted, and finds kube-proxy's, or that of the program
# that contains it: $proxy, and $inside where it is in a container.
processes() {
	echo "1 $(cat /proc/1/comm)"
	for p in /proc/[0-9]*; do
		cd "$p" 2>/dev/null || continue # what is read below is of this process alone
		exe=$(readlink exe 2>/dev/null) || continue
		if [ "$(readlink ns/net)" != "$(readlink /proc/self/ns/net)" ]; then
			continue
		fi
		name=${exe% (deleted)}
		name=${name##*/}
		comm=$(cat comm 2>/dev/null) || continue
		case $name in
		kube-proxy | kubelite | cilium-agent | kube-router | antrea-agent | ovnkube | calico-node) ;;
		k3s)
			case $comm in
			k3s | k3s-server | k3s-agent) name=$comm ;;
			*) continue ;;
			esac
			;;
		*)
			case $comm in
			kube-proxy | kubelite | k3s | k3s-server | k3s-agent | cilium-agent | kube-router | antrea-agent | ovnkube | calico-node)
				echo "# ${p##*/} $comm: not taken for it, its executable has another name"
				;;
			esac
			continue
			;;
		esac
		why=$(doubt)
		[ "$(readlink exe 2>/dev/null)" = "$exe" ] || continue
		if [ -n "$why" ]; then
			echo "# ${p##*/} $name: not taken for it, $why"
			continue
		fi
		group=$(sed -n '/^0::\/./p' cgroup | head -n 1)
		[ -n "$group" ] || group=$(sed -n '/:name=systemd:/p' cgroup | head -n 1)
		echo "${p##*/} ${group:--} $name"
	done
}

# listens PORT: kube-proxy has a socket of its own at the port, on loopback.
listens() {
	inodes=$(ls -l "/proc/${proxy:-none}/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' | tr '\n' ' ')
	cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$(printf %04X "$1")" -v inodes="$inodes" '
		BEGIN { n = split(inodes, a, " "); for (i = 1; i <= n; i++) own[a[i]] = 1 }
		$4 == "0A" && ($2 == "0100007F:" port || $2 ~ "^0+:" port "$") && ($10 in own) { found = 1 }
		END { exit !found }'
}

# get PORT/PATH FILE: what kube-proxy answers, if it is kube-proxy that listens there, before and after.
get() {
	if ! listens "${1%%/*}"; then
		echo "$2: not collected, no kube-proxy that root vouches for listens at port ${1%%/*} of loopback" >&2
		return 0
	elif command -v curl >/dev/null 2>&1; then
		run "$2" curl -s -f -m 10 --noproxy '*' --max-filesize 33554432 "http://127.0.0.1:$1"
	else
		run "$2" wget -q -T 10 --no-proxy --max-redirect=0 -O - "http://127.0.0.1:$1"
	fi
	if ! listens "${1%%/*}"; then
		rm -f "$dir/$2"
	fi
}

saved iptables
saved ip6tables
if loaded nf_tables nft_register_expr; then
	run nft-ruleset.json nft -j list ruleset
	if command -v nft >/dev/null 2>&1; then # older ones than 1.0.1 do not know it
		nft list hooks >"$dir/nft-hooks.txt" 2>/dev/null || true
		[ -s "$dir/nft-hooks.txt" ] || rm -f "$dir/nft-hooks.txt"
	fi
fi
if loaded ip_set ip_set_type_register; then
	run ipset-save.txt ipset save
fi
if loaded ip_vs register_ip_vs_scheduler; then
	run ipvsadm.txt ipvsadm-save -n
fi
date -u +%Y-%m-%dT%H:%M:%SZ >"$dir/time.txt"
run ip-addr.json ip -j addr
also ip-addr.json ip -j addrlabel list
run ip-link.json ip -j -d link
routes ip-route.json -4
routes ip6-route.json -6
run ip-rule.json ip -j rule
run ip6-rule.json ip -j -6 rule
run ip-neigh.json ip -j neigh show nud all
also ip-neigh.json ip -j neigh show proxy
run bridge-fdb.json bridge -j fdb show
if loaded xfrm_user xfrm_user_rcv_msg; then
	# Before Linux 5.15 there are no default ones.
	run xfrm-policy.txt sh -c 'ip xfrm policy && { ip xfrm policy getdefault 2>/dev/null || :; }'
fi
if command -v sysctl >/dev/null 2>&1; then # some settings can only be written: it fails for these, and prints the others
	sysctl -a >"$dir/sysctl.txt" 2>/dev/null || [ -s "$dir/sysctl.txt" ] || rm -f "$dir/sysctl.txt"
fi
if command -v tc >/dev/null 2>&1; then
	for d in /sys/class/net/*; do
		d=${d##*/}
		tc filter show dev "$d" ingress 2>/dev/null | sed "s/^/tc $d ingress /"
		for what in "filter show dev $d egress" "qdisc show dev $d" "class show dev $d" "filter show dev $d"; do
			# shellcheck disable=SC2086 # words
			tc $what 2>/dev/null | sed "s/^/tc $d egress /"
		done
	done >"$dir/programs.txt"
	[ -s "$dir/programs.txt" ] || rm -f "$dir/programs.txt"
fi
if [ -s /proc/net/arp_tables_names ]; then # a question about a table that is not there would make it
	if command -v arptables-legacy >/dev/null 2>&1; then
		for c in INPUT OUTPUT FORWARD; do
			arptables-legacy -nL "$c" 2>/dev/null | sed -n "/policy DROP/h; s/^-j/arptables filter $c -j/p
				\${x;s/.*policy DROP.*/arptables filter $c -j DROP/p;}"
		done >>"$dir/programs.txt"
	else
		for c in INPUT OUTPUT FORWARD; do
			echo "arptables filter $c not-read -j not-read"
		done >>"$dir/programs.txt"
	fi
fi
if loaded nf_conntrack_netlink ctnetlink_dump_table; then
	run conntrack.txt conntrack -L -o extended
fi
if ss -HOltn >/dev/null 2>&1; then
	run listen.txt ss -HOltunpem
else
	run listen.txt ss -Hltunp # before 5.1
fi
(processes) >"$dir/processes.txt"
proxy=$(awk '$NF == "kube-proxy" && !/^#/ { print $1; exit }' "$dir/processes.txt")
if [ -z "$proxy" ]; then
	proxy=$(awk '$NF ~ /^(k3s|k3s-server|k3s-agent|kubelite)$/ && !/^#/ { print $1; exit }' "$dir/processes.txt")
fi

get 10249/configz configz.json
get 10249/metrics metrics.txt
get 10249/proxyMode proxyMode.txt
get 10256/healthz healthz.json
get 10256/livez livez.json

# Of kube-proxy's command line only the flags that decide what it programs: others may be secrets.
if [ -n "$proxy" ] && [ "$(basename "$(readlink "/proc/$proxy/exe")")" = kube-proxy ]; then
	{
		echo kube-proxy
		tr '\0' '\n' <"/proc/$proxy/cmdline" | awk -v names='@FLAGS@' -v bools='@BOOLS@' '
			BEGIN {
				n = split(names, a, " "); for (i = 1; i <= n; i++) known[a[i]] = 1
				n = split(bools, a, " "); for (i = 1; i <= n; i++) bare[a[i]] = 1
			}
			NR == 1 { next }
			of != "" { print "--" of "=" $0; of = ""; next }
			/^-/ {
				sub(/^-+/, ""); at = index($0, "="); name = at ? substr($0, 1, at - 1) : $0
				if (!(name in known)) next
				if (at) print "--" $0
				else if (name in bare) print "--" name "="
				else of = name
			}'
	} >"$dir/kube-proxy-flags.txt"
	# A file of a container is not read: its links could lead anywhere on the node.
	config=$(sed -n 's/^--config=//p' "$dir/kube-proxy-flags.txt")
	if [ -n "$config" ] && [ "$(stat -L -c %d:%i "/proc/$proxy/root/")" = "$(stat -L -c %d:%i /)" ] && [ -f "$config" ] &&
		grep -q '^kind: *KubeProxyConfiguration *$' "$config"; then
		cat "$config" >"$dir/kube-proxy-config.yaml"
	fi
fi

{
	uname -r
	iptables --version || true
	nft --version || true
} >"$dir/versions.txt" 2>/dev/null

rm -f "$base/errors"
if [ "$base" != "$out" ]; then
	tar -C "$base" -cf - nodes | gzip >"$out"
fi
echo "$out: $(find "$dir" -type f | wc -l) files of node $node"
