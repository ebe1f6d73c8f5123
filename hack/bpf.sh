#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles nodehelper/drops/packets.c, byte for byte the same object everywhere: with the clang of this version, which
# Debian 12 has (apt-get install clang-19 llvm-19). With --check nothing is written: it fails if what is there differs.
set -euo pipefail

version=19.1.7
cd "$(dirname "$0")/../nodehelper/drops"
if ! clang-19 --version 2>/dev/null | grep -q "clang version $version "; then
	echo "clang-19 $version is needed: apt-get install clang-19 llvm-19" >&2
	exit 2
fi
tool="$(../../hack/tool.sh bpf2go)"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
# One object for all processors of this order of bytes: the programs read no registers.
GOPACKAGE=drops "$tool" -cc clang-19 -strip llvm-strip-19 -cflags '-O2 -Wall -Werror' -target bpfel -tags linux -type event \
	-output-dir "$dir" packets packets.c >/dev/null
if [[ "${1:-}" == --check ]]; then
	for f in "$dir"/*; do
		cmp "$f" "$(basename "$f")"
	done
	exit
fi
cp "$dir"/* .
