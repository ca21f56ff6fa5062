.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# Every Go module of the repository; ./... does not cross into nested ones.
MODULES := . deploy/local deploy/local/temporal
NESTED  := $(filter-out .,$(MODULES))

# Tools are pinned here and nowhere else; they are no requirement of any module.
STATICCHECK   := honnef.co/go/tools/cmd/staticcheck@v0.8.2
WORKFLOWCHECK := go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X github.com/quiesce-io/quiesce/internal/process.Version=$(VERSION)

.PHONY: help
help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Built first and run from here, so that paths in ARGS are what they seem.
LOCAL := .cache/bin/local

.PHONY: $(LOCAL)
$(LOCAL):
	@mkdir -p $(dir $(LOCAL)) && cd deploy/local && go build -o ../../$(LOCAL) .

.PHONY: demo
demo: $(LOCAL) ## Run the main job on an embedded stack (ARGS="--duration 60s --accounts 200 --summary FILE.json --seed 7"; ARGS=--help lists all)
	@$(LOCAL) demo $(ARGS)

.PHONY: stack
stack: $(LOCAL) ## Keep the embedded stack up, for running bridge and worker by hand (ARGS="--load 16"; ARGS=--help lists all)
	@$(LOCAL) stack $(ARGS)

.PHONY: build
build: ## Build both binaries into bin/
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./bridge ./worker

.PHONY: test
test: test-root test-local test-e2e ## Run every test

.PHONY: test-root
test-root: ## Test the root module under the race detector
	@go test -race ./...

# What measures rates and delays has the machine to itself; the rest mostly waits.
ALONE := /(e2e|kafkatest|fleet)$$

.PHONY: test-local
test-local: ## Test the embedded stack and its parts
	@for module in $(NESTED); do (cd $$module && go test -p 2 -timeout 20m $$(go list ./... | grep -Ev '$(ALONE)')); done
	@cd deploy/local && go test -timeout 20m ./fleet

.PHONY: test-e2e
test-e2e: ## Test bridge and worker as processes on the embedded stack
	@cd deploy/local && go test -count=1 -timeout 20m ./e2e

.PHONY: test-kafka
test-kafka: ## Test the consumer on a real Apache Kafka broker (needs Java 17 and Maven; skips without)
	@cd deploy/local && go test -count=1 -timeout 10m -v ./kafkatest -kafka apache | grep -v '^=== '

.PHONY: test-long
test-long: ## Hold what is promised at its full size: an hour, on cores that have nothing else to do
	@cd deploy/local && ( \
		go test -count=1 -v -timeout 30m ./bridgetest -run 'Restart|HotAccount' -long; \
		go test -count=1 -v -timeout 30m ./e2e -parallel 1 -run 'LongOutage|Saturated|Overload' -outage 90s -saturated 60s -overload 3m; \
		FLEET_OUTAGE=90 FLEET_SECONDS=30 go test -count=1 -v -timeout 30m ./fleet -run 'Outage|Partial'; \
		FLEET_CLIENTS=50 FLEET_SECONDS=180 go test -count=1 -v -timeout 30m ./fleet -run ManyClients; \
		go test -count=1 -v -timeout 30m ./audittest -run LiveChanges -pairs 3 \
	) | grep -v '^=== '

.PHONY: record
record: ## Record this version's histories, from a real server, beside those of versions before
	@cd deploy/local && go run ./record -version '$(VERSION)'

.PHONY: kafka
kafka: ## Keep an Apache Kafka broker up (ARGS="-port 9092"), for use as KAFKA_BROKERS
	@cd deploy/local && go run ./kafka/run $(ARGS)

.PHONY: lint
lint: ## Check format, vet, staticcheck and the determinism of workflow code
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted; run make fmt"; exit 1; fi
	@for module in $(MODULES); do (cd $$module && go vet ./...); done
	@for module in . deploy/local; do (cd $$module && go run $(STATICCHECK) ./...); done
	@go run $(WORKFLOWCHECK) ./workflows/...

.PHONY: fmt
fmt: ## Format all Go code
	@gofmt -w $$(git ls-files '*.go')

.PHONY: verify
verify: ## Regenerate what is generated and fail on a difference
	@go test ./workflows/contract ./bridge ./worker -run 'Payloads|Reference' -update >/dev/null
	@go test ./internal/process -run Reference -update >/dev/null
	@for module in $(MODULES); do (cd $$module && go mod tidy -diff); done
	@git diff --exit-code -- '*.json' '*.golden' internal/process/settings.txt
