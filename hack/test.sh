#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The project's tests and checks, in two lists. test/README.md says what each proves, how long it takes and what it
# needs.
#
#   hack/test.sh                     installs what the tests need, then runs all of CI's list, in the order in which a mistake shows soonest
#   hack/test.sh STEP…               these steps of CI's list alone; installs nothing
#   hack/test.sh quick               build, vet, lint and the short tests of what changed since BASE and of what imports it
#   hack/test.sh nightly             installs what the tests need, then runs all shards of the nightly list: what is long and rarely breaks
#   hack/test.sh nightly SHARD…      these shards alone
#   hack/test.sh list ci|nightly     prints the names of a list, as JSON
#
# hack/steps.txt has both lists, and what a step may take.
#
# A list needs root, for tests in network namespaces: it calls sudo when it is not run as root. With CI=true a test that
# is skipped is a test that failed.
set -euo pipefail

cd "$(dirname "$0")/.."

# The lists, and the processor minutes of each step.
ci=() nightly=()
declare -A budget=()
while read -r list name minutes; do
	case "$list" in
	ci) ci+=("$name") budget["$name"]="$minutes" ;;
	nightly) nightly+=("$name") ;;
	esac
done <hack/steps.txt

# In a run of the whole list, what stands in a line here runs beside steps, one after another, with a lower priority. What
# the virtual machine needs is built beside the checks, and must have ended before the tests that watch the clock. Those on
# the cluster mostly wait: beside them run those in the virtual machine, which keep one processor busy.
beside=(vm waiting)
declare -A beside_runs=([vm]="with_vm" [waiting]="step_ipvs")
declare -A beside_from=([vm]=vet [waiting]=e2e) beside_to=([vm]=oracle [waiting]=e2e)

# Modules of their own: tools and tests that import what the product has no need of.
tools=(deploy deploy/image hack/licenses hack/schema)

# The versions of kube-proxy that the oracle has: of each minor version the first and the last patch release that the
# module proxy and the checksum database had. CI takes the newest and the one that differs most from it.
oracle_new=(v1.37.2 v1.37.0 v1.36.4 v1.36.0 v1.35.8 v1.35.0 v1.34.10 v1.34.0 v1.33.13 v1.33.0)
oracle_old=(v1.32.13 v1.32.0 v1.31.14 v1.31.0 v1.30.14 v1.30.0 v1.29.15 v1.29.0 v1.28.15 v1.28.0)
oracle_ci=(v1.37.2 v1.29.0)

cache="${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-svcproxy"
# warm prints the name of a file that says that the whole list has run with these versions of what it builds: then the
# caches are filled.
warm() {
	echo "$cache/warm-$({ go version; git ls-files -s '*go.sum' test/cluster test/vm 2>/dev/null || cat go.sum; } | sha256sum | cut -c1-16)"
}
scratch="$(mktemp -d)"

# once runs a command that fills the cache or installs packages, and waits for one that does so already.
once() {
	mkdir -p "$cache"
	flock "$cache/lock" "$@"
}

step_tidy() {
	local dir
	for dir in . "${tools[@]}" test/cluster/k8s test/cluster/containerd test/oracle/kubeproxy; do
		(cd "$dir" && go mod tidy -diff)
	done
}

# With the flags of make build: with others everything would be compiled once more. The plugin for this system is built
# by readme.
step_cross() {
	local system
	for system in darwin/arm64 windows/amd64; do
		echo "$system"
		CGO_ENABLED=0 GOOS="${system%/*}" GOARCH="${system#*/}" go build -trimpath -o /dev/null ./cmd/kubectl-svcproxy
	done
	echo "linux/arm64, the helper"
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -o /dev/null ./cmd/svcproxy-nodehelper
}

# The README shows what the plugin really prints, and krew/ what .krew.yaml says.
step_readme() {
	make --no-print-directory build
	hack/update-readme.sh --check
	hack/krew-manifest.sh | diff -u krew/svcproxy.yaml - || {
		echo "krew/svcproxy.yaml is not what .krew.yaml says: make docs" >&2
		return 1
	}
}

