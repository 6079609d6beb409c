# Commands for development. Each one creates what it needs: a virtual environment in .venv, and Java, Maven and Azurite
# where it may install them.

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
PACKAGES := cdc_core $(wildcard */*/src)

# Processes share the tests by file. When one dies, for example because a test hangs, the run stops.
PYTEST := $(PYTHON) -m pytest --dist loadfile --no-loadscope-reorder --max-worker-restart 0
SERVERS := $(READY) maven azurite spark-archive

# Images of Python often set it, and then each of the many processes of the tests compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo demo-kafka test test-slow test-all costs sabotage nemesis storm bench lint docs outside release java maven azurite deploy-tools spark-archive clean

# The command `cdc` with every plugin in .venv/bin.
install: $(READY) java

# With STAY=yes it goes on until Ctrl-C.
demo: $(READY) java
	$(PYTHON) -m cdc_core demo postgres --directory build/demo $(if $(STAY),--stay)

demo-kafka: $(READY) maven
	$(PYTHON) -m cdc_core demo kafka --directory build/demo-kafka $(if $(STAY),--stay)

# Everything except the tests marked `slow`: eight minutes on two cores. Many of them wait, so three processes
# share them.
# With COSTS=yes it prints the files that took the most processor time.
test: $(SERVERS)
	$(PYTEST) -n 3 -m "not slow" $(if $(COSTS),--costs)

# The tests marked `slow` only, likewise.
test-slow: $(SERVERS) deploy-tools
	$(PYTEST) -n 3 -m slow

test-all: $(SERVERS) deploy-tools
	$(PYTEST) -n 2

# Compares what the last runs of the tests took with the budgets of the files.
costs: $(READY)
	@PYTHONPATH=tests $(PYTHON) -m cdc_testing.budgets

# Breaks each promise of the conformance kit once. Exactly the test of that promise must fail.
sabotage: $(READY)
	$(PYTHON) -m cdc_conformance.sabotage

# Plays seeded histories through the engine; no new one starts after MINUTES. Then plays histories with faults injected
# into the engine, each of which must be found. BUG=NAME plays the seeds with that fault only.
SEEDS := 20
MINUTES := 10
NEMESIS := $(PYTHON) tests/nemesis/run.py --minutes $(MINUTES) --directory build/nemesis

nemesis: $(READY) maven
	$(NEMESIS) --seeds $(SEEDS) $(if $(BUG),--bug $(BUG))
	$(if $(BUG),,$(NEMESIS) --bug all)

# Freezes, kills and drains nodes that run jobs under load for MINUTES, then compares what each job has delivered.
SEED := 1

storm: $(READY) maven
	$(PYTHON) tests/jobs/storm.py --seed $(SEED) --minutes $(MINUTES)

bench: $(READY) maven
	$(PYTHON) tests/benchmarks/run.py

lint: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy $(PACKAGES)

# A broken link, an unresolved reference or a page that nothing leads to is an error.
docs: $(READY)
	rm -rf build/site
	$(PYTHON) -m sphinx -q -W -b html -c docs/site -d build/site-doctrees -E . build/site
	@echo "The site is in build/site/index.html"

# What a release would upload, and what a user and the author of a plugin do with it: with the versions that are newest,
# the lowest ones, and newer versions of Python.
outside: $(READY) java
	$(PYTHON) .ci/check_wheels.py
	$(PYTHON) .ci/release.py rehearse
	$(PYTHON) .ci/check_outside.py
	$(PYTHON) .ci/check_floors.py
	$(PYTHON) .ci/check_pythons.py

# Checks a tagged commit, and builds in build/release what it uploads.
release: $(READY)
	$(PYTHON) .ci/release.py build

java:
	@.ci/java

maven:
	@.ci/java maven

azurite:
	@.ci/azurite >/dev/null

# Helm and the schemas that check deploy/.
deploy-tools: $(READY)
	@.ci/deploy-tools >/dev/null

# Cuts the time of each start of Spark in the tests by a third. The tests work without it.
spark-archive: $(READY) java
	-@PYTHONPATH=tests $(PYTHON) -m cdc_testing.spark_archive

$(READY): requirements-dev.txt pyproject.toml $(wildcard */*/pyproject.toml)
	@.ci/venv $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) build
