#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs go test with the arguments it is given, by gotestsum: a line for each package, the output of what failed, each
# skipped test with its reason, and the tests that took longest. With CI=true a skipped test is a failure: a test that
# needs root or a tool has to get it there. No test at all is a failure, too.
set -euo pipefail

if [[ -n "${GOTESTSUM_JSONFILE:-}" ]]; then # after the tests, by gotestsum
	"$("$(dirname "$0")/tool.sh" gotestsum)" tool slowest --threshold 10s --jsonfile "$GOTESTSUM_JSONFILE"
	if ((TESTS_TOTAL == 0)); then
		echo "gotest.sh: no test was run" >&2
		exit 1
	fi
	if [[ "${CI:-}" == true ]] && ((TESTS_SKIPPED > 0)); then
		echo "gotest.sh: $TESTS_SKIPPED tests were skipped, and CI=true" >&2
		exit 1
	fi
	exit 0
fi
events="$(mktemp)"
trap 'rm -f "$events"' EXIT
self="$(cd "$(dirname "$0")" && pwd)/gotest.sh"
"$("$(dirname "$0")/tool.sh" gotestsum)" --format pkgname --no-color --ignore-non-json-output-lines \
	--jsonfile "$events" --post-run-command "$self" -- "$@"
