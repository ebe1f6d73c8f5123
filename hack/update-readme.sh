#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts the output of the README's first command into the README, between the two comments that mark its place. With
# --check it changes nothing, and fails if the README shows something else than the plugin prints. The plugin has to be
# built.
set -euo pipefail

cd "$(dirname "$0")/.."

args=(trace web -n shop --snapshot examples/broken-node)

shown="$(mktemp)"
new="$(mktemp)"
trap 'rm -f "$shown" "$new"' EXIT
{
	echo '```'
	echo "\$ kubectl svcproxy ${args[*]}"
	status=0
	NO_COLOR=1 bin/kubectl-svcproxy "${args[@]}" || status=$?
	echo '```'
	if ((status != 1)); then
		echo "the example has to end with exit code 1, a mismatch; it ended with $status" >&2
		exit 1
	fi
} >"$shown"
awk -v shown="$shown" '
	/^<!-- end of output -->$/ { inside = 0 }
	!inside
	/^<!-- output: make trace-example -->$/ {
		inside = 1
		while ((getline line < shown) > 0) print line
	}
' README.md >"$new"
if [[ "${1:-}" == --check ]]; then
	diff -u README.md "$new" >&2 || {
		echo "the README shows an old output: run make readme" >&2
		exit 1
	}
else
	cat "$new" >README.md
fi
