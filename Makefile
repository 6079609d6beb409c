# The README's commands. Each sets up what it needs: a virtual environment in .venv, and Java and Maven where it may
# install them.

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
PACKAGES := cdc_core $(wildcard */*/src)

# A run of Spark mostly waits, for itself or for a file. The slow files come first, each is one process's business, and
# a process that dies (a test that hangs ends its own) ends all.
TWO_AT_A_TIME := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: demo demo-kafka test sabotage nemesis bench lint java maven azurite spark-archive clean

demo: $(READY) java
	$(PYTHON) -m cdc_core demo postgres --directory build/demo

demo-kafka: $(READY) maven
	$(PYTHON) -m cdc_core demo kafka --directory build/demo-kafka

test: $(READY) maven azurite spark-archive
	$(PYTHON) -m pytest $(TWO_AT_A_TIME)

# Every promise of the conformance kit broken once: each saboteur must fail its own test and no other.
sabotage: $(READY)
	$(PYTHON) -m cdc_conformance.sabotage

# Seeded histories through the engine, none begun after so many minutes; then the same with mistakes put into the engine,
# each of which must be found. BUG=NAME plays the seeds with one mistake only.
SEEDS := 20
MINUTES := 10
NEMESIS := $(PYTHON) tests/nemesis/run.py --minutes $(MINUTES) --directory build/nemesis

nemesis: $(READY) maven
	$(NEMESIS) --seeds $(SEEDS) $(if $(BUG),--bug $(BUG))
	$(if $(BUG),,$(NEMESIS) --bug all)

bench: $(READY) maven
	$(PYTHON) tests/benchmarks/run.py

lint: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy $(PACKAGES)

java:
	@.ci/java

maven:
	@.ci/java maven

azurite:
	@.ci/azurite >/dev/null

# Lets each start of Spark in the tests take two thirds of the time; they do without it as well.
spark-archive: $(READY) java
	-@PYTHONPATH=tests $(PYTHON) -m cdc_testing.spark_archive

$(READY): requirements-dev.txt pyproject.toml $(wildcard */*/pyproject.toml)
	@.ci/venv $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) build
