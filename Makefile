# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The key of releases, and its password, are for the one program that signs: no compiler, Helm or test is started with them.
ifneq ($(MAKECMDGOALS),release-sign)
ifneq ($(value COSIGN_KEY)$(value COSIGN_PASSWORD),)
$(error COSIGN_KEY and COSIGN_PASSWORD are for `make release-sign` alone, and are set: unset them)
endif
endif

# One setting for everything, so that programs, tests, linters and the control plane share the build cache. No C compiler is needed.
# Without the tag, grpc brings templates, which may call any method by its name. The linker then keeps the methods of all types, which are
# a quarter of a program.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath -tags=grpcnotrace,$(GOFLAGS)) -trimpath -tags=grpcnotrace)
# A Go that is older than go.mod asks for gets that one from the module proxy. The environment wins.
export GOTOOLCHAIN ?= auto
# etcd, kube-apiserver and kubectl for the controller tests; set it to use your own.
KUBEBUILDER_ASSETS ?= $(CURDIR)/bin
export KUBEBUILDER_ASSETS

VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo "v0.0.0-dev+$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)")
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
version_package := k8s.io/component-base/version
LDFLAGS = -X $(version_package).gitVersion=$(VERSION) -X $(version_package).gitCommit=$(COMMIT)

# Packages of the commands that "make build" makes: the programs, and the sandbox.
COMMANDS := $(wildcard cmd/*) cmd/kubectl-metal3/page test/sandbox/cmd/sandbox
# Packages are tested as many at a time as cores and memory allow; TEST_PACKAGES=2 sets it. What go vet has to say, make lint does.
TEST_PACKAGES ?= 0
TEST_FLAGS ?= -vet=off
# How long the tests of a package may take. Without it each target has its own limit, more than twice what any package takes on two cores.
TEST_TIMEOUT ?=
# Packages are tested in the order in which they are named. Those that take longest come first, so that none of them is alone on
# the machine in the end.
FIRST_TESTS ?= ./test/e2e ./test/docs ./test/upstream ./pkg/controllers/management/machine
# $(call run_tests,TIMEOUT,FLAGS) is the runner of tests. TEST_TIMEOUT wins.
run_tests = go run ./test/run -p $(TEST_PACKAGES) -flags "-timeout $(or $(TEST_TIMEOUT),$(1)) $(TEST_FLAGS) $(2)"
comma := ,
empty :=
space := $(empty) $(empty)
first_tests = $(subst $(space),$(comma),$(strip $(FIRST_TESTS)))
SANDBOX_DIR ?= .sandbox
benchmarks = go test -run '^$$' -bench . -timeout 60m
BENCHMARKS ?= $(sort $(dir $(shell grep -rl --include='*_test.go' '^func Benchmark' pkg test | sed 's,^,./,')))

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "; print "usage: make TARGET\n"} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check-go
check-go:
	@hack/check-go.sh

.PHONY: tools cluster-tools dev-tools upstream-tools dra-tools kueue-tools otel-tools oidc-tools prometheus-tools site-tools versions-tools
tools: ## Build the control plane, Metal3's operator and the development tools into bin/, where missing or outdated
	@hack/build-tools.sh cluster dev
cluster-tools:
	@hack/build-tools.sh cluster
dev-tools:
	@hack/build-tools.sh dev
upstream-tools:
	@hack/build-tools.sh upstream
dra-tools:
	@hack/build-tools.sh dra
kueue-tools:
	@hack/build-tools.sh kueue
otel-tools:
	@hack/build-tools.sh otel
oidc-tools:
	@hack/build-tools.sh oidc
prometheus-tools:
	@hack/build-tools.sh prometheus
site-tools:
	@hack/build-tools.sh site
# Control planes of other versions of Kubernetes: VERSIONS=1.37 is one of them.
VERSIONS ?= $(notdir $(wildcard tools/versions/*))
versions-tools:
	@hack/build-tools.sh $(addprefix versions/,$(VERSIONS))

.PHONY: build
build: check-go ## Build our own commands into bin/
	@mkdir -p bin
	@hack/go-build.sh . bin/ "$(LDFLAGS)" "" $(addprefix ./,$(COMMANDS))

# What the charts run, under the names that they give it, and the rack of emulated servers. Nothing is taken from a registry, nor put into one.
IMAGES         := manager provider webhook page rack
PLATFORMS      ?= linux/amd64 linux/arm64
IMAGE_REGISTRY ?= $(shell awk '$$1 == "registry:" {print $$2; exit}' charts/karpenter-metal3/values.yaml)
IMAGE_TAG      ?= $(shell awk '$$1 == "appVersion:" {print $$2; exit}' charts/karpenter-metal3/Chart.yaml)
IMAGE_SOURCE   ?= $(shell awk '$$1 == "home:" {print $$2; exit}' charts/karpenter-metal3/Chart.yaml)
IMAGES_DIR     ?= $(CURDIR)/bin/images
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: images
images: check-go ## Build the images of manager, provider, webhook, page and the emulated rack into bin/images/, for amd64 and arm64, without a registry
	@for platform in $(PLATFORMS); do \
	  for image in $(IMAGES); do \
	    GOOS=$${platform%%/*} GOARCH=$${platform##*/} go build -buildvcs=false -ldflags "-s -w $(LDFLAGS)" \
	      -o $(IMAGES_DIR)/programs/$${platform/\//-}/$$image ./$$(ls -d cmd/$$image cmd/kubectl-metal3/$$image test/emulator/cmd/$$image 2>/dev/null) || exit 1; \
	  done; \
	done
	@go -C tools/release run . images --registry "$(IMAGE_REGISTRY)" --tag "$(IMAGE_TAG)" --version "$(VERSION)" --revision "$(COMMIT)" \
	  --source "$(IMAGE_SOURCE)" --created $(SOURCE_DATE_EPOCH) --platforms "$(subst $(space),$(comma),$(strip $(PLATFORMS)))" \
	  --programs "$(IMAGES_DIR)/programs" --out "$(IMAGES_DIR)" $(IMAGES)

# Where a release is written, the commands of kubectl's plugin that are in it, and the platforms that they are for. RELEASE_DIRTY=yes
# releases what no commit has, to try it out.
RELEASE_DIR       ?= $(CURDIR)/dist
RELEASE_PLUGINS   := $(wildcard cmd/kubectl-*)
RELEASE_PLATFORMS ?= $(PLATFORMS) darwin/amd64 darwin/arm64
RELEASE_DIRTY     ?=
RELEASE_PROGRAMS  := $(CURDIR)/bin/release
HELM = $(firstword $(wildcard $(KUBEBUILDER_ASSETS)/helm) $(CURDIR)/bin/helm)

.PHONY: release release-sign release-push
release: check-go ## Make the files of a release in dist/: images, charts, definitions, plugin, bills of materials, sums
	@hack/check-release.sh "$(IMAGE_TAG)" "$(RELEASE_DIRTY)"
	@$(MAKE) --no-print-directory dev-tools images
	@rm -rf $(RELEASE_PROGRAMS)
	@for platform in $(RELEASE_PLATFORMS); do \
	  for command in $(RELEASE_PLUGINS); do \
	    GOOS=$${platform%%/*} GOARCH=$${platform##*/} go build -buildvcs=false -ldflags "-s -w $(LDFLAGS)" \
	      -o $(RELEASE_PROGRAMS)/$${platform/\//-}/$${command##*/} ./$$command || exit 1; \
	  done; \
	done
	@go -C tools/release run . make --repository "$(CURDIR)" --images "$(IMAGES_DIR)" --programs "$(RELEASE_PROGRAMS)" \
	  --plugins "$(RELEASE_PLUGINS)" --helm "$(HELM)" --registry "$(IMAGE_REGISTRY)" --tag "$(IMAGE_TAG)" --version "$(VERSION)" \
	  --revision "$(COMMIT)" --source "$(IMAGE_SOURCE)" --created $(SOURCE_DATE_EPOCH) --out "$(RELEASE_DIR)" $(IMAGES)

release-sign: ## Sign the files in dist/, with the key of cosign in COSIGN_KEY and its COSIGN_PASSWORD
	@hack/release-sign.sh "$(RELEASE_DIR)"

release-push: check-go ## Push images, charts and signatures of dist/ to a registry: make release-push REGISTRY=registry.example.com/metal
	@go -C tools/release run . push --from "$(RELEASE_DIR)" --registry "$(REGISTRY)"

.PHONY: generate
generate: dev-tools ## Generate deepcopy code and CRDs from the API types, what the charts share with the rest, their READMEs, and pages of docs
	bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./pkg/apis/v1alpha1
	hack/generate-crds.sh pkg/apis/crds
	go run ./charts/generate
	bin/helm-docs --log-level warning --sort-values-order file --chart-search-root charts
	go run ./docs/generate

.PHONY: check-generated
check-generated: dev-tools ## Fail when generated files are stale
	@hack/check-generated.sh

.PHONY: lint
lint: dev-tools ## Check formatting, go vet, staticcheck and the workflows
	@unformatted=$$(gofmt -l charts cmd config contrib docs examples pkg test tools); if [[ -n "$$unformatted" ]]; then \
	  echo "error: not formatted by gofmt:" >&2; echo "$$unformatted" >&2; exit 1; fi
	go vet ./...
	bin/staticcheck ./...
	bin/actionlint .github/workflows/*.yaml

# Where the site is written, and the address that it will have.
SITE_DIR ?= $(CURDIR)/dist/site
BASE_URL ?= /

.PHONY: site
site: check-go ## Build the documentation as a site, with search, into dist/site/
	@BASE_URL=$(BASE_URL) hack/site.sh $(SITE_DIR)
	@echo "the site is in $(SITE_DIR): python3 -m http.server -d $(SITE_DIR) shows it"

.PHONY: cloud-init
cloud-init: ## Unpack Debian's cloud-init into bin/, for the tests to ask it what it thinks of our documents
	@hack/cloud-init.sh

.PHONY: chromium
chromium: ## Unpack Debian's Chromium into bin/, for the tests to look at the page
	@hack/chromium.sh

.PHONY: qemu-user
qemu-user: ## Unpack Debian's emulator of arm64 into bin/, for the tests to run the images for arm64
	@hack/qemu-user.sh

.PHONY: server-image
server-image: ## Make the root file system of a server that can join a cluster, from Debian's packages, into bin/ (needs root)
	@hack/server-image.sh

.PHONY: server-disk
server-disk: server-image ## Make a disk image that boots by itself of it, for servers that are virtual machines (needs root)
	@hack/server-disk.sh

.PHONY: boot-server
boot-server: check-go ## Build the command that boots such a server as a container into bin/
	@go build -o bin/boot-server ./test/metal/server/cmd/boot-server

.PHONY: boot-vm
boot-vm: check-go ## Build the command that boots a disk image as a virtual machine into bin/
	@go build -o bin/boot-vm ./test/metal/vm/cmd/boot-vm

.PHONY: server-boot
server-boot: cluster-tools server-disk boot-server boot-vm ## Boot servers as a container and as a virtual machine: they join a cluster, and run a pod (needs root)
	E2E_METAL=1 go test -count=1 -v -timeout 20m -run 'TestServer[A-Z]|TestVirtualMachine' ./test/metal

.PHONY: ironic
ironic: ## Unpack Debian's Ironic into bin/, for servers that are installed by the real one
	@hack/ironic.sh

# Set it to container where no virtual machine can run, or to save minutes: then all servers that boot are containers.
export E2E_METAL_SERVERS ?= vm
# Servers boot, so that tests wait longer.
server-boot e2e-metal: export TEST_PATIENCE ?= 5

.PHONY: e2e-metal
e2e-metal: tools build ironic boot-server boot-vm dra-tools ## The whole chain on real Metal3: faults of servers, then a GPU pod on a server that boots (needs root)
	go build -o bin/rack ./test/emulator/cmd/rack
	go build -ldflags "-s -w" -o bin/ ./examples/network-switch ./test/metal/vlan/cmd/switch-lab ./test/metal/ramdisk/cmd/deploy-agent
	go test -c -ldflags "-s -w" -o bin/network-switch.test ./examples/network-switch
	@hack/server-image.sh
	@if [[ "$(E2E_METAL_SERVERS)" != container ]]; then hack/server-disk.sh; fi
	@# The chain boots virtual machines too. "make server-boot" tests one without the chain. TestNetworkBoot waits for its server for most
	@# of its time, so it runs beside the others; its log comes last.
	@test_metal="go test -count=1 -v -timeout 90m ./test/metal"; export E2E_METAL=1; \
	  $$test_metal -run TestNetworkBoot >bin/network-boot.log 2>&1 & beside=$$!; \
	  $$test_metal -skip 'TestVirtualMachineRunsPod|TestNetworkBoot'; status=$$?; \
	  wait $$beside || status=1; cat bin/network-boot.log; exit $$status

# What kind clusters are given, in an environment of test/kind. Variables of these targets:
#   E2E             tests of test/e2e to run, as go test -run takes them; "." are all
#   AI              1 runs test/ai instead, in an environment with a DRA driver, which make dra-tools builds
#   KEEP            1 leaves the environment after the tests, and after a failure
#   KIND            path of another kind than the one in tools/kind
#   KIND_IMAGE      node image, instead of kind's own
#   KIND_IP_FAMILY  ipv4, dual or ipv6
#   KIND_MANAGEMENT, KIND_TENANT   names of kind clusters to take, instead of creating them
.PHONY: kind-parts
kind-parts: tools build images boot-server
	@hack/build-tools.sh kind
	@hack/in-debian.sh hack/server-image.sh
	@hack/in-debian.sh hack/ironic.sh
	@go build -o bin/ ./test/emulator/cmd/rack ./test/kind/metal/cmd/metal-host ./test/kind/cmd/kind-env

# Building what the clusters need takes long, so whether Docker answers is looked at first.
.PHONY: docker-answers
docker-answers:
	@docker version --format '{{.Server.Version}}' >/dev/null || { echo "error: this needs Docker, which does not answer: see docs/testing.md#on-kind" >&2; exit 1; }

.PHONY: e2e-kind
e2e-kind: docker-answers kind-parts ## test/e2e and the charts on kind clusters, with servers that boot as containers (needs Docker; E2E=. runs all tests, KEEP=1 leaves the clusters)
	bin/kind-env test

.PHONY: ai-conformance
ai-conformance: docker-answers kind-parts dra-tools ## The steps of CNCF's AI conformance on the same clusters; log and JUnit results in dist/ai-conformance/ (needs Docker)
	@rm -rf dist/ai-conformance .kind/logs/ai.*; mkdir -p dist/ai-conformance; AI=1 bin/kind-env test; status=$$?; \
	  cp .kind/logs/ai.log dist/ai-conformance/e2e.log && cp .kind/logs/ai.xml dist/ai-conformance/junit.xml || status=1; exit $$status

.PHONY: kind-up kind-down
kind-up: docker-answers kind-parts ## The same clusters to look around in (needs Docker)
	bin/kind-env up
kind-down: ## Delete what kind-up or e2e-kind has made
	@if [[ -x bin/kind-env ]]; then bin/kind-env down; fi

.PHONY: test
test: tools build cloud-init ## Run the tests for every change: units, controllers on a real API server, the main journeys on a sandbox
	@$(call run_tests,25m) -tier test -first "$(first_tests)" ./...

.PHONY: test-system
test-system: tools build images cloud-init chromium qemu-user upstream-tools dra-tools kueue-tools otel-tools oidc-tools prometheus-tools site-tools ## Run all other tests: all end-to-end tests, the pages of the docs, Karpenter's suite, charts, images, backup, 500 cycles, each benchmark once
	@$(call run_tests,45m) -tier system -first "$(first_tests)" ./...
	@echo "each benchmark once, on small fleets"
	@SMALL_BENCHMARKS=yes $(benchmarks) -benchtime 1x $(BENCHMARKS)

# Packages that make race tests, and more flags of go test. RACE_FLAGS= runs the tests of make test-system, too.
RACE_PACKAGES ?= ./...
RACE_FLAGS ?= -short

.PHONY: race
race: check-cc tools build cloud-init ## Run the tests of make test with the race detector (needs a C compiler; RACE_PACKAGES=./pkg/dra is one package)
	@CGO_ENABLED=1 $(call run_tests,90m,-race $(RACE_FLAGS)) $(RACE_PACKAGES)

.PHONY: check-cc
check-cc: check-go
	@hack/check-cc.sh

.PHONY: deflake
deflake: tools build ## Run tests until one fails, in random order, while the cores are kept busy: make deflake PKG=./pkg/dra RUN=TestName COUNT=10
	@hack/deflake.sh

# Flags of the runner: UPSTREAM_FLAGS="--lane default --focus '^Drift '".
UPSTREAM_FLAGS ?=

.PHONY: upstream-e2e
upstream-e2e: cluster-tools upstream-tools build ## Run Karpenter's own regression suite against this provider, on sandboxes
	go run ./test/upstream/run $(UPSTREAM_FLAGS)

.PHONY: upstream-patches
upstream-patches: cluster-tools upstream-tools ## Run the tests of our patches for Karpenter's core, on Karpenter with all of them (ten minutes)
	UPSTREAM_PATCHES=all go test ./contrib/upstream -run 'TestPatchesPass$$' -count=1 -timeout=60m -v

# Pairs of versions of Kubernetes, MANAGEMENT/TENANT: PAIRS=1.37/1.36,1.37/1.37. All by default, and the one of the day with PAIRS=turn.
PAIRS ?=

.PHONY: test-versions
test-versions: cluster-tools versions-tools build ## Run the main journeys on clusters of other versions of Kubernetes; builds these first (PAIRS=1.37/1.36 is one pair)
	@go run ./test/versions -pairs "$(PAIRS)"

# Tests that run our programs with the rights in config/rbac, and where their API servers write down what they were asked.
RIGHTS_TESTS ?= ./charts ./cmd/provider ./pkg/dra ./pkg/controllers/tenant/protection ./test/dra ./test/rights ./test/snippets ./test/webhooks ./test/podgroups ./test/e2e
AUDIT_LOGS := $(CURDIR)/.audit

.PHONY: rights
rights: tools build upstream-tools dra-tools ## Run the tests of our programs with audited API servers, and fail if one has a right that it does not use
	@rm -rf $(AUDIT_LOGS)
	AUDIT_LOG_DIR=$(AUDIT_LOGS) $(call run_tests,45m,-count=1) $(RIGHTS_TESTS)
	go test -count=1 ./test/rights -run TestEveryRightIsUsed --logs=$(AUDIT_LOGS)

.PHONY: demo
demo: cluster-tools build ## A pending GPU pod gets a bare-metal server and releases it, live, on this machine
	bin/sandbox demo --dir $(SANDBOX_DIR)

.PHONY: bench
bench: cluster-tools upstream-tools build ## Print how fast the decisions are, and how they grow with the fleet
	$(benchmarks) -benchmem $(BENCHMARKS)

.PHONY: bench-fleet
bench-fleet: cluster-tools build ## Measure a fleet with many tenants: TENANTS=100 HOSTS=10000 takes 20 minutes and 11 GiB on two cores
	cd test/fleet && TENANTS=$(TENANTS) HOSTS=$(HOSTS) PROVIDERS=$(PROVIDERS) BEAT=$(BEAT) TEST_PATIENCE=5 go test -run '^$$' -bench . -benchtime 1x -timeout 3h .

.PHONY: clean
clean: kind-down ## Remove everything that was built (a running sandbox, and clusters of kind-up, are stopped first)
	@if [[ -x bin/sandbox ]]; then bin/sandbox down --dir $(SANDBOX_DIR); fi
	rm -rf bin dist .kind $(SANDBOX_DIR)
