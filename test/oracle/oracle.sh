#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests against one version of kube-proxy:
#
#   oracle.sh flags v1.28.0      makes what the go command needs for it, in the cache, and prints the flags that say so;
#                                none for the version that kubeproxy/go.mod has
#   oracle.sh go.mod v1.37.2     makes kubeproxy/go.mod and its sums anew, with that version
#
# k8s.io/kubernetes asks for its staging modules as v0.0.0: the replace directives name the real ones.
set -euo pipefail

cd "$(dirname "$0")/kubeproxy"
here="$PWD" root="$(cd ../../.. && pwd)"
what="$1" version="$2"

# The files of kubeproxy/testdata that take the place of the package's own, by the shape of kube-proxy's API: "" for one
# that is left out.
files() {
	case "$version" in
	v1.28.*) echo "api_test.go=v1.28 detect_test.go=v1.28 nft_test.go=" ;;
	v1.29.* | v1.30.*) echo "api_test.go=v1.29 detect_test.go=v1.28" ;;
	v1.31.* | v1.32.*) echo "api_test.go=v1.31" ;;
	v1.33.* | v1.34.* | v1.35.* | v1.36.*) echo "api_test.go=v1.33" ;;
	esac
}

# The API and its client are those of the main module as far as kube-proxy's code can be compiled with them, so that
# most of what is compiled is the same for many versions; else the oldest that the main module can be compiled with.
api() {
	case "$version" in
	v1.28.* | v1.29.* | v1.30.* | v1.31.* | v1.32.* | v1.33.*) echo v0.33.0 ;;
	v1.34.*) echo v0.34.1 ;;
	esac
}

# module writes a module file: replaced modules are those of the version, without the API's.
module() {
	local source module api of
	source="$(cd / && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')"
	api="$(api)"
	echo "module github.com/svcproxy/kubectl-svcproxy/test/oracle/kubeproxy"
	echo
	sed -n '/^go /p' "$root/go.mod"
	echo
	echo "require ("
	echo "	github.com/svcproxy/kubectl-svcproxy v0.0.0"
	echo "	k8s.io/kubernetes $version"
	echo ")"
	echo
	echo "replace ("
	echo "	github.com/svcproxy/kubectl-svcproxy => ../../.."
	while read -r module; do
		of="v0.${version#v1.}"
		case "$module" in
		k8s.io/api | k8s.io/apimachinery | k8s.io/client-go | k8s.io/streaming) of="$api" ;;
		esac
		if [[ -n "$of" ]]; then
			echo "	$module => $module $of"
		fi
	done < <(awk '/^replace \(/{r=1;next} r&&/^\)/{r=0} r&&$2=="=>"{print $1}' "$source/go.mod")
	if [[ "$api" == v0.33.* ]]; then # with which a newer client's schemas cannot be compiled
		echo "	k8s.io/kube-openapi => k8s.io/kube-openapi v0.0.0-20250318190949-c8a335a9a2ff"
		echo "	github.com/google/gnostic-models => github.com/google/gnostic-models v0.6.9"
	fi
	echo ")"
}

# overlay writes which files take the place of which.
overlay() {
	local file from separator=""
	echo '{"Replace":{'
	for file in $(files); do
		from="${file#*=}" file="${file%%=*}"
		echo "$separator\"$here/$file\":\"${from:+$here/testdata/$from/$file}\""
		separator=,
	done
	echo '}}'
}

case "$what" in
go.mod)
	rm -f go.sum
	module >go.mod.new
	mv go.mod.new go.mod
	go mod tidy
	;;
flags)
	if [[ "$(awk '$1 == "k8s.io/kubernetes" {print $2}' go.mod)" == "$version" ]]; then
		exit
	fi
	dir="${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-svcproxy/oracle/$version"
	mkdir -p "$dir"
	overlay >"$dir/overlay.json"
	module >"$dir/go.mod"
	rm -f "$dir/go.sum"
	# Not go mod tidy: it would ask for the imports of all files, and no version has them all.
	go list -mod=mod -modfile="$dir/go.mod" -overlay="$dir/overlay.json" -deps -test . >/dev/null
	echo "-modfile=$dir/go.mod -overlay=$dir/overlay.json"
	;;
*)
	echo "$0: flags VERSION or go.mod VERSION" >&2
	exit 2
	;;
esac
