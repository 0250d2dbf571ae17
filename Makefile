# `make` lists the targets. Every target does its own set-up on a fresh machine.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Steps follow one another; cargo uses the cores by itself.
.NOTPARALLEL:

export CARGO_TERM_COLOR ?= auto
# For the experiment record; empty outside a checkout.
export PLIMSOLL_COMMIT := $(shell git rev-parse HEAD 2>/dev/null)

CARGO ?= cargo
PREFIX ?= $(HOME)/.local
DESTDIR ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# REAL_ENGINE=0 leaves out the tests against the real llama.cpp.
REAL_ENGINE ?= 1
# How long `make fuzz` gives to each target.
FUZZ_SECONDS ?= 20
# How many sweeps `make cluster-test` disturbs at random, by which seed, and how many fleets run at the same time.
KILLS ?= 10
SEED ?= 1
JOBS ?= 3
REAL_ENGINE_DIR := $(CURDIR)/.real-engine
EXPORT_READERS_DIR := $(CURDIR)/.export-readers

.PHONY: help setup setup-build setup-python build install demo test real-engine export-readers pictures test-engines cluster-test cluster-short sim-build sim sim-short fuzz bench bench-quick bench-peers peers-setup test-scripts lint layout deny ci clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: ## install what building, testing and linting need
	@.ci/setup.sh all

setup-build:
	@.ci/setup.sh build

setup-python:
	@.ci/setup.sh python

build: setup-build ## compile every crate and binary
	$(CARGO) build --workspace --locked

install: setup-build ## put coordinator and agent into PREFIX/bin (default ~/.local/bin)
	$(CARGO) build --release --locked -p coordinator -p agent
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$(TARGET_DIR)/release/coordinator" "$(TARGET_DIR)/release/agent" "$(DESTDIR)$(PREFIX)/bin"
	@printf 'installed coordinator and agent in %s\n' "$(DESTDIR)$(PREFIX)/bin"

demo: build ## sweep a simulated engine on this machine and find its knee (about a minute)
	@DEMO_BIN="$(TARGET_DIR)/debug" .ci/demo.sh

# The end-to-end tests run the binaries beside each other, so those are built first.
test: setup export-readers $(if $(filter 1,$(REAL_ENGINE)),real-engine) build ## all tests, with the real llama.cpp (REAL_ENGINE=0: without)
	@$(if $(filter 1,$(REAL_ENGINE)),,printf 'the tests against the real engine are left out (REAL_ENGINE=0)\n')
	chromium=$$(.ci/setup.sh chromium); PLIMSOLL_EXPORT_READERS="$(EXPORT_READERS_DIR)" PLIMSOLL_CHROMIUM="$$chromium" \
		$(if $(filter 1,$(REAL_ENGINE)),PLIMSOLL_REAL_ENGINE="$(REAL_ENGINE_DIR)") $(CARGO) nextest run --workspace --locked
	$(CARGO) test --doc --workspace --locked
	@$(MAKE) --no-print-directory test-scripts

test-scripts:
	python3 -m unittest discover --start-directory .ci/peers --pattern '*_test.py'

proofs: setup-build ## hold the statistics against known queues, 1,000 seeds, and write docs/credibility.md (some minutes)
	$(CARGO) run --release --locked -p proofs -- --seeds 1000 --write docs/credibility.md

real-engine: setup-python ## set up llama.cpp and tiny models for the tests, in .real-engine/
	@tests/real_engine/setup.sh

export-readers: setup-python ## install what reads an export (DuckDB, pandas, polars) for its test, in .export-readers/
	@tests/exports/setup.sh

pictures: build ## make the pictures of the docs from a run against the simulated engine (needs Chromium, 2 minutes)
	@PICTURES_BIN="$(TARGET_DIR)/debug" docs/pictures/make.sh

test-engines: setup-build real-engine build ## a real vLLM and SGLang on the CPU, and a trained model: launched, swept, killed (7 GB, 20 minutes)
	@tests/real_engine/cpu_engines.sh
	PLIMSOLL_REAL_ENGINE="$(REAL_ENGINE_DIR)" PLIMSOLL_CPU_ENGINES="$(REAL_ENGINE_DIR)/cpu" \
		$(CARGO) nextest run -p plimsoll-tests --locked --no-capture --test cpu_engines

# Root only (network namespaces); else it says that it is skipped.
cluster-test: build ## six hosts of namespaces, every fault, KILLS random kills (10); writes docs/reliability.md (root, 10 minutes)
	"$(TARGET_DIR)/debug/cluster" --kills $(KILLS) --seed $(SEED) --jobs $(JOBS) --write docs/reliability.md

cluster-short: build ## the short part of cluster-test, with 3 random kills (root, about a minute)
	"$(TARGET_DIR)/debug/cluster" --short --kills 3 --seed $(SEED) --jobs 5

# Built apart: tasks get their seeds only with this flag, and optimised, for a seed is a million steps.
SEEDS ?= 10000
SIM_BUILD := RUSTFLAGS="--cfg tokio_unstable" $(CARGO) build --profile sim -p sim --locked
SIM_PROGRAM := "$(TARGET_DIR)/simulation/sim/sim"

sim-build: setup-build
	$(SIM_BUILD) --features sabotage --target-dir "$(TARGET_DIR)/simulation"

sim: sim-build ## a whole fleet in virtual time under faults, SEEDS seeds (10000); SIM="--from 7 --seeds 1 --story": one again
	$(SIM_PROGRAM) $(or $(SIM),--seeds $(SEEDS) --write docs/reliability.md)

sim-short: sim-build ## 200 seeds of it, and every sabotage noticed within 200 (a minute)
	$(SIM_PROGRAM) --seeds 200
	$(SIM_PROGRAM) --seeds 200 --sabotages

fuzz: setup-build ## give every reader of outside bytes to libFuzzer (FUZZ_SECONDS each, 20; needs a nightly compiler)
	@fuzz/run.sh $(FUZZ_SECONDS)

bench: setup-build ## measure what Plimsoll costs, and beside other clients where make peers-setup was (BENCH=stream: only that)
	@CARGO="$(CARGO)" .ci/bench.sh $(BENCH)

bench-quick: setup-build ## the same in a quick form, 3 minutes after the build
	@CARGO="$(CARGO)" BENCH_QUICK=1 .ci/bench.sh $(BENCH)

peers-setup: setup-python ## install the clients that Plimsoll is measured beside, in .bench-peers/ (3 GB, some minutes)
	@.ci/peers/setup.sh

bench-peers: setup-build ## only that: other clients, one engine, 12 minutes (PEERS="--only plimsoll,vllm", PEERS=--write: into the docs)
	@CARGO="$(CARGO)" .ci/bench.sh peers

lint: setup layout deny ## formatting, clippy, rustdoc, layout rules
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked

layout:
	python3 .ci/layout_test.py
	python3 .ci/layout.py

# Offline, it reads the crates of every platform: they are fetched first, by cargo as ever.
deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) fetch --locked --quiet; \
		$(CARGO) deny --offline --locked check bans licenses sources; \
	else \
		printf 'cargo-deny is not installed: licences, bans and sources are not checked (cargo install --locked cargo-deny, some minutes)\n'; \
	fi

ci: ## everything that must pass: setup, lint, tests, demo, with the time of each
	@MAKE="$(MAKE)" .ci/steps.sh setup lint test sim-short cluster-short demo

clean: ## remove what was built or installed here; results in plimsoll-data stay
	$(CARGO) clean
	rm -rf .real-engine .bench-peers .web-assets .export-readers
