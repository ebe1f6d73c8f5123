#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the shards of the nightly list that were not run for longest, one or as many as the argument says, and writes
# date, commit, result and duration of each into hack/nightly.txt, which is committed. For where there is no night: before
# a large change is called done, run two.
set -euo pipefail

cd "$(dirname "$0")/.."
record=hack/nightly.txt
count="${1:-1}"
if [[ ! "$count" =~ ^[1-9][0-9]*$ ]]; then
	echo "hack/nightly.sh: how many shards to run: a number, not \"$count\"" >&2
	exit 2
fi

# Of the shards of the list, those that the record lacks come first, then by date.
mapfile -t shards < <(
	hack/test.sh list nightly | tr -d '[]"' | tr ',' '\n' |
		awk 'NR == FNR { if ($1 !~ /^#/) date[$1] = $2; next } { print ($1 in date ? date[$1] : "0"), FNR, $1 }' "$record" - |
		sort -k1,1 -k2,2n | head -n "$count" | cut -d' ' -f3
)
status=0
for shard in "${shards[@]}"; do
	start=$SECONDS result=passed
	hack/test.sh nightly "$shard" || result=failed status=1
	line="$shard $(date -u +%Y-%m-%dT%H:%MZ) $(git describe --always --dirty) $result $((SECONDS - start))s"
	{
		grep '^#' "$record"
		{ grep -v "^#\|^$shard " "$record" || true; echo "$line"; } | sort
	} >"$record.new"
	mv "$record.new" "$record"
	echo "$line"
done
exit "$status"
