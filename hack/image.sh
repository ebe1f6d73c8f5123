#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the helper's image as an archive, without a container engine: hack/image.sh [ARCHIVE]. deploy/image/README.md
# says what is in it, and why.
#
#   ARCHS=amd64,arm64   architectures
#   TAG=…               name of the image
#   VERSION=…           version of the helper; by default that of the commit, as the plugin's
#   PUSH=true           also push it
#
# It prints the image's name with its digest.
set -euo pipefail

cd "$(dirname "$0")/.."

archive="$(realpath -m "${1:-bin/nodehelper.tar}")"
archs="${ARCHS:-amd64,arm64}"
tag="${TAG:-ghcr.io/svcproxy/nodehelper:dev}"
version="${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}"

mkdir -p "$(dirname "$archive")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for arch in ${archs//,/ }; do
	CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X github.com/svcproxy/kubectl-svcproxy/nodehelper.version=$version" \
		-o "$work/$arch" ./cmd/svcproxy-nodehelper
done
(cd hack/licenses && go build -o "$work/licenses" .)
"$work/licenses" -o "$work/THIRD_PARTY_LICENSES.txt" ./cmd/svcproxy-nodehelper >&2

keep=(
	'/usr/sbin/xtables-*-multi' '/usr/sbin/iptables-*' '/usr/sbin/ip6tables-*' '{lib}/xtables/*.so' # both backends, every match and target
	/usr/sbin/nft /usr/sbin/ipset /usr/sbin/conntrack /usr/bin/ip /usr/sbin/bridge
	/etc/protocols # ipset and iptables print protocols by name
)
doc=/usr/share/doc/svcproxy-nodehelper
# go-containerregistry is no dependency of the product: the builder is a module of its own.
(cd deploy/image && go build -o "$work/image" .)
"$work/image" "-push=${PUSH:-false}" -o "$archive" -t "$tag" -arch "$archs" -packages iptables,nftables,ipset,conntrack,iproute2,netbase \
	-keep "$(IFS=,; echo "${keep[*]}")" -add "$work/{arch}:/svcproxy-nodehelper,LICENSE:$doc/LICENSE,$work/THIRD_PARTY_LICENSES.txt:$doc/THIRD_PARTY_LICENSES.txt" -entrypoint /svcproxy-nodehelper \
	-source https://github.com/svcproxy/kubectl-svcproxy
