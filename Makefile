# `make run` and `make test` set up all they need on a fresh machine (Python 3.11+, make, gcc).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SEEDS ?=
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)
INTERPRETED := PYTHONPATH=src:spark/src SHARDBUS_EXPECT_COMPILED=0
COMPILED := SHARDBUS_EXPECT_COMPILED=1
PIN := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make pin' --quiet
CHECKED := src tests $(wildcard bench) spark setup.py
INTERPRETED_TESTS := $(wildcard tests/unit tests/model tests/stores)
JS := tests/conformance/js

package_files = $(shell find $(1) -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' | LC_ALL=C sort)

.PHONY: help build run test check fmt unit model stores sim conformance backlog bench bench-peers mutants \
	docs pin clean node FORCE

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 16

build: $(VENV)/.shardbus $(VENV)/.spark  ## make .venv with everything in it, compiled

run: build  ## build and serve: make run ARGS="--tier premium"
	exec $(BIN)/shardbus serve $(ARGS)

test: build node check  ## build and run every check and test, compiled and then interpreted
	$(COMPILED) $(PYTEST) tests spark/tests
	$(INTERPRETED) $(PYTEST) $(INTERPRETED_TESTS)

check: $(VENV)/.requirements  ## formatting, lint, types, who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CHECKED)
	PYTHONPATH=src:spark/src $(BIN)/lint-imports --no-cache

fmt: $(VENV)/.requirements  ## format and mend what ruff can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

unit: build  ## examples, rules about the source and the documents
	$(COMPILED) $(PYTEST) tests/unit tests/tidy tests/docs spark/tests

model: build  ## Hypothesis machines against the simplest model
	$(COMPILED) $(PYTEST) tests/model

stores: build  ## one contract suite over every store
	$(COMPILED) $(PYTEST) tests/stores

sim: build  ## the simulator: make sim SEEDS=1-500
	$(COMPILED) $(if $(SEEDS),SEEDS=$(SEEDS)) $(PYTEST) tests/simulation

conformance: build node  ## a real process against the real SDKs
	$(COMPILED) $(PYTEST) tests/conformance

backlog: build  ## two million waiting messages: memory and start-up
	$(COMPILED) SHARDBUS_BACKLOG=2000000 $(PYTEST) tests/durability/test_backlog.py

bench: build  ## measure, print ratios, keep the results as JSON
	$(BIN)/python -m bench $(ARGS)

bench-peers:  ## install the peer that `make bench` compares with (Debian, root)
	@command -v rabbitmq-server >/dev/null || [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || $(call apt_install,rabbitmq-server)

mutants: build  ## plant known bugs one by one; every one must be caught
	$(BIN)/python -m tests.mutants $(ARGS)

docs: $(VENV)/.shardbus  ## write the generated reference pages
	PYTHONPATH=src $(BIN)/python -m tests.docs.pages

pin: $(VENV)/.requirements  ## resolve requirements/*.in to exact versions and hashes
	cd requirements && for name in dev runtime build; do \
		../$(PIN) --upgrade $$([ $$name = dev ] || echo -c dev.txt) $$name.in -o $$name.txt; done

clean:  ## remove everything that make and the tools made
	rm -rf $(VENV) build spark/build src/*.egg-info spark/src/*.egg-info $(JS)/node_modules \
		.mypy_cache .ruff_cache .pytest_cache .hypothesis

apt_install = { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	|| { echo "please install $(1) (only root on Debian gets it by itself)" >&2; exit 1; }; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1); }

node: $(JS)/node_modules/.package-lock.json

$(JS)/node_modules/.package-lock.json: $(JS)/package-lock.json
	@command -v npm >/dev/null && command -v node >/dev/null || $(call apt_install,nodejs npm)
	cd $(JS) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Shardbus needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.requirements: requirements/dev.txt | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	rm -rf build
	@touch $@

# The list is a prerequisite of its own, so that a deleted module leaves the install too.
$(VENV)/.sources: FORCE | $(VENV)/.made
	@printf '%s\n' $(call package_files,src spark/src) | cmp -s - $@ \
		|| printf '%s\n' $(call package_files,src spark/src) > $@

install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
	--no-deps --no-index --force-reinstall

# build/lib* would carry modules that are gone from src into the wheel.
$(VENV)/.shardbus: $(VENV)/.requirements $(VENV)/.sources setup.py pyproject.toml $(call package_files,src)
	rm -rf build/lib* build/bdist*
	MYPY_CACHE_DIR=build/mypy $(install) .
	@touch $@

$(VENV)/.spark: $(VENV)/.requirements $(VENV)/.sources spark/pyproject.toml $(call package_files,spark/src)
	rm -rf spark/build
	$(install) ./spark
	@touch $@
