# What a developer does. CI does the same through .ci/run.

.PHONY: test race check api bench packages guards chaos

test: ## quick tests, as the README says
	go test ./...

race: ## the concurrent packages under the race detector
	go test -race ./logbook/... ./jobs/... ./valuekeys ./flow/... ./fsm/... ./conductor/... ./raftboard/... ./cmd/...

check: ## format, vet, staticcheck
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	go vet ./...
	go tool staticcheck ./...

api: ## the Go code of the .proto files; the plugins are pinned in go.mod
	go run ./api/generate

bench: ## three processes beside a bare raft group, on this disk, in this run; ARGS=-full for a long one
	cd bench && go run . $(ARGS)

packages: ## binaries, deb, rpm, image tree, SBOM and checksums of HEAD in dist/, which must not exist
	deploy/build/packages dist

guards: ## remove each guard in turn and see its test fail
	go run ./test/guards
MINUTES ?= 5
SEED ?= $(shell date +%s)
chaos: ## real processes under kills, pauses, cuts, wrong clocks, bad disks, power cuts, bad clients; as root for all of them
	go run ./test/chaos -minutes $(MINUTES) -seed $(SEED) $(ARGS)
