#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Process 1 of a node: node-init.sh NODE DIR ADDRESSES IMAGES
set -euo pipefail

node="$1" dir="$2" addresses="$3" images="$4"
exec >"$dir/log/init.log" 2>&1

# A sysfs of this network namespace, with the cgroups of the old one. Before the mounts are shared: a lazy umount of one peer would
# take the other's with it.
keep="$(mktemp -d)"
mount --rbind /sys/fs/cgroup "$keep"
mount -t sysfs sysfs /sys
mount --rbind "$keep" /sys/fs/cgroup
umount -l "$keep"
rmdir "$keep"
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /var/lib/kubelet /var/lib/containerd /etc/cni/net.d /var/lib/cni /etc/svcproxy
mount --bind "$dir/kubelet" /var/lib/kubelet
mount --bind "$dir/containerd" /var/lib/containerd
mkdir -p "$dir/log/var"
mount --bind "$dir/log/var" /var/log
mount --bind "$dir/cni-conf" /etc/cni/net.d
mount --bind "$dir/cni-lib" /var/lib/cni
mount --bind "$dir/etc" /etc/svcproxy
hostname "$node"

containerd -c /etc/svcproxy/containerd.toml >"$dir/log/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do
	sleep 0.05
done
for archive in "$images"/*.tar; do
	ctr -n k8s.io images import --all-platforms=false "$archive"
done
kubelet --config=/etc/svcproxy/kubelet.yaml --kubeconfig=/etc/svcproxy/kubelet.kubeconfig \
	--hostname-override="$node" --node-ip="$addresses" -v=2 >"$dir/log/kubelet.log" 2>&1 &

# Process 1 takes over what its children leave behind.
while true; do
	wait -n || true
	sleep 0.2
done
