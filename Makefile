# dongate: `make demo` shows the main job, `make test` proves it.
SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: build demo demo-relayer test check lint race fuzz soak bench docs contracts clean postgres node

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)
FUZZTIME ?= 3s

# The first build compiles go-ethereum's C part, which takes a minute or two on a
# small machine; what is compiled is printed so that nobody thinks it hangs.
build:
	@echo "building bin/gateway (the first time takes a minute or two)"
	@go build -v -trimpath -ldflags '$(LDFLAGS)' -o bin/gateway ./cmd/gateway 2>&1 | sed -u -n 's|^github.com/ethereum|  compiling &|p;/^#/,$$p;/: /p'; exit $${PIPESTATUS[0]}

# A gateway, a simulated DON of two shards and a client, narrated.
demo: build
	@bin/gateway demo

# The relayer with a simulated chain, narrated; the gateway is killed in between.
demo-relayer: build
	@echo "building bin/demo-relayer (with a node of the chain: the first time takes another minute or two)"
	@go build -trimpath -o bin/demo-relayer ./internal/demorelayer/cmd/demo-relayer
	@bin/demo-relayer bin/gateway

# Everything but benchmarks, long soaks and the race detector.
test: postgres node
	go test -shuffle=on ./...

# What `make test` runs, again under the race detector, after the linters and
# before some seconds of fuzzing per target and of soaking per test.
check: lint race fuzz
	$(MAKE) soak SOAK=20s

# Crashes, races and locks, for as long as SOAK says each: 10m is enough for 100
# kills of a gateway.
SOAK ?= 10m
soak: postgres
	DONGATE_SOAK=$(SOAK) go test -count=1 -timeout 2h -run '^TestSoak' -v ./... 2>&1 | grep -v -e '^=== ' -e 'no test' -e 'no tests'; exit $${PIPESTATUS[0]}

# Tests start a private PostgreSQL cluster from installed server programs.
postgres:
	@test -n "$$DONGATE_TEST_POSTGRES_DSN" || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q postgresql; } || \
	  { echo "the tests need a PostgreSQL server: install one (Debian: sudo apt-get install postgresql), or name one in DONGATE_TEST_POSTGRES_DSN" >&2; exit 1; }

# The relayer's API is tested with the network's own JavaScript library.
node:
	@command -v node >/dev/null && command -v npm >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q nodejs npm; } || \
	  { echo "the tests need node and npm: install them (Debian: sudo apt-get install nodejs npm)" >&2; exit 1; }

lint:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt: $$out"; exit 1; fi
	go build ./...
	CGO_ENABLED=0 go build -o /dev/null ./cmd/gateway
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff

race: postgres node
	go test -race -shuffle=on ./...

fuzz:
	@set -e; for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg >/tmp/dongate-fuzz.$$$$ 2>&1 || { cat /tmp/dongate-fuzz.$$$$; exit 1; }; \
	    tail -n 1 /tmp/dongate-fuzz.$$$$; rm -f /tmp/dongate-fuzz.$$$$; \
	  done; done

# Ratios to a floor measured in the same run; see docs/performance.md.
bench:
	go test -run "^$$" -bench "TriggerCPU|IdleSession|FaultyNodes|BadTokens|DurableClaims|SecondGateway|Action" -benchtime 1x ./gateway
	go test -run "^$$" -bench GroupCommit -benchtime 1x ./auth/sqlclaims
	go test -run "^$$" -bench "Post|Load" -benchtime 1x -timeout 20m ./relayer/api
	go test -run "^$$" -bench . -benchtime 1x -timeout 20m ./relayer/store
	go test -run "^$$" -bench . ./jsonrpc ./auth ./aggregation ./ratelimit ./connector ./cache ./egress ./storage ./storage/query

# Documents that come from the code; `make test` fails when they differ.
docs:
	go test ./config ./gateway ./cmd/gateway ./internal/conformance ./relayer/api -run Document -update-docs

# Compiles the test contracts again; what comes of it is committed, and a test compares it with the sources.
contracts: node
	cd testdata/contracts && npm ci --no-audit --no-fund && node compile.mjs

clean:
	rm -rf bin
