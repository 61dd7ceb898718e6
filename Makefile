# `make demo` and `make test` set up .venv by themselves, and again when pyproject.toml changes.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

BENCH_VENV ?= .venv-bench

.PHONY: demo test lint bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/cli
	@$(BIN)/rillet demo

# Three at a time even on two cores, since some tests only wait.
test: $(VENV)/test
	@$(BIN)/python -m pytest -n 3

lint: $(VENV)/dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# Everything beside the peers, in about ten minutes; QUICK=1 for a smoke run.
bench: $(BENCH_VENV)/ready
	@$(BENCH_VENV)/bin/python benchmarks/run.py $(if $(QUICK),--quick)

$(BENCH_VENV)/ready: pyproject.toml benchmarks/node/package.json
	@$(PYTHON) benchmarks/environment.py $(BENCH_VENV)
	@touch $@

$(VENV)/pyvenv.cfg: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Rillet needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv --clear $(VENV)

# One stamp for each extra.
$(VENV)/cli $(VENV)/test $(VENV)/dev: $(VENV)/pyvenv.cfg
	@echo "Installing rillet[$(@F)] into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(@F)]'
	@touch $@

clean:
	rm -rf $(VENV) $(BENCH_VENV) benchmarks/node/node_modules build *.egg-info
