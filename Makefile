# make help is the manual.
# Without stored bytecode each process compiles all tests and rewrites their asserts again.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
# SPARK=3.5 is another line of Spark, in an environment of its own.
VENV := .venv$(addprefix -,$(SPARK))
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help install jar wheel demo demo-opensearch demo-catalog test test-fast test-smoke test-more test-lines test-nightly test-all jars lint types structure soak bench bench-scale bench-peers docs release notebooks clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

install: $(BIN)/.installed jar  ## .venv with the pinned project and what its tests need; the jar

jar: $(BIN)/.installed  ## the jar of the installed Spark's line, if its sources have changed
	$(BIN)/python .ci/jars.py

CONSTRAINTS := .ci/constraints$(addprefix -,$(SPARK)).txt

$(BIN)/.installed: pyproject.toml $(CONSTRAINTS) .ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	awk -F== 'NR == FNR {own[$$1]; print; next} !($$1 in own)' \
	  $(CONSTRAINTS) .ci/constraints.txt > $(VENV)/constraints.txt
	$(BIN)/pip install --quiet -c $(VENV)/constraints.txt -e '.[test]'
	touch $@

demo: install  ## a year of flights: files opened with the index and without
	$(BIN)/python -m rewrite.demo

demo-opensearch: install  ## the same, with the index in an OpenSearch node of its own
	$(BIN)/python -m tests.opensearch $(BIN)/python -m rewrite.demo

demo-catalog: install  ## an Iceberg REST catalog with the planning service in front, until Ctrl-C
	$(BIN)/python -m tests.rest_catalog sh -c '$(BIN)/file-skipping catalog \
	  --upstream $$CATALOG --conf spark.skipping.store=sqlite:catalog-demo.sqlite'

