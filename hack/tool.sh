#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the path of a tool that the release and its tests need, in the one version that everybody uses. It is built
# once, from source, into a directory outside the tree: ${XDG_CACHE_HOME:-~/.cache}/kubectl-svcproxy/bin. Usage:
# "$(hack/tool.sh krew)" version
set -euo pipefail

tags=''
case "${1:-}" in
# The newest whose module and Go version can be had from the module proxy.
goreleaser) module=github.com/goreleaser/goreleaser/v2 version=v2.16.0 package=$module ;;
krew) module=sigs.k8s.io/krew version=v0.5.0 package=$module/cmd/krew ;;
validate-krew-manifest) module=sigs.k8s.io/krew version=v0.5.0 package=$module/cmd/validate-krew-manifest ;;
govulncheck) module=golang.org/x/vuln version=v1.8.0 package=$module/cmd/govulncheck ;;
syft) module=github.com/anchore/syft version=v1.42.3 package=$module/cmd/syft ;;
bpf2go) module=github.com/cilium/ebpf version=v0.22.0 package=$module/cmd/bpf2go ;;
gotestsum) module=gotest.tools/gotestsum version=v1.13.0 package=$module ;;
actionlint) module=github.com/rhysd/actionlint version=v1.7.12 package=$module/cmd/actionlint ;;
# Prometheus without the discovery of targets by the APIs of clouds, which would be most of what is compiled.
prometheus | promtool) module=github.com/prometheus/prometheus version=v0.316.0 package=$module/cmd/$1 tags=remove_all_sd ;;
*)
	echo "usage: hack/tool.sh actionlint|bpf2go|goreleaser|gotestsum|govulncheck|krew|prometheus|promtool|syft|validate-krew-manifest" >&2
	exit 2
	;;
esac

tool="${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-svcproxy/bin/$1-$version-$(go env GOVERSION)"
if [[ ! -x "$tool" ]]; then
	echo "building $1 $version (once, some minutes)" >&2
	dir="$(mktemp -d)"
	trap 'rm -rf "$dir"' EXIT
	# Not go install: it asks for the list of all versions, which a proxy need not have.
	(
		cd "$dir"
		export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
		go mod init tool 2>/dev/null
		go mod edit -require="$module@$version"
		go build -trimpath -tags "$tags" -ldflags '-s -w' -o tool "$package" 2>build.log || { cat build.log >&2 && exit 1; }
	)
	mkdir -p "$(dirname "$tool")"
	mv "$dir/tool" "$tool"
fi
echo "$tool"
