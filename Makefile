# weft: `make help` lists the targets. build and demo need Go and a C compiler; test also needs the system packages that
# scripts/deps.sh names, and test, lint, verify and bench the tools that tools/go.mod pins.

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
MAKEFLAGS     += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO        = go
PKG       = ./...
BENCH     = .
COUNT     = 6
NAME      = latest
FUZZTIME  = 10s
SOAK      = 30m

# go-nvml binds all of NVML, and the C compiler would print pages about what NVML has replaced since.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# As many jobs as processors for what is built with make, unless -j says so already.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
# A folder of their own for the sanitised variants of the C parts.
SANITIZED = $(CURDIR)/bin/sanitized

# The commit is stamped into the binary where git can tell it, and never a reason to fail where it cannot.
VCS = $(if $(shell git rev-parse --verify -q HEAD 2>/dev/null),auto,false)
# golangci-lint builds packages as well, and has no use for the stamp.
UNSTAMPED = GOFLAGS="$$($(GO) env GOFLAGS) -buildvcs=false"

# Tools are built once per pinned version and Go release, outside the checkout: docs/decisions/0008.
CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weft/tools
TOOLS = $(CACHE)/$(shell cat tools/go.mod tools/go.sum | cksum | cut -d' ' -f1)-$(shell $(GO) env GOVERSION)
LINT  = $(TOOLS)/golangci-lint

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.* ## ' $(MAKEFILE_LIST) | awk -F ':.* ## ' '{ printf "  %-14s %s\n", $$1, $$2 }'

.PHONY: build
build: shim ## build bin/weft, and into bin/lib what runs inside of jobs
	$(GO) build -trimpath -buildvcs=$(VCS) -o bin/weft ./cmd/weft

.PHONY: shim
shim: compiler ## build bin/lib: libweft.so, the emulated driver, the programs on the driver API
	@$(MAKE) -s $(JOBS) -C shim all

.PHONY: compiler
compiler:
	@echo '#include <stdio.h>' | $(CC) -x c -fsyntax-only - 2>/dev/null || { \
	  echo "make: no working C compiler ($(CC)): weft needs one for what runs inside of jobs." >&2; \
	  echo "      Debian, Ubuntu: apt-get install build-essential. Fedora: dnf install gcc. CC=... names another one." >&2; \
	  exit 1; }

.PHONY: demo
demo: build ## run 16 training jobs on four emulated GPUs three ways, and compare: two to three minutes
	bin/weft demo

# The race detector slows computing down some tenfold, so here it runs the short tests of what starts goroutines and has not all of
# Kubernetes to compile; `make race` runs the rest. The whole suite comes last, and of it one by one what measures time with many
# processes. Lint holds all of vet.
.PHONY: test
test: deps lint build cluster-build test-c test-python test-web test-chart ## install what the tests need and run all of them
	CGO_ENABLED=1 $(GO) test -count=1 -race -short -timeout 15m $$(scripts/concurrent.sh ./internal/... | grep -v /kube/)
	$(GO) test -count=1 -timeout 20m $$($(GO) list $(PKG) | grep -v /test/)
	WEFT_TEST_PROGRAMS=$(CURDIR)/bin $(GO) test -count=1 -timeout 45m -p 1 ./test/...
	@scripts/recorded.sh
	@bin/cluster check || true

# The page of weft up is built with Node.js and committed: docs/decisions/0017.
.PHONY: web
web: ## build the page in web/ into internal/web/dist, which is committed
	cd web && npm ci --no-audit --no-fund --loglevel=error && npm run -s build

.PHONY: test-web
test-web: ## the page: types, tests, whether the bundle is up to date, a browser; says so where there is no npm
	@scripts/web.sh

# Sanitised run the tests whose code shares memory between threads or counts bytes. The rest looks at exported symbols and at
# which library a name comes from, which sanitisers change, or tests the programs, which the tests of the session outdo.
.PHONY: test-c
test-c: build ## the tests of the C parts: plain, with ASan and UBSan, with TSan
	$(MAKE) -s $(JOBS) -C shim tests
	$(MAKE) -s -C shim test
	for san in address thread; do \
	  $(MAKE) -s $(JOBS) -C shim SAN=$$san OUT=$(SANITIZED)/$$san all tests; \
	  $(MAKE) -s -C shim SAN=$$san OUT=$(SANITIZED)/$$san test-shim test-emu test-hooks test-memory; \
	done