step_vet() {
	local dir system version flags
	local -A archs=([darwin]=arm64 [windows]=amd64)
	go vet -tags e2e,vm,bench,axe,rendered,prometheus,fleet,guard ./...
	for dir in "${tools[@]}"; do
		(cd "$dir" && go vet ./...)
	done
	for version in "${oracle_ci[@]}"; do
		flags="$(test/oracle/oracle.sh flags "$version")"
		# shellcheck disable=SC2086 # words
		(cd test/oracle/kubeproxy && go vet $flags ./...)
	done
	# What runs on a person's own machine has to be right there, too.
	for system in darwin windows; do
		CGO_ENABLED=0 GOOS="$system" GOARCH="${archs[$system]}" go vet -trimpath ./trace/... ./plugin/... ./cmd/kubectl-svcproxy
	done
}

step_lint() {
	hack/golangci-lint.sh config verify
	hack/golangci-lint.sh run
	"$(hack/tool.sh actionlint)" .github/workflows/*.yaml
	go test -run '^Test(MarkdownIsPlainEnglish|MessagesArePlainEnglish|Spelling|Lines|Links)$' ./docs
}

# What is compiled into the programs has licences that we accept.
step_licenses() {
	make --no-print-directory notices
}

step_vulns() {
	hack/vulns.sh
}

# with_kubectl puts a kubectl on the PATH where there is none: that of the tests' cluster.
with_kubectl() {
	if ! command -v kubectl >/dev/null; then
		once test/cluster/cluster build
		PATH="$(eval "$(test/cluster/cluster env)" && dirname "$(command -v kubectl)"):$PATH"
	fi
}

# run_oracle SERVICES VERSION… compares with versions of kube-proxy, so many Services in each mode of each.
run_oracle() {
	local services="$1" version flags tool="$PWD/hack/gotest.sh"
	shift
	for version in "$@"; do
		echo "kube-proxy $version, $services Services in each mode"
		flags="$(test/oracle/oracle.sh flags "$version")"
		# shellcheck disable=SC2086 # words
		(cd test/oracle/kubeproxy && ORACLE_SERVICES="$services" "$tool" -count=1 -timeout 50m $flags ./...)
	done
}

# The same clusters each time: a change is judged by what it changes. The nightly list takes others each time. The seed is
# of clusters that once showed a fault (what kube-proxy 1.29 does was compared with what 1.37 would do).
step_oracle() {
	export ORACLE_SEED=1795370860555677538
	run_oracle 1000 "${oracle_ci[@]}"
}

# run_fuzz TIME runs every fuzz target for so long, beginning with its seeds.
run_fuzz() {
	local dir name status out targets=0
	out="$(mktemp)"
	while IFS=: read -r dir name; do
		echo "$dir $name"
		targets=$((targets + 1))
		status=0
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "./$dir" >"$out" 2>&1 || status=$?
		tail -n 1 "$out"
		if ((status == 0)); then
			continue
		fi
		# Until Go 1.27 the end of -fuzztime itself is now and then taken for a failure (golang/go#75804). A real failure
		# leaves an input behind, and says so.
		if grep -q 'context deadline exceeded' "$out" && ! grep -qE 'Failing input written|panic:|hung or terminated' "$out"; then
			echo "no failing input: golang/go#75804, passed over"
			continue
		fi
		cat "$out"
		rm -f "$out"
		return 1
	done < <(find . -name '*_test.go' -not -path './test/oracle/*' -exec grep -HoE '^func Fuzz[A-Za-z0-9_]*' {} + |
		sed -E 's|^\./(.*)/[^/]+:func (Fuzz.*)$|\1:\2|' | sort)
	rm -f "$out"
	if ((targets == 0)); then
		echo "no fuzz target was found" >&2
		return 1
	fi
}

# Packages that do things side by side: their tests run under the race detector, too. Of what takes minutes under it, a
# part: PACKAGE FLAG TESTS. What packages of trace share is used at the same time by trace/judge: what judges side by
# side, and each family of rules with its faults, and where it is not known which configuration counts; no search through
# all inputs.
raced=(
	cmd/svcproxy-nodehelper internal/apiraw internal/parallel nodehelper/collect nodehelper/follow nodehelper/healthcheck
	nodehelper/kerneltrace nodehelper/live nodehelper/names nodehelper/podns nodehelper/program nodehelper/watch
	nodehelper/wire plugin/cluster plugin/launch plugin/print plugin/run plugin/terminal
)
raced_parts=(
	"plugin/command -skip ^Test(Poison|Hostile)"
	"trace/judge -run ^(TestOneStateIsJudgedByMany|TestFaults|TestNFTFaults|TestIPVSFaults|TestRecordedFaults|TestFewServices)$"
	"trace/snapshot -skip ^TestLargeArchiveIsReadNodeByNode$"
)

# run_race ARG… runs these under the race detector.
run_race() {
	local part words
	hack/gotest.sh -race "$@" "${raced[@]/#/./}"
	for part in "${raced_parts[@]}"; do
		read -ra words <<<"$part"
		hack/gotest.sh -race "$@" "${words[1]}" "${words[2]}" "./${words[0]}"
	done
}

step_test() {
	local dir
	with_kubectl
	hack/gotest.sh -timeout 40m ./...
	for dir in "${tools[@]}"; do
		(cd "$dir" && go test ./...)
	done
}

step_race() {
	with_kubectl
	run_race -timeout 40m
}

# What runs in ipvs mode on each version of kube-proxy: verify and mode, faults, --live.
ipvs_smoke='^(TestEveryServiceIsRight|TestFaultsAreFound|TestProbesSayWhereIPVSSentThem)$'

ipvs_waiting='^(TestProgramWithoutKubeProxy|TestProgramRepairsAVirtualServer|TestTheTimeHoldsWithoutTheHelper|TestKubeProxySyncsMeanwhile|TestKilledAtAnyMoment)$'

# with_vm makes the virtual machine ready, and in_vm runs tests in it, SECONDS at most.
with_vm() {
	make --no-print-directory build
	once test/cluster/cluster build
	once test/vm/vm setup
}

in_vm() {
	local seconds="$1"
	shift
	KUBERNETES_BIN="$(eval "$(test/cluster/cluster env)" && dirname "$(command -v kube-apiserver)")" VM_TIMEOUT="$seconds" \
		hack/gotest.sh -count=1 -timeout "$((seconds - 60))s" -exec "$PWD/test/vm/vm run" "$@"
}

# IPVS and SCTP, which the kernel here may not have: in a virtual machine, with a real API server and kube-proxy. Kernel
# and binaries are fetched and built when they are not in the cache. The tests of program that wait, for times to be
# over and for kube-proxy's resyncs, are those of shard ipvs.
step_ipvs() {
	with_vm
	in_vm 3600 -tags vm -skip "$ipvs_waiting" ./test/ipvs
	in_vm 300 -run '^TestSCTP$' ./nodehelper/live
}

# on_cluster runs a command with the plugin and a real cluster, which is built when it is not in the cache, and takes
# the cluster down.
on_cluster() {
	local status=0
	test/cluster/cluster down
	trap 'test/cluster/cluster down' EXIT
	make --no-print-directory cluster-up >/dev/null
	eval "$(test/cluster/cluster env)"
	"$@" || status=$?
	test/cluster/cluster down
	trap - EXIT
	test/cluster/cluster check
	return "$status"
}

# What takes minutes on the cluster: in shards of its own, or in that of the cluster.
e2e_shards='TestWatchEndures|TestHealthyNodesSoak|TestCronJob|TestHistogramAgainstAStopwatch|TestNameFaults|TestKilledAtRandomMoments|TestVersions'
e2e_long='TestKernelsOfEndpointsNodes|TestProgramRestored|TestLatencyAgainstKubectlRun|TestAPIServerRestarts|TestProgramAndKubeProxyComesBack'

# With faults made for real.
step_e2e() {
	once test/cluster/cluster build
	on_cluster hack/gotest.sh -tags e2e -count=1 -timeout 40m -skip "^($e2e_shards|$e2e_long)\$" ./test/e2e
}

# The plugin on many nodes with simulated kubelets, behind a real API server.
with_control_plane() {
	make --no-print-directory build
	once test/cluster/cluster build
	eval "$(test/cluster/cluster env)"
}

step_fleet() {
	with_control_plane
	hack/gotest.sh -tags fleet -count=1 -timeout 10m ./test/fleet
}

# The tests REPEAT times beside 8 busy loops, in shuffled order: what a quiet machine does not show. Without those that
# only compute.
shard_repeat() {
	local packages
	with_kubectl
	mapfile -t packages < <(go list ./... | grep -vE '/(trace/judge|plugin/command|docs|test/(walk/.*|faults))$')
	hack/flakes.sh "${REPEAT:-3}" "${packages[@]}"
	RACE=1 hack/flakes.sh "${REPEAT:-3}" "${raced[@]/#/./}"
}

shard_fuzz() {
	run_fuzz "${FUZZTIME:-90s}"
}

shard_oracle() {
	run_oracle "${ORACLE_SERVICES:-10000}" "${oracle_new[@]}"
}

shard_oracle-old() {
	run_oracle "${ORACLE_SERVICES:-10000}" "${oracle_old[@]}"
}

# The walk against the kernel: a million packets through random rule sets; everything of kube-proxy's deleted from the
# captured nodes, one at a time; each of their rules made unreadable; judgements that take over what the one before has
# found; and in the virtual machine all captured rules in ipvs mode.
shard_walk() {
	SVCPROXY_DELETIONS=100000 SVCPROXY_EVIDENCE=all \
		hack/gotest.sh -count=1 -timeout 20m -run '^(TestEveryDeletionIsFound|TestEvidence)$' ./trace/judge
	SVCPROXY_LAW=all hack/gotest.sh -count=1 -timeout 40m -run '^TestWhatCannotBeReadIsUnknown$' ./trace/judge
	SVCPROXY_MEMORY_STEPS=2000 SVCPROXY_MEMORY_SEED="$(date +%s)" \
		hack/gotest.sh -count=1 -timeout 30m -run '^TestAJudgementWithMemoryIsAFreshOne$' ./trace/judge
	SVCPROXY_ANSWER_CASES=5000 go test -count=1 -timeout 30m -v -run '^TestRandomConnectionsAgainstTheKernel$' \
		./test/walk/random
	make --no-print-directory differential CASES="${CASES:-1000000}"
	SVCPROXY_ROUTING_CASES=100000 SVCPROXY_ROUTING_SEED="$(date +%s)" \
		hack/gotest.sh -count=1 -timeout 20m -run '^TestRoutesAgainstTheKernel$' ./test/walk/routing
	SVCPROXY_LINKS_CASES=5000 hack/gotest.sh -count=1 -timeout 40m -run '^TestHooksOfDevicesAndBridgesAgainstTheKernel$' \
		./test/walk/links
	with_vm
	in_vm 1500 -tags vm -run '^TestProgramFixtures$' ./test/walk/captured
}

shard_ipvs() {
	with_vm
	in_vm 3500 -tags vm ./test/ipvs
}

# Processes are killed at random moments, hundreds of times; in the virtual machine each takes ten seconds, on the
# cluster two.
shard_kills() {
	SVCPROXY_KILLS=1000 hack/gotest.sh -count=1 -timeout 20m -run 'Killed' -skip 'BesideWriters' ./nodehelper/...
	SVCPROXY_KILLS=200 hack/gotest.sh -count=1 -timeout 20m -run '^TestKilledBesideWriters$' ./nodehelper/program
	SVCPROXY_FOREIGN_RULES=100000 hack/gotest.sh -count=1 -timeout 10m -run '^TestBesideManyRulesOfOthers$' \
		./nodehelper/program
	with_vm
	SVCPROXY_KILLS=60 in_vm 1500 -tags vm -run '^TestKilledAtAnyMoment$' ./test/ipvs
	export SVCPROXY_KILLS=200
	on_cluster hack/gotest.sh -tags e2e -count=1 -timeout 20m -run '^TestKilledAtRandomMoments$' ./test/e2e
}

# Every version of kube-proxy that test/cluster has: on the cluster, and in ipvs mode in the virtual machine.
shard_versions() {
	local versions version
	mapfile -t versions < <(test/cluster/cluster versions)
	once test/cluster/cluster build "${versions[@]}"
	SVCPROXY_VERSIONS="${versions[*]}" on_cluster hack/gotest.sh -tags e2e -count=1 -timeout 30m -run '^TestVersions$' ./test/e2e
	with_vm
	for version in "${versions[@]}"; do
		echo "kube-proxy $version in ipvs mode"
		KUBE_PROXY="$(test/cluster/cluster binary "$version")" in_vm 1800 -tags vm -run "$ipvs_smoke" ./test/ipvs
	done
}

# All that a tenant may write to harm others; every fault of test/faults; every fault of the matrix on every node of the cluster, each of which runs kube-proxy in a
# mode of its own; and the agents through an outage of the API server and other modes.
shard_faults() {
	SVCPROXY_TENANTS=all SVCPROXY_FAULTS=all \
		hack/gotest.sh -count=1 -timeout 30m -run 'Tenant|^TestPrintedCommandsHarmNoOtherPath$' ./plugin/command ./trace/judge
	SVCPROXY_FAULTS=all hack/gotest.sh -count=1 -timeout 40m ./test/faults ./test/walk/rpfilter ./test/walk/captured
	SVCPROXY_FAULTS=all hack/gotest.sh -count=1 -timeout 30m -run AgainstTheKernel ./trace/endtoend
	SVCPROXY_FAULTS=all hack/gotest.sh -count=1 -timeout 10m -run '^TestLyingHelper$' ./plugin/command
	once test/cluster/cluster build
	SVCPROXY_OUTAGE=5m SVCPROXY_FAULTS=all on_cluster \
		hack/gotest.sh -tags e2e -count=1 -timeout 70m -run '^(TestFaultMatrix|TestNameFaults|TestWatchEndures)$' ./test/e2e
}

shard_cluster() {
	once test/cluster/cluster build
	on_cluster hack/gotest.sh -tags e2e -count=1 -timeout 40m -run "^($e2e_long)\$" ./test/e2e
}

# trace --live on nodes where nothing is wrong, fifty times from each origin: what it finds it has made up. And
# the Job of deploy/cronjob, what agents measure beside what connections do, and agents beside processes that call
# themselves kube-proxy.
shard_live() {
	once test/cluster/cluster build
	export SVCPROXY_IMPOSTORS=10m
	SVCPROXY_SOAK="${SOAK:-50}" on_cluster \
		hack/gotest.sh -tags e2e -count=1 -timeout 90m -run '^(TestHealthyNodesSoak|TestCronJob|TestHistogramAgainstAStopwatch|TestImpostors)$' ./test/e2e
}

shard_bench() {
	make --no-print-directory bench
}

# The agent on a large node, beside the cluster's kube-proxy, in each mode; and in the one that matters most with twice
# the Services.
shard_bench-agent() {
	once test/cluster/cluster build
	make --no-print-directory bench-agent
	make --no-print-directory bench-agent AGENT_MODES=nftables SERVICES=10000
}

shard_bench-vm() {
	with_vm
	make --no-print-directory bench-ipvs RUNS=3
}

# Tunnels that this machine's kernel need not have, in the virtual machine: each topology takes half a minute there.
shard_tunnels() {
	with_vm
	in_vm 3500 -tags vm -run '^TestTunnelsAgainstTheKernel$' ./trace/endtoend
	in_vm 300 -tags vm -run '^TestWireGuardAsWGPrintsIt$' ./nodehelper/collect
}

# What is published is made twice, and the BPF programs that the tree has are made once more.
shard_release() {
	with_kubectl
	hack/release-test.sh twice
	apt-get install -y -qq --no-install-recommends clang-19 llvm-19 >/dev/null
	hack/bpf.sh --check
}

# Verdicts on every capture, and on each with one of its objects removed or made unreadable, beside those of an earlier
# commit: what differs has to be explained in test/guard/testdata.
shard_guard() {
	local commit=095b5daf before
	before="$cache/guard-$commit"
	if [[ ! -x "$before" ]]; then
		mkdir -p "$cache" "$scratch/before"
		git archive "$commit" | tar -x -C "$scratch/before"
		(cd "$scratch/before" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$before" ./cmd/kubectl-svcproxy)
	fi
	make --no-print-directory build
	SVCPROXY_GUARD_EVERY="${GUARD_EVERY:-1}" SVCPROXY_GUARD_BEFORE="$before" SVCPROXY_GUARD_AFTER="$PWD/bin/kubectl-svcproxy" \
		hack/gotest.sh -tags guard -count=1 -timeout 70m ./test/guard
}

# npm_packages NAME installs what test/NAME/package-lock.json names, in the directory that it prints.
npm_packages() {
	local dir="$cache/npm-$1"
	if ! command -v npm >/dev/null; then
		apt-get install -y -qq --no-install-recommends npm >/dev/null
	fi
	mkdir -p "$dir"
	cp "test/$1/package.json" "test/$1/package-lock.json" "$dir"
	once npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" >&2
	echo "$dir"
}

# Pages of -o html with axe-core (https://www.npmjs.com/package/axe-core), which looks for what keeps people from using a
# page: with a screen reader, by keys, or because they see little.
shard_axe() {
	local dir
	dir="$(npm_packages axe)"
	SVCPROXY_AXE="$dir/node_modules/axe-core/axe.min.js" \
		hack/gotest.sh -count=1 -timeout 20m -tags axe -run '^TestAxe$' ./plugin/print
}

# The documents, -o markdown and -o mermaid as GitHub shows them: with micromark and its extension for GitHub's Markdown,
# and Mermaid in a browser.
shard_rendered() {
	local dir
	dir="$(npm_packages rendered)"
	SVCPROXY_RENDERED="$dir" hack/gotest.sh -count=1 -timeout 20m -tags rendered -run '^TestRendered' ./plugin/print
}

# The alerts, the dashboard and the agent with a Prometheus, which is built once, in five minutes.
shard_alerts() {
	local promtool prometheus
	promtool="$(hack/tool.sh promtool)"
	prometheus="$(hack/tool.sh prometheus)"
	SVCPROXY_PROMTOOL="$promtool" SVCPROXY_PROMETHEUS="$prometheus" \
		hack/gotest.sh -count=1 -timeout 20m -tags prometheus ./test/alerts
}

# 1,000 nodes and 5,000 Services, with limits of time and memory.
shard_fleet() {
	with_control_plane
	SVCPROXY_FLEET_NODES=1000 SVCPROXY_FLEET_SERVICES=5000 \
		hack/gotest.sh -tags fleet -count=1 -timeout 50m ./test/fleet
}

# run KIND NAME runs a function KIND_NAME, such as a step or a shard, in a shell of its own, and prints how long it took
# and how much processor time the processes that it waited for.
run() (
	start=$SECONDS
	echo "=== $2"
	"$1_$2"
	times >"$scratch/times.$2" # not in a pipe, whose shell has used no time
	used="$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } print int(sum) }' "$scratch/times.$2")"
	echo "=== $2 passed in $((SECONDS - start)) s, with $used s of processor time"
	if [[ "$1" == step ]] && ((used > budget[$2] * 75)); then
		if [[ ! -e "$(warm)" ]]; then
			echo "=== $2 has a budget of ${budget[$2]} processor minutes, which counts once the caches are filled"
			return
		fi
		echo "=== $2 took more than its budget in hack/steps.txt, ${budget[$2]} processor minutes, and a quarter" >&2
		return 1
	fi
)

# run_whole_list runs CI's list, with some steps beside others.
run_whole_list() {
	local step other
	for step in "${ci[@]}"; do
		for other in "${beside[@]}"; do
			if [[ "${beside_from[$other]}" == "$step" ]]; then
				begin_beside "$other"
			fi
		done
		if [[ " ${beside_runs[*]} " != *" step_$step "* ]]; then
			run step "$step"
		fi
		for other in "${beside[@]}"; do
			if [[ "${beside_to[$other]}" == "$step" ]]; then
				await_beside "$other"
			fi
		done
	done
}

# The process that runs beside the steps, and what it prints.
beside_pid='' beside_log=''

begin_beside() {
	echo "=== ${beside_runs[$1]} begins, beside ${beside_from[$1]} to ${beside_to[$1]}"
	beside_log="$(mktemp)"
	set -m # in a process group of its own, to be ended with all that it has started
	(
		renice -n 19 "$BASHPID" >/dev/null
		for name in ${beside_runs[$1]}; do # words
			run "${name%%_*}" "${name#*_}"
		done
	) >"$beside_log" 2>&1 </dev/null &
	set +m
	beside_pid=$!
}

await_beside() {
	local status=0
	wait "$beside_pid" || status=$?
	beside_pid=
	cat "$beside_log"
	rm -f "$beside_log"
	if ((status != 0)); then
		echo "=== ${beside_runs[$1]} failed" >&2
		return "$status"
	fi
}

# end_beside ends what runs beside a step that has failed.
end_beside() {
	if [[ -n "$beside_pid" ]]; then
		kill -- "-$beside_pid" 2>/dev/null || true
		wait "$beside_pid" || true
	fi
	rm -f "$beside_log"
}

# Files that root has built must not prevent the user's own next build.
clean_up() {
	rm -rf "$scratch"
	if [[ -n "${SUDO_UID:-}" && -d bin ]]; then
		chown -R "$SUDO_UID" bin
	fi
}

# quick is for while one works: what a change since BASE most likely breaks, by the packages that have it and those that
# import these. Tests that compute or wait for long are left out (testing.Short).
quick() {
	local base module changed packages
	base="${BASE:-$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse HEAD~1)}"
	module="$(go list -m)"
	changed="$({ git diff --name-only --diff-filter=d "$base" && git ls-files --others --exclude-standard; } |
		grep -v '^deploy/image/\|^hack/licenses/\|^test/oracle/' | grep '\.go$' | xargs -r -n 1 dirname | sort -u | sed "s|^|$module/|")"
	go build ./...
	if [[ -z "$changed" ]]; then
		echo "no Go file of the main module has changed since $base"
		return
	fi
	mapfile -t packages < <(go list -test -f '{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}' ./... |
		awk -v changed="$changed" 'BEGIN { split(changed, c); for (i in c) is[c[i]] }
			$1 ~ /\.test$/ { for (i = 2; i <= NF; i++) if ($i in is) { print substr($1, 1, length($1) - 5); next } }')
	# shellcheck disable=SC2086 # words
	go vet $changed
	hack/golangci-lint.sh run --allow-parallel-runners --new-from-rev "$base"
	if ((${#packages[@]} > 0)); then
		hack/gotest.sh -short "${packages[@]}"
	fi
}

trap 'rm -rf "$scratch"' EXIT
case "${1:-}" in
quick)
	quick
	exit
	;;
list)
	[[ "${2:-}" != ci ]] || names=("${ci[@]}")
	[[ "${2:-}" != nightly ]] || names=("${nightly[@]}")
	[[ -v names ]] || {
		echo "hack/test.sh list: ci or nightly, not \"${2:-}\"" >&2
		exit 2
	}
	printf '"%s"\n' "${names[@]}" | paste -sd, | sed 's/.*/[&]/'
	exit
	;;
esac
kind=step names=("${ci[@]}")
if [[ "${1:-}" == nightly ]]; then
	kind=shard names=("${nightly[@]}")
	shift
fi
chosen=("$@")
for name in "${chosen[@]}"; do
	if [[ " ${names[*]} " != *" $name "* ]]; then
		echo "there is no $kind $name: ${names[*]}" >&2
		exit 2
	fi
done
if ((${#chosen[@]} == 0)); then
	if ((EUID != 0)); then
		list=()
		[[ "$kind" == step ]] || list=(nightly)
		exec sudo --preserve-env=CI,GOPROXY,GOSUMDB,GONOSUMDB,GOPRIVATE,GOFLAGS,HTTP_PROXY,HTTPS_PROXY,NO_PROXY \
			env "PATH=$PATH" "$0" "${list[@]}"
	fi
	trap 'end_beside; clean_up' EXIT
	hack/install-test-deps.sh
fi
# Without git, or in a tree that git does not trust for this user, go build could not say which commit it is.
if ! git rev-parse --git-dir >/dev/null 2>&1; then
	export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
fi

if [[ "$kind" == step ]] && ((${#chosen[@]} == 0)); then
	run_whole_list
	touch "$(warm)"
	exit
fi
if ((${#chosen[@]} == 0)); then
	chosen=("${names[@]}")
fi
for name in "${chosen[@]}"; do
	run "$kind" "$name"
done
