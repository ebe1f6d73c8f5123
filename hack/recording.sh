#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes docs/images/recording.svg, which README.md begins with: the plugin in a terminal (hack/recording), drawn by
# svg-term (https://www.npmjs.com/package/svg-term-cli). It needs npm and bin/kubectl-svcproxy (make build).
set -euo pipefail

cd "$(dirname "$0")/.."

tools="${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-svcproxy/svg-term"
mkdir -p "$tools"
cp hack/recording/package.json hack/recording/package-lock.json "$tools"
npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$tools"

cast="$(mktemp)"
trap 'rm -f "$cast"' EXIT
go run ./hack/recording >"$cast"
"$tools/node_modules/.bin/svg-term" --in "$cast" --out docs/images/recording.svg --window --no-cursor
