# Needs Python 3.11 or newer with venv (Debian: apt-get install make python3-venv), and nothing else. With bubblewrap and
# strace (Debian: apt-get install bubblewrap strace) the tests of sandboxed commands are executed, not skipped.
# Another Python, beside the first: make PYTHON=python3.13 VENV=.venv313 test
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/ready
PIP = $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help setup demo test check cases bench bench-check soak soak-traffic lock clean

# How many minutes of traffic `make soak` and `make soak-traffic` take.
SOAK_MINUTES ?= 10

# `make bench --check` works as it is typed, though not by design: GNU make takes --check for the only long option of
# its own that begins so, --check-symlink-times, and says L. `make bench CHECK=1` is the same without that.
CHECK ?= $(findstring L,$(firstword -$(MAKEFLAGS)))

help:
	@sed -n 's/^## //p' Makefile

## make demo    a real workflow over real files, killed in the middle and started again (DIR=..., default: this repository)
demo: setup
	$(BIN)/python examples/demo.py $(if $(DIR),"$(DIR)")

## make test    the tests (ARGS="-k store" chooses)
test: setup
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile $(ARGS)

## make check   style, types by both checkers, and the direction of imports
check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy --python-executable $(BIN)/python
	.ci/types $(BIN)

## make cases   every behaviour case: its id, its host, its result, and those that wait, with the reason
cases: setup
	$(BIN)/python -m tests.cases

## make bench   the benchmarks, each against a floor measured beside it; with CHECK=1 or --check it is bench-check
bench: $(if $(CHECK),bench-check,bench-all)

.PHONY: bench-all
bench-all: setup
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/workflow.py
	$(BIN)/python benchmarks/reads.py
	$(BIN)/python benchmarks/waiters.py
	$(BIN)/python benchmarks/wakes.py

## make bench-check   every budget three times in a row, in one table; fails if one is missed (ARGS="--only hot")
bench-check: setup
	$(BIN)/python benchmarks/check.py $(ARGS)

## make soak    the crash and property tests again, longer, and soak-traffic
soak: setup
	STEPWELL_SOAK=1 $(BIN)/python -m pytest -q $(ARGS)
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES)

## make soak-traffic   only ten minutes of traffic (SOAK_MINUTES=10): fails if the file, memory or latency grows
soak-traffic: setup
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES)

## make setup   the virtual environment; every target above does it when it is stale
setup: $(READY) .dev/stepwell/__init__.py

$(READY): pyproject.toml .ci/requirements.txt .ci/link_tree.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --require-hashes -r .ci/requirements.txt
	$(PIP) install -q --no-deps --no-build-isolation -e .
	touch $@

# The install makes it; this is for when someone has removed it since.
.dev/stepwell/__init__.py: | $(READY)
	$(BIN)/python .ci/link_tree.py

## make lock    .ci/requirements.txt again, from pyproject.toml
lock: setup
	$(PIP) install -q uv
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header -q -o .ci/requirements.txt

## make clean   remove all that the targets above have made
clean:
	rm -rf $(VENV) .dev build dist demo-out .bench .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
