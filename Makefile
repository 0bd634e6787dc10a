# What a person, and CI, calls. Needs Rust; `setup` brings or names the rest.

SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)
ISLE := $(TARGET)/debug/isle

.PHONY: help
help:
	@echo "make test    everything: unit and end-to-end tests, MCP conformance, the HTTP schema, the docs"
	@echo "make lint    formatting, clippy with warnings as errors, dependencies, phrases, traceability"
	@echo "make setup   what the tests need besides Rust: installs it as root, names it otherwise"
	@echo "make fuzz    instrumented fuzzing of what reads strangers' bytes: TARGET=name SECONDS=number"
	@echo "make containment   attack every tier and write the table of docs/operate/containment.md"
	@echo "make soak    everything at random while things go wrong; SEED=… MINUTES=…"
	@echo "make test-v2 the end-to-end tests in an emulated machine with cgroup v2 (root, QEMU; many minutes)"
	@echo "make bench   speed beside other sandboxes on this machine"

.PHONY: setup
setup:
	tests/setup.sh

.PHONY: test
test: setup
	tests/all.sh $(TARGET)

# ISLE_NO_SKIP=1 make test: on a machine that has everything, a skipped test is a failed one.
.PHONY: rust-tests
rust-tests:
	tests/all.sh $(TARGET) rust leaks

# Attacks plain processes, other sandboxes and every tier, as root and as an ordinary user.
.PHONY: containment
containment: setup
	tests/containment.sh $(ISLE)
# A short one is among the tests; the same seed does the same operations.
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
MINUTES ?= 10
.PHONY: soak
soak:
	ISLE_SOAK_SEED=$(SEED) ISLE_SOAK_MINUTES=$(MINUTES) cargo test -p isle --test soak -- --nocapture a_random_mix

# More of it: make test-v2 V2=full
.PHONY: test-v2
test-v2:
	tests/v2/run.sh $(TARGET)/v2 $(V2)

.PHONY: lint
lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	tests/walls.sh
	tests/deny.sh
	tests/words.py
	tests/traceability.py --check

# One target or all of them, each for so long: make fuzz TARGET=wire SECONDS=600
.PHONY: fuzz
fuzz:
	fuzz/run.sh $(if $(filter command,$(origin TARGET)),$(TARGET),all) $(or $(SECONDS),30)

# More or less of it: make bench BENCH="--full --json bench.json"
.PHONY: bench
bench:
	cargo build --release -p isle -p isle-bench
	$(TARGET)/release/isle-bench $(TARGET)/release/isle $(BENCH)