# The chart is rendered by Helm's own library, in a module of its own: docs/decisions/0021.
.PHONY: chart
chart: ## write deploy/weft.yaml, which is committed, from charts/weft
	cd test/chart && $(GO) run -buildvcs=false . ../../charts/weft > ../../deploy/weft.yaml.new
	mv deploy/weft.yaml.new deploy/weft.yaml

.PHONY: test-chart
test-chart: ## the Helm chart: golden files, rights, deploy/weft.yaml
	cd test/chart && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: test-python
test-python: shim ## the tests of the Python package, beside libweft.so
	python3 -B -m unittest discover -q -s python -t python

.PHONY: test-fast
test-fast: ## the edit loop: the short tests only, under two minutes
	$(GO) test -short -timeout 5m $(PKG)

.PHONY: race
race: build cluster-build ## the short tests of all that starts goroutines, daemon and agent whole, under the race detector
	CGO_ENABLED=1 $(GO) test -count=1 -race -short -timeout 30m -p 1 $$(scripts/concurrent.sh $(PKG) | grep -v -e /test/kube -e /test/cluster)

.PHONY: soak
soak: ## start, stop, kill and stall jobs on four emulated GPUs at random for SOAK, and look for leaks
	WEFT_SOAK=$(SOAK) $(GO) test -count=1 -v -run '^TestSoak$$' -timeout 0 ./test/agent

# A real Kubernetes for tests, built once into the user's cache: docs/cluster.md. Its node takes root; suites on its API server do
# not. Where it cannot be had (status 3), the tests that want it are skipped, and this says why.
.PHONY: cluster-build
cluster-build: bin/cluster ## build a real Kubernetes for the tests, once: some 17 minutes on two cores
	@[ "$$(id -u)" -ne 0 ] || scripts/deps.sh cluster || true
	@bin/cluster build || [ $$? -eq 3 ]

.PHONY: cluster-up
cluster-up: cluster-build ## bring up a real one-node Kubernetes on this machine, as root; cluster-down ends it
	@bin/cluster up

.PHONY: demo-kube
demo-kube: build ## in the cluster of cluster-up, two Jobs share an emulated GPU beside a native Pod: under five minutes
	@$(GO) run -buildvcs=false ./test/kube/cmd/demo

.PHONY: cluster-down
cluster-down: bin/cluster ## end that cluster and remove everything of it
	@bin/cluster down

.PHONY: bin/cluster
bin/cluster:
	@CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o $@ ./test/cluster/cmd/cluster

.PHONY: vet
vet: ## go vet
	$(GO) vet $(PKG)

.PHONY: lint
lint: install-tools ## golangci-lint, as .golangci.yml says
# Its cache names files by their place, and a shared one reports those of a checkout that is gone: each keeps its own.
	@mkdir -p bin/lint-cache
	$(UNSTAMPED) GOLANGCI_LINT_CACHE=$(CURDIR)/bin/lint-cache $(LINT) run --timeout 15m $(PKG)

.PHONY: bench
bench: install-tools ## run benchmarks COUNT times into bench/NAME.txt and summarise; BENCH and PKG choose which
	@mkdir -p bench
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 90m $(PKG) | tee bench/$(NAME).txt
	@$(TOOLS)/benchstat bench/$(NAME).txt
	@echo "To compare two: make bench NAME=old, change, make bench NAME=new, $(TOOLS)/benchstat bench/{old,new}.txt"

.PHONY: fuzz-short
fuzz-short: ## run every fuzz target for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: verify
verify: vet lint ## formatting, modules, generated files, vet and lint
	@unformatted=$$(gofmt -l api cmd internal shim test); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted" >&2; exit 1; }
	$(GO) mod verify
	$(GO) mod tidy -diff
	@scripts/generated.sh
	cd test/chart && $(GO) mod tidy -diff && $(GO) test -count=1 -run '^TestManifest$$' .

.PHONY: deps
deps: ## install the system packages that the tests need, or name them
	@scripts/deps.sh

.PHONY: install-tools
install-tools: $(LINT) ## build the pinned tools into the user's cache

$(LINT):
	@echo "building the tools pinned in tools/go.mod: a few minutes, once"
	@mkdir -p $(TOOLS)
	@for try in 1 2 3; do \
	  if (cd tools && GOBIN=$(TOOLS) $(GO) install -buildvcs=false tool); then exit 0; fi; \
	  echo "try $$try did not succeed" >&2; sleep $$((5 * try)); \
	done; exit 1

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin
