#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the krew manifest of a release: .krew.yaml with the version and the checksums filled in, as krew-release-bot
# does it.
#
#   hack/krew-manifest.sh v1.2.3 dist/checksums.txt >svcproxy.yaml
#   hack/krew-manifest.sh >krew/svcproxy.yaml     # of no release: v0.0.0, and checksums of nothing but zeros
set -euo pipefail

case $# in
0) version=v0.0.0 sums="" ;;
2) version="$1" sums="$(realpath "$2")" ;;
*)
	echo "usage: hack/krew-manifest.sh [VERSION CHECKSUMS]" >&2
	exit 2
	;;
esac
cd "$(dirname "$0")/.."

awk -v version="$version" -v sums="$sums" '
	BEGIN {
		if (sums == "") {
			print "# SPDX-License-Identifier: Apache-2.0"
			print "#"
			print "# Of no release: the version and the checksums are placeholders, and krew installs nothing by it. README.md beside it says where"
			print "# the manifest of a release is. Written by hack/krew-manifest.sh from .krew.yaml: change that."
			none = sprintf("%064d", 0)
		}
		while (sums != "" && (getline line < sums) > 0) {
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
		if (!(file in sum) && none == "") {
			print "there is no checksum of " file > "/dev/stderr"
			exit failed = 1
		}
		print "    uri: " part[2]
		print "    sha256: \"" (none != "" ? none : sum[file]) "\"" # one of digits alone would be a number
		next
	}
	/\{\{/ {
		print "a template that is not understood: " $0 > "/dev/stderr"
		exit failed = 1
	}
	{ print }
' .krew.yaml
