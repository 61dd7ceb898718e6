# `make demo` and `make test` set up .venv by themselves, and again when pyproject.toml changes.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test lint clean

demo: $(VENV)/cli
	@$(BIN)/rillet demo

test: $(VENV)/test
	@$(BIN)/python -m pytest -n 2

lint: $(VENV)/dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

$(VENV)/pyvenv.cfg: pyproject.toml
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv --clear $(VENV)

# One stamp for each extra.
$(VENV)/cli $(VENV)/test $(VENV)/dev: $(VENV)/pyvenv.cfg
	@echo "Installing rillet[$(@F)] into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(@F)]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info