NOTEBOOKS := $(wildcard notebooks/*.ipynb)

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Lint and types are about the sources: once is enough.
test: jars  ## lint, types, tests without a JVM, and one of each index type, format, store, join form
	$(MAKE) --jobs 3 --output-sync=target $(if $(SPARK),,lint types) test-fast

test-fast: jars
	$(PYTEST) --hypothesis-profile fast -m "(unit and not nightly or smoke) and not soak"

# Stores do not depend on the line of Spark.
test-smoke: jars  ## one test of each index type, format, store, join form; SPARK=3.5 is another line
	$(PYTEST) --hypothesis-profile fast -m "smoke and not soak" $(AGAIN) \
	  $(if $(SPARK),--ignore tests/skipping/stores)

test-lines:  ## these on each other line of Spark
	for line in 3.5 4.0 4.2; do $(MAKE) test-smoke SPARK=$$line || exit; done

test-more: jars  ## the other tests on Spark and OpenSearch; CI runs them after make test
	$(PYTEST) -m "not (unit or smoke or nightly or soak)" $(AGAIN)

ONLY := nightly or unit

# Properties of unit tests have 100 examples here, and 10 in `make test`.
test-nightly: jars  ## sessions, streams, commands, catalogs, documents, random queries; ONLY=spark is a part
	$(PYTEST) -m "(nightly or unit) and ($(ONLY)) and not (smoke or soak)"

test-all: test test-more test-nightly  ## everything but the soak

jars: $(BIN)/.jars  ## fetch what Spark needs, once, before several processes want it

$(BIN)/.jars: rewrite/jar_cache.py | jar
	cd $$(mktemp -d) && $(CURDIR)/$(BIN)/python -c 'import rewrite; \
	  from pyspark.sql import SparkSession; \
	  builder = SparkSession.builder.config("spark.jars.packages", "org.xerial:sqlite-jdbc:3.54.1.0"); \
	  rewrite.session(builder).stop()'
	touch $@

lint: install  ## ruff, import contracts, wording
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/wording.py

structure: install  ## the packages and what they import: levels, arrows, cycles
	$(BIN)/python .ci/structure.py

types: install  ## mypy, strict
	$(BIN)/mypy

soak: jars  ## what takes minutes: tests, joins with 50 million keys, MINUTES=15 of writes under a stream
	$(BIN)/python -m pytest --hypothesis-profile soak -m soak
	SKIPPING_TEST_QUERIES=100000 $(BIN)/python -m pytest tests/rewrite/test_join_property.py
	$(BIN)/python tests/rewrite/join_limits.py $$(mktemp -d) 50 64
	$(BIN)/python -m tests.soak $(or $(MINUTES),15)

$(BIN)/.benchmarks: $(BIN)/.installed
	$(BIN)/pip install --quiet -c $(VENV)/constraints.txt -e '.[test,bench]'
	touch $@

bench: $(BIN)/.benchmarks  ## benchmarks; they print tables and assert nothing about time
	$(BIN)/python -m tests.benchmarks.advice
	$(BIN)/python -m tests.benchmarks.automatic
	$(BIN)/python -m tests.benchmarks.bloom
	$(BIN)/python -m tests.benchmarks.build
	$(BIN)/python -m tests.benchmarks.busy
	$(BIN)/python -m tests.benchmarks.catalog
	$(BIN)/python -m tests.benchmarks.clustered
	$(BIN)/python -m tests.benchmarks.commands
	$(BIN)/python -m tests.benchmarks.commands upsert every --delay 30
	$(BIN)/python -m tests.benchmarks.delta_rs
	$(BIN)/python -m tests.benchmarks.literals
	$(BIN)/python -m tests.benchmarks.no_index
	$(BIN)/python -m tests.benchmarks.one_key
	$(BIN)/python -m tests.benchmarks.planning
	$(BIN)/python -m tests.benchmarks.first_query
	$(BIN)/python -m tests.benchmarks.folder
	$(BIN)/python -m tests.benchmarks.forms
	$(BIN)/python -m tests.benchmarks.refresh
	$(BIN)/python -m tests.benchmarks.row_groups
	$(BIN)/python -m tests.benchmarks.star_join
	$(BIN)/python -m tests.benchmarks.start
	$(BIN)/python -m tests.benchmarks.stores
	$(BIN)/python -m tests.benchmarks.tpc tpcds
	$(BIN)/python -m tests.benchmarks.tpc tpch
	$(BIN)/python -m tests.benchmarks.writers

bench-scale: $(BIN)/.benchmarks  ## 1,000 to 1,000,000 files: time, memory and bytes in each store, and how they grow
	$(BIN)/python -m tests.benchmarks.scale

$(BIN)/.peers: $(BIN)/.installed
	$(BIN)/pip install --quiet -c $(VENV)/constraints.txt -e '.[test,peers]'
	touch $@

bench-peers: $(BIN)/.peers  ## a join in Spark, DuckDB, Polars, delta-rs and DataFusion, on the same files
	$(BIN)/python -m tests.benchmarks.peers

$(BIN)/.docs: $(BIN)/.installed
	$(BIN)/pip install --quiet -c $(VENV)/constraints.txt -e '.[test,docs]'
	touch $@

docs: $(BIN)/.docs  ## the pages and notebooks as a site, in build/site/VERSION/
	$(BIN)/python docs/stage.py build
	$(BIN)/jupyter-nbconvert --log-level WARN --to markdown --output-dir build/pages/notebooks $(NOTEBOOKS)
	$(BIN)/zensical build --config-file build/mkdocs.yml --clean --strict
	$(BIN)/python docs/stage.py build --publish

wheel: install  ## sdist and wheel with the jars of all Spark lines, in dist/
	$(BIN)/python .ci/jars.py --all
	$(BIN)/python -m build --no-isolation

release: install  ## VERSION=0.1.0: set, build from a clone, try, and put into dist/ or an INDEX=folder
	$(BIN)/python .ci/release.py $(VERSION) $(if $(INDEX),--index $(INDEX))

notebooks: install  ## run the notebooks, and update their outputs
	UPDATE_NOTEBOOKS=1 $(BIN)/python -m pytest tests/test_notebooks.py -k prints

clean:  ## remove what was made here
	rm -rf .venv .data build dist .cache rewrite/jars *.egg-info .mypy_cache .ruff_cache .pytest_cache
