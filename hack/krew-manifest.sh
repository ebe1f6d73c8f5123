#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the krew manifest of a release: .krew.yaml with the version and the checksums filled in, as krew-release-bot does it.
# Usage: hack/krew-manifest.sh v1.2.3 dist/checksums.txt >svcproxy.yaml
set -euo pipefail

version="${1:?usage: hack/krew-manifest.sh VERSION CHECKSUMS}"
sums="$(realpath "${2:?usage: hack/krew-manifest.sh VERSION CHECKSUMS}")"
cd "$(dirname "$0")/.."

awk -v version="$version" -v sums="$sums" '
	BEGIN {
		while ((getline line < sums) > 0) {
			split(line, word, /[ *]+/)
			sum[word[2]] = word[1]
		}
	}
	/^#/ { next }
	{ gsub(/\{\{ *\.TagName *\}\}/, version) }
	/\{\{ *addURIAndSha / {
		if (split($0, part, "\"") != 3) {
			print "a line that is not understood: " $0 > "/dev/stderr"
			exit failed = 1
		}
		file = part[2]
		sub(/.*\//, "", file)
		if (!(file in sum)) {
			print "there is no checksum of " file > "/dev/stderr"
			exit failed = 1
		}
		print "    uri: " part[2]
		print "    sha256: " sum[file]
		next
	}
	/\{\{/ {
		print "a template that is not understood: " $0 > "/dev/stderr"
		exit failed = 1
	}
	{ print }
' .krew.yaml
