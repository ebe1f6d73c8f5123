#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the go.mod of one version of kube-proxy anew: gen.sh go.mod v1.37.1, or gen.sh v1.33.mod v1.33.0
# k8s.io/kubernetes asks for its staging modules as v0.0.0; the replace directives name the real ones.
set -euo pipefail
mod=$1 v=$2 sv=v0.${2#v1.}
cd "$(dirname "$0")/kubeproxy"
rm -f "$mod" "${mod%.mod}.sum"
src=$(cd / && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$v" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
{
	echo "module github.com/svcproxy/kubectl-svcproxy/test/oracle/kubeproxy"
	echo
	sed -n '/^go /p' ../../../go.mod
	echo
	echo "require ("
	echo "	github.com/svcproxy/kubectl-svcproxy v0.0.0"
	echo "	k8s.io/kubernetes $v"
	echo ")"
	echo
	echo "replace ("
	echo "	github.com/svcproxy/kubectl-svcproxy => ../../.."
	# What is generated from Kubernetes' API has to be of its own age, not of the main module's.
	for m in k8s.io/kube-openapi k8s.io/utils k8s.io/klog/v2 github.com/google/gnostic-models; do
		echo "	$m => $m $(awk -v m=$m '$1==m{print $2; exit}' "$src/go.mod")"
	done
	awk '/^replace \(/{r=1;next} r&&/^\)/{r=0} r&&$2=="=>"{print $1}' "$src/go.mod" | while read -r m; do echo "	$m => $m $sv"; done
	echo ")"
} >"$mod"
go mod tidy -modfile="$mod"
