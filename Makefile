# Two commands do everything: `make serve` and `make test`. Both set up .venv first.

PYTHON ?= $(shell command -v python3.11 >/dev/null 2>&1 && python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt pyproject.toml $(wildcard native/* native/*/*)
ARGS ?=
# Tests start hundreds of Python processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# A file's tests stay in one process, so that they share what is made once for it.
SPREAD ?= --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
# The longer tier waits more: one process more than there are cores.
SPREAD_REST ?= --numprocesses=$(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4))) --dist=loadfile --no-loadscope-reorder

.PHONY: serve test test-rest test-all venv dev check docs clean clients compress soak soak-gateway models wheel

serve: venv ## serve the embedded model (ARGS="MODEL --port 9000" for another)
	$(BIN)/headrace serve $(ARGS)

test: dev ## the tests of five minutes, with the static checks beside them
	@sh tools/run_tests.sh $(BIN) --tier=quick $(SPREAD) $(ARGS)

test-rest: dev ## the tests that `make test` leaves out
	$(BIN)/python -m pytest --tier=rest $(SPREAD_REST) $(ARGS)

test-all: test test-rest ## every test

venv: $(VENV)/.installed

dev: $(VENV)/.dev

$(BIN)/python:
	@sh tools/check_system.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

# An editable install: Python sources are used where they lie, native ones are compiled here.
$(VENV)/.installed: $(BIN)/python $(NATIVE)
	@sh tools/check_system.sh $(PYTHON)
	@echo "compiling the kernels and installing headrace in $(VENV) (one to three minutes; nothing is printed meanwhile)"
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install -q --group dev
	@touch $@

clients: ## the client packages that the tours in tests/clients need, in .venv-clients
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install -q --no-compile --only-binary :all: --no-binary sqlitedict,rouge-score,word2number \
	  -r tests/clients/requirements.txt

compress: ## llm-compressor with PyTorch, that the tests in tests/weights/compress need, in .venv-compress
	$(PYTHON) -m venv .venv-compress
	.venv-compress/bin/python -m pip install -q --no-compile torch==2.13.0
	.venv-compress/bin/python -m pip install -q --no-compile 'llmcompressor>=0.14'

.venv-train/.installed: $(NATIVE)
	@sh tools/check_system.sh $(PYTHON)
	$(PYTHON) -m venv .venv-train
	@.venv-train/bin/python -m pip install -q --upgrade pip
	@echo "installing PyTorch in .venv-train, once (minutes)" >&2
	.venv-train/bin/python -m pip install -q torch==2.13.0 safetensors -e .
	@touch $@

models: .venv-train/.installed ## train the family of small models, hours (ARGS="--dry-run" shows the plan)
	@.venv-train/bin/python -m training.family $(ARGS)

.venv-wheel/.installed: pyproject.toml
	@sh tools/check_system.sh $(PYTHON)
	$(PYTHON) -m venv .venv-wheel
	@.venv-wheel/bin/python -m pip install -q --upgrade pip
	.venv-wheel/bin/python -m pip install -q --group wheel
	@touch $@

# Beside the editable install, whose module is linked in another way, in a folder of its own.
wheel: .venv-wheel/.installed ## a wheel of this machine with every level inside, in dist, for machines without a compiler
	rm -rf build/wheel-built
	PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" .venv-wheel/bin/python -m build --wheel --no-isolation --outdir build/wheel-built \
	  -Cbuild-dir=build/wheel -Ccmake.define.HEADRACE_STATIC_LIBSTDCXX=ON .
	.venv-wheel/bin/python tools/check_level_objects.py build/wheel
	.venv-wheel/bin/python tools/repair_wheel.py build/wheel-built/*.whl --into dist

soak: dev ## ten minutes under everything at once (ARGS="--seconds 60" for less)
	$(BIN)/python -m tools.soak $(ARGS)

soak-gateway: dev ## twelve hours of traffic in twenty minutes (ARGS="--seconds 60" for less)
	$(BIN)/python -m tools.soak_gateway $(ARGS)

check: dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: dev ## write the generated pages again
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python -m tools.draw_house

clean: ## forget builds and the virtual environment; what make models made stays
	rm -rf $(VENV) dist
	if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name 'train*' -exec rm -rf {} +; fi
