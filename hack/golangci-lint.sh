#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs golangci-lint in the one version that everybody uses. It is built once, from source, into a directory outside the
# tree: ${XDG_CACHE_HOME:-~/.cache}/kubectl-svcproxy/bin. Usage: hack/golangci-lint.sh run
# or hack/golangci-lint.sh fmt
set -euo pipefail

version=v2.15.0

cd "$(dirname "$0")/.."
# The name has the Go version in it: a linter built with an older Go refuses newer code.
tool="${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-svcproxy/bin/golangci-lint-$version-$(go env GOVERSION)"
if [[ ! -x "$tool" ]]; then
	echo "building golangci-lint $version (once, some minutes)" >&2
	dir="$(mktemp -d)"
	trap 'rm -rf "$dir"' EXIT
	GOBIN="$dir" GOFLAGS="" go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mkdir -p "$(dirname "$tool")"
	mv "$dir/golangci-lint" "$tool"
	rm -rf "$dir"
	trap - EXIT
fi
exec "$tool" "$@"
