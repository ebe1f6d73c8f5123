#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints what CHANGELOG.md says of a version; without an entry there is no release. Usage: hack/release-notes.sh v1.2.3
set -euo pipefail

version="${1:?usage: hack/release-notes.sh VERSION}"
cd "$(dirname "$0")/.."

notes="$(awk -v version="${version#v}" '
	/^## / { inside = ($2 == "[" version "]") ; next }
	/^\[[^]]*\]: / { inside = 0 }
	inside
' CHANGELOG.md)"
if [[ -z "${notes//[[:space:]]/}" ]]; then
	echo "CHANGELOG.md has nothing on $version" >&2
	exit 1
fi
echo "$notes"
