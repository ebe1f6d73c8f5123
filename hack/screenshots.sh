#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the pictures of the HTML report that docs/ shows, from a captured snapshot. It needs Chromium
# (hack/install-test-deps.sh installs it) and bin/kubectl-svcproxy (make build).
set -euo pipefail

cd "$(dirname "$0")/.."

for browser in chromium chromium-browser google-chrome google-chrome-stable; do
	if command -v "$browser" >/dev/null; then
		break
	fi
done
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p docs/images

# The exit code is that of the verdict: the snapshot is of a fault.
status=0
bin/kubectl-svcproxy trace web -n shop --from pod/web-76bbf6d6cc-m4dxw --end-to-end \
	--snapshot testdata/endtoend/forward-drop.tar.gz -o html >"$work/page.html" || status=$?
if ((status != 1)); then
	echo "trace ended with $status, and should have found a mismatch" >&2
	exit 1
fi

# shot NAME WIDTH,HEIGHT SCHEME takes a picture in the colours for dark (0) or light (1) screens.
shot() {
	"$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
		--disable-extensions --disable-background-networking --disable-component-update --disable-sync \
		--user-data-dir="$work/$1" --blink-settings=preferredColorScheme="$3" --window-size="$2" \
		--screenshot="$PWD/docs/images/$1.png" "file://$work/page.html" 2>/dev/null
}

shot report-desktop 1280,1900 1
shot report-phone 500,2650 0
