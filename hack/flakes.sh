#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Looks for tests that fail by chance: runs those of CI's list N times, in shuffled order, beside 8 busy loops on two
# processors, and prints each failure.
#
#   hack/flakes.sh N [PACKAGE…]   all packages of the step test, or these
#
# RACE=1 builds them with the race detector, OUT is where the output of what failed goes (default: a new folder of /tmp).
# As root.
set -euo pipefail

cd "$(dirname "$0")/.."
times="${1:-}"
if [[ ! "$times" =~ ^[1-9][0-9]*$ ]]; then
	echo "usage: hack/flakes.sh N [PACKAGE…], not \"${1:-}\"" >&2
	exit 2
fi
shift
out="${OUT:-$(mktemp -d /tmp/flakes.XXXXXX)}"
work="$(mktemp -d)"
mkdir -p "$out"
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

mapfile -t packages < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "${@:-./...}")
race=()
[[ -z "${RACE:-}" ]] || race=(-race)
for p in "${packages[@]}"; do
	go test -c "${race[@]}" -o "$work/$(tr / _ <<<"${p% *}").test" "${p% *}"
done

cpus=0,1
for _ in 1 2 3 4 5 6 7 8; do
	taskset -c "$cpus" sh -c 'while :; do :; done' &
	busy+=("$!")
done
failed=0 runs=0
for ((i = 1; i <= times; i++)); do
	for p in "${packages[@]}"; do
		name="$(tr / _ <<<"${p% *}")"
		binary="$work/$name.test" log="$out/run" kept="$out/$i-$name.log"
		runs=$((runs + 1))
		if ! (cd "${p#* }" && taskset -c "$cpus" "$binary" -test.shuffle=on -test.count=1 -test.timeout=60m) >"$log" 2>&1; then
			failed=$((failed + 1))
			mv "$log" "$kept"
			echo "run $i of ${p% *} failed: $(grep -oE '^ *--- FAIL: [^ ]+' "$kept" | tr -s ' ' | cut -d' ' -f4 | paste -sd' ')"
		fi
	done
	echo "$i of $times: $runs runs of packages, $failed failed"
done
rm -f "$out/run"
((failed == 0))
