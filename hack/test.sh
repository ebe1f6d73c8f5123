#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the tests need, then runs every check of the project, in the order in which a mistake shows soonest.
# With arguments it runs those steps alone and installs nothing:
#
#   hack/test.sh [tidy|cross|readme|vet|lint|licenses|vulns|test|release|oracle|fuzz|bench|ipvs|e2e ...]
#
# The whole run needs root, for tests in network namespaces: it calls sudo when it is not run as root. With CI=true a test
# that is skipped is a test that failed.
set -euo pipefail

cd "$(dirname "$0")/.."

all=(tidy cross readme vet lint licenses vulns test release oracle fuzz bench ipvs e2e)

# Modules of their own: tools that import what the product has no need of.
tools=(deploy/image hack/licenses)

# Modules of their own, which may import k8s.io/kubernetes.
oracle_modules() {
	local mod
	for mod in test/oracle/*/go.mod; do
		if [[ -e "$mod" ]]; then
			dirname "$mod"
		fi
	done
}

step_tidy() {
	go mod tidy -diff
	local dir
	for dir in $(oracle_modules) "${tools[@]}" test/cluster/k8s test/cluster/containerd; do
		(cd "$dir" && go mod tidy -diff)
	done
}

# With the flags of make build: with others everything would be compiled once more. The plugin for this system is built by readme.
step_cross() {
	local system
	for system in darwin/arm64 windows/amd64; do
		echo "$system"
		CGO_ENABLED=0 GOOS="${system%/*}" GOARCH="${system#*/}" go build -trimpath -o /dev/null ./cmd/kubectl-svcproxy
	done
	echo "linux/arm64, the helper"
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -o /dev/null ./cmd/svcproxy-nodehelper
}

# The README shows what the plugin really prints.
step_readme() {
	make --no-print-directory build
	hack/update-readme.sh --check
}

step_vet() {
	go vet -tags e2e,vm ./...
	local dir
	for dir in "${tools[@]}"; do
		(cd "$dir" && go vet ./...)
	done
	# What runs on a person's own machine has to be right there, too.
	local system
	local -A archs=([darwin]=arm64 [windows]=amd64)
	for system in darwin windows; do
		CGO_ENABLED=0 GOOS="$system" GOARCH="${archs[$system]}" go vet -trimpath ./trace/... ./plugin/... ./cmd/kubectl-svcproxy
	done
}

step_lint() {
	hack/golangci-lint.sh config verify
	hack/golangci-lint.sh run
	"$(hack/tool.sh actionlint)" .github/workflows/*.yaml
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
		test/cluster/cluster build
		PATH="$(eval "$(test/cluster/cluster env)" && dirname "$(command -v kubectl)"):$PATH"
	fi
}

step_test() {
	local dir
	with_kubectl
	go run ./hack/gotest -race ./...
	for dir in "${tools[@]}"; do
		(cd "$dir" && go test ./...)
	done
}

step_release() {
	with_kubectl
	hack/release-test.sh
}

step_oracle() {
	local dir tool
	tool="$(mktemp)"
	go build -o "$tool" ./hack/gotest
	for dir in $(oracle_modules); do
		echo "$dir"
		(cd "$dir" && go vet ./... && "$tool" -timeout 20m ./...)
	done
	rm -f "$tool"
}

# Every fuzz target for a short time: enough to run the seeds and the corpus, and to notice a parser that breaks easily.
step_fuzz() {
	local dir name status out targets=0
	out="$(mktemp)"
	while IFS=: read -r dir name; do
		echo "$dir $name"
		targets=$((targets + 1))
		status=0
		go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-6s}" "./$dir" >"$out" 2>&1 || status=$?
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

step_bench() {
	make --no-print-directory bench RUNS=3
}

# IPVS and SCTP, which the kernel here may not have: in a virtual machine, with a real API server and kube-proxy. Kernel and binaries are fetched
# and built when they are not in the cache.
step_ipvs() {
	make --no-print-directory build
	test/cluster/cluster build
	test/vm/vm setup
	local bin
	bin="$(eval "$(test/cluster/cluster env)" && dirname "$(command -v kube-apiserver)")"
	KUBERNETES_BIN="$bin" VM_TIMEOUT=1500 go run ./hack/gotest -tags vm -count=1 -timeout 20m -exec "$PWD/test/vm/vm run" ./test/ipvs
	go run ./hack/gotest -count=1 -timeout 5m -run '^TestSCTP$' -exec "$PWD/test/vm/vm run" ./nodehelper/live
	go run ./hack/gotest -tags vm -count=1 -timeout 14m -run '^TestProgramFixtures$' -exec "$PWD/test/vm/vm run" ./test/kernel
}

# The plugin on a real cluster, with faults made for real. What the cluster needs is built when it is not in the cache.
step_e2e() {
	local status=0
	test/cluster/cluster down
	trap 'test/cluster/cluster down' EXIT
	make --no-print-directory cluster-up >/dev/null
	eval "$(test/cluster/cluster env)"
	go run ./hack/gotest -tags e2e -count=1 -timeout 20m ./test/e2e || status=$?
	test/cluster/cluster down
	trap - EXIT
	test/cluster/cluster check
	return "$status"
}

steps=("$@")
if ((${#steps[@]} == 0)); then
	if ((EUID != 0)); then
		exec sudo --preserve-env=CI,GOPROXY,GOSUMDB,GONOSUMDB,GOPRIVATE,GOFLAGS,HTTP_PROXY,HTTPS_PROXY,NO_PROXY \
			env "PATH=$PATH" "$0"
	fi
	hack/install-test-deps.sh
	steps=("${all[@]}")
	if [[ -n "${SUDO_UID:-}" ]]; then
		# What root builds must not be in the way of the person's own next build.
		trap 'if [[ -d bin ]]; then chown -R "$SUDO_UID" bin; fi' EXIT
	fi
fi
# Without git, or in a tree that git does not trust for this user, go build could not say which commit it is.
if ! git rev-parse --git-dir >/dev/null 2>&1; then
	export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
fi

for step in "${steps[@]}"; do
	if [[ " ${all[*]} " != *" $step "* ]]; then
		echo "there is no step $step: ${all[*]}" >&2
		exit 2
	fi
done
for step in "${steps[@]}"; do
	start=$SECONDS
	echo "=== $step"
	"step_$step"
	echo "=== $step passed in $((SECONDS - start)) s"
done
