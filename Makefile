# Every target makes what it needs. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The site is made from sources alone: its tools need nothing of .venv.
DOCS   := .venv-docs

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long soak classes test-servers quick fuzz hostile check docs pictures web bench sim tpc mutants chaos lock clean
# make sim SEEDS=1 FROM=137
SEEDS  ?= 200
FROM   ?= 1
# make test WORKERS=1: one test after another. Tests of clusters use a third of a core, as they wait for processes, heartbeats
# and restarts, so four workers keep two cores busy for 73 % of the time. With six a Python process that Spark starts
# took longer than the 10 s that Spark waits for it. Each worker takes up to 3 GB.
WORKERS ?= 4
# make tpc SCALE=1
SCALE  ?= 0.1
# make fuzz QUERIES=5000 FROM=1001
QUERIES ?= 2000
# make chaos FAULTS=40
FAULTS ?= 200

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv with everything Penstock needs

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Penstock needs Python 3.11 or newer, got {v[0]}.{v[1]} ($(PYTHON)). Set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	-$(BIN)/python -m penstock.native
	@touch $@

demo: $(STAMP) ## run the main job on a cluster of its own: 328,521 real flights
	$(BIN)/python -m examples.flights.demo

# The tests start thousands of Python processes, each of which would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Temporary files lie in memory where there is plenty: on a disk the tests wait for fsync and unlink.
TMPDIR ?= $(shell test -w /dev/shm && test $$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}') -ge 8388608 && echo /dev/shm || echo /tmp)

# tests/ordering.py says which tests come first and which stay in one worker.
CLASSES := $(BIN)/python -m penstock.spark.archive_classes || echo "Without an archive of its classes Spark starts more slowly."
PYTEST = TMPDIR=$(TMPDIR) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# In a fresh clone each worker would compile every test for itself: 25 s of CPU time in place of 10. Two do it for all.
COMPILED := test -d tests/sql/__pycache__ || ls -d tests/*/ | xargs -n 22 -P 2 $(BIN)/python -m pytest -q --collect-only > /dev/null
# The archive of Spark's classes is made meanwhile, and while the pure tests run: making it keeps one core busy for a minute.
test: $(STAMP) ## run all tests (real servers) but the repetitions of test-long and soak
	@$(CLASSES) & classes=$$!; $(COMPILED); $(PYTEST) -m "not long and not soak"; status=$$?; wait $$classes; exit $$status

test-long: $(STAMP) ## run the repetitions that CI runs too: what a cheaper test of make test proves (tests/long.py)
	$(PYTEST) -m "long and not soak"

# The tests start some 30 Sparks.
classes: $(STAMP)
	@$(CLASSES)

soak: $(STAMP) ## repeat tests with other numbers, which make test leaves out: more parallelisms, more examples
	$(PYTEST) -m soak

test-servers: $(STAMP) ## fetch the servers that some tests use (Kafka, OpenSearch, a schema registry, Iceberg's REST catalog: needs Maven and Java; PostgreSQL, MariaDB, Mosquitto, RabbitMQ: need Debian and root; MySQL: Debian; Azurite: npm; MinIO: Go)
	$(BIN)/python -m tests.servers

# make hostile MINUTES=10 SEED=7
MINUTES ?= 60
SEED ?= 1
hostile: $(STAMP) ## random, truncated, deep, huge and hostile messages on REST and on the bus of a real cluster: MINUTES=60 SEED=1
	$(BIN)/python -m tests.hostile --minutes $(MINUTES) --seed $(SEED)

# Pure cores: no servers, no Spark.
QUICK := columnar formats functions jobgraph messages operators plan services snapshots store types
quick: $(STAMP) ## run the tests of the pure cores (no servers, no Spark)
	$(PYTEST) -m "not cluster and not slow and not long and not soak" $(QUICK:%=tests/%)

fuzz: $(STAMP) ## random queries on both engines against DuckDB, then new examples for the tests of random data: QUERIES=2000 FROM=1
	$(BIN)/python -m tests.fuzz --queries $(QUERIES) --from $(FROM) --jobs $(WORKERS) --spark
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=fuzz

check: $(STAMP) ## lint, format, strict types, layers, dead code, names and links in the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m tests.dead_code
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_docs.py tests/test_docs_names.py tests/test_log_events.py tests/test_configuration_doc.py

docs: $(DOCS)/.installed ## make the documentation as a site, in out/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

pictures: $(STAMP) $(DOCS)/.installed ## draw what comes out of the small examples: docs/examples/*.svg
	$(BIN)/python -m examples.pictures rows out/pictures
	$(DOCS)/bin/python examples/pictures.py draw out/pictures

$(DOCS)/.installed: docs/requirements.lock
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
	@touch $@

# Built in a copy, so that no packages of npm lie among the services.
WEB := services/dispatcher/web
web: $(STAMP) ## make the dashboard anew from services/dispatcher/web (needs Node 20 or newer)
	rm -rf out/web/src && mkdir -p out/web && cp -r $(WEB)/. out/web
	$(BIN)/python -m penstock_services.dispatcher.rest --openapi > out/web/openapi.json
	cd out/web && npm ci --ignore-scripts && npm run types && npm test && PENSTOCK_STATIC=static npm run build
	cp out/web/src/api/schema.ts $(WEB)/src/api/schema.ts
	rm -rf services/dispatcher/static && cp -r out/web/static services/dispatcher/static

bench: $(STAMP) ## run the benchmarks (see bench/README.md)
	$(BIN)/python -m bench

tpc: $(STAMP) ## run the queries of TPC-H and TPC-DS on both engines, against DuckDB (Python 3.11): SCALE=0.1
	$(BIN)/python -m tests.tpc --scale $(SCALE) --docs

sim: $(STAMP) ## simulate the whole cluster in virtual time: SEEDS=200 FROM=1
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --from $(FROM)

mutants: $(STAMP) ## plant bugs one by one: the simulation and the planner's tests must find each
	$(BIN)/python -m tests.plan.mutants
	$(BIN)/python -m tests.simulation.mutants

chaos: $(STAMP) ## kill, stop and cut off a real cluster's processes: FAULTS=200 (root, for the network)
	$(BIN)/python -m tests.chaos --faults $(FAULTS)

# Extras of the image of deploy/, which has every connector.
EXTRAS := avro delta faker iceberg kafka mqtt mysql nkeys oidc otel postgres postgres-cdc protobuf rabbitmq sandbox spark
LOCK := uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --quiet
lock: ## pin all dependencies anew (needs uv on the PATH)
	$(LOCK) --all-extras pyproject.toml -o requirements.lock
	$(LOCK) $(EXTRAS:%=--extra %) -c requirements.lock pyproject.toml -o deploy/requirements.lock
	$(LOCK) --group docs -o docs/requirements.lock

clean: ## remove the environment, caches and results
	rm -rf $(VENV) $(DOCS) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
