# Two commands do everything: `make serve` and `make test`. Both set up .venv first.

PYTHON ?= $(shell command -v python3.11 >/dev/null 2>&1 && python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt pyproject.toml $(wildcard native/* native/*/*)
ARGS ?=

.PHONY: serve test venv dev check docs clean clients soak

serve: venv ## serve the embedded model (ARGS="MODEL --port 9000" for another)
	$(BIN)/headrace serve $(ARGS)

test: dev check ## static checks, then every test
	$(BIN)/python -m pytest $(ARGS)

venv: $(VENV)/.installed

dev: $(VENV)/.dev

$(BIN)/python:
	@sh tools/check_system.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

# An editable install: Python sources are used where they lie, native ones are compiled here.
$(VENV)/.installed: $(BIN)/python $(NATIVE)
	@sh tools/check_system.sh $(PYTHON)
	@echo "compiling the kernels and installing headrace in $(VENV) (about a minute)"
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install -q --group dev
	@touch $@

clients: ## the client packages that the tours in tests/clients need, in .venv-clients
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install -q --only-binary :all: -r tests/clients/requirements.txt

soak: dev ## ten minutes under everything at once (ARGS="--seconds 60" for less)
	$(BIN)/python -m tools.soak $(ARGS)

check: dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: dev ## write the generated pages again
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python -m tools.draw_house

clean: ## forget builds and the virtual environment
	rm -rf $(VENV) build dist
