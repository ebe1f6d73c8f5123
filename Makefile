# SPDX-License-Identifier: Apache-2.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
PKG := github.com/svcproxy/kubectl-svcproxy/plugin/command
LDFLAGS := -s -w -X $(PKG).version=$(VERSION) -X $(PKG).commit=$(COMMIT)

# Seconds that each fuzz target runs in `make fuzz`, how often `make bench` times each command.
FUZZTIME ?= 10s
RUNS ?= 7
# Of `make differential`: packets (a million take half an hour), and the seed of the first rule set, by default another one each time.
CASES ?= 1000000
SEED ?= $(shell date +%s)
# Of `make bench-agent`: modes of kube-proxy, and how many Services there are.
AGENT_MODES ?= nftables,iptables,iptables-legacy
SERVICES ?= 5000

EXAMPLE := examples/broken-node

.DEFAULT_GOAL := help
.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kubectl-svcproxy
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/kubectl-svcproxy ./cmd/kubectl-svcproxy

.PHONY: image
image: ## Build the helper's image for amd64 and arm64, as bin/nodehelper.tar
	VERSION=$(VERSION) hack/image.sh bin/nodehelper.tar

.PHONY: notices
notices: ## Write the licences of what is compiled in to bin/THIRD_PARTY_LICENSES.txt, and check that they are acceptable
	@mkdir -p bin
	cd hack/licenses && go build -trimpath -o ../../bin/licenses .
	bin/licenses -o bin/THIRD_PARTY_LICENSES.txt ./cmd/kubectl-svcproxy ./cmd/svcproxy-nodehelper

.PHONY: release-test
release-test: ## Build a release twice, compare, and install it through krew
	hack/test.sh nightly release

.PHONY: cluster-up
cluster-up: build ## Bring up a real Kubernetes with three nodes on this machine (Debian, root); MODES, NETWORK and KUBERNETES_VERSION choose
	test/cluster/cluster up

.PHONY: cluster-down
cluster-down: ## Take it down, and all that it made
	test/cluster/cluster down

.PHONY: e2e
e2e: build ## Run the plugin's tests on a cluster: that of KUBECONFIG (see test/e2e/main_test.go), or one brought up for them
ifdef KUBECONFIG
	KUBECONFIG=$(KUBECONFIG) go test -tags e2e -count=1 -timeout 30m -v ./test/e2e
else
	hack/test.sh e2e
endif

.PHONY: demo
demo: build ## Build, and trace a broken Service of the shipped snapshot
	-bin/kubectl-svcproxy trace web -n shop --snapshot $(EXAMPLE)

.PHONY: trace-example
trace-example: build ## Print the output that the README shows
	@bin/kubectl-svcproxy trace web -n shop --snapshot $(EXAMPLE) || test $$? -eq 1

.PHONY: readme
readme: build ## Put that output into the README
	hack/update-readme.sh

.PHONY: screenshots
screenshots: build ## Take the pictures of the HTML report that docs/ shows, with Chromium
	hack/screenshots.sh

.PHONY: recording
recording: build ## Make the recording of a terminal that the README begins with (npm)
	hack/recording.sh

.PHONY: docs
docs: ## Write docs/commands, the index of docs/findings.md, the JSON Schemas and krew/svcproxy.yaml from their sources
	@mkdir -p docs/commands
	go run ./hack/reference docs/commands
	go run ./hack/findings docs/findings.md
	cd hack/schema && go run . ../../docs/report.schema.json ../../docs/diff.schema.json ../../docs/status.schema.json
	hack/krew-manifest.sh >krew/svcproxy.yaml

.PHONY: generate
generate: ## Compile the BPF programs of nodehelper/drops (clang-19 and llvm-19 of Debian 12)
	hack/bpf.sh

.PHONY: test
test: ## Run the unit and kernel tests (some need root)
	hack/gotest.sh ./...

.PHONY: lint
lint: ## Run golangci-lint, in the version that hack/golangci-lint.sh pins
	hack/golangci-lint.sh run

.PHONY: fmt
fmt: ## Format the code
	hack/golangci-lint.sh fmt

.PHONY: vet
vet: ## Run go vet, for this system and, where the code has to work there, for others
	hack/test.sh vet

.PHONY: tidy-check
tidy-check: ## Fail if go.mod or go.sum is not tidy
	hack/test.sh tidy

.PHONY: cross
cross: ## Build for every system that the plugin runs on
	hack/test.sh cross

.PHONY: oracle
oracle: ## Compare the expectation with kube-proxy's own code
	hack/test.sh oracle

.PHONY: differential
differential: ## Compare the walk with the kernel for CASES packets through random rule sets, from SEED on (needs root)
	SVCPROXY_DIFF_CASES=$(CASES) SVCPROXY_DIFF_SEED=$(SEED) go test -count=1 -timeout 0 -v -run TestRandomRuleSetsAgainstTheKernel ./test/walk/random

.PHONY: ipvs
ipvs: ## Run kube-proxy in ipvs mode in a virtual machine, and compare what is collected with it (Debian, root)
	hack/test.sh ipvs

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	FUZZTIME=$(FUZZTIME) hack/test.sh nightly fuzz

.PHONY: bench
bench: build ## Time verify -A against iptables-save on 5,000 and 10,000 Services, netlink against nft, and program against kube-proxy (needs root)
	go run ./test/bench -runs $(RUNS)
	go run ./test/bench/nft -runs $(RUNS)
	go run ./test/bench/nft -runs $(RUNS) -old
	cd test/oracle/kubeproxy && go test -tags bench -count=1 -v -run '^TestProgramAgainstKubeProxy$$' .

.PHONY: bench-agent
bench-agent: ## Measure memory and processor time of the agent on a node of 5,000 Services with changes (needs root, and test/cluster/cluster build)
	CGO_ENABLED=0 go build -trimpath -o bin/svcproxy-nodehelper ./cmd/svcproxy-nodehelper
	eval "$$(test/cluster/cluster env)" && go run ./test/bench/agent -modes $(AGENT_MODES) -services $(SERVICES)

.PHONY: bench-ipvs
bench-ipvs: ## Time program in ipvs mode against kube-proxy, in a virtual machine (Debian, root)
	test/vm/vm setup
	cd test/oracle/kubeproxy && BENCH_RUNS=$(RUNS) VM_TIMEOUT=1200 go test -tags bench -count=1 -timeout 15m -v -run '^TestProgramAgainstKubeProxy$$' -exec "$(CURDIR)/test/vm/vm run" .

.PHONY: ci
ci: ## Install what the tests need and run all of CI's list (asks for root)
	hack/test.sh

.PHONY: nightly
nightly: ## The same of the nightly list: what is long and rarely breaks (hours); SHARD is one of them
	hack/test.sh nightly $(SHARD)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
