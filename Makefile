# `make demo` and `make test` work as the first command in a fresh clone: they set up .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WORKERS ?= auto
QUICK   := not slow and not browser and not faults and not processes and not gpu and not notebooks

# tests start some forty processes; without compiled files each would compile the package anew
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-processes test-gpu test-faults test-browser notebooks test-notebooks coverage lint docs docs-clean bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## create .venv and install torchperc with its tools

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "torchperc needs Python 3.10 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "creating $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "installing torchperc and its tools into $(VENV) (once; a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## AND by rule and by gradient, side by side; then XOR, which no line separates
	@$(BIN)/torchperc demo

test: $(READY)  ## the test suite: unit, property, oracle and documentation tests
	$(BIN)/python -m pytest -n $(WORKERS) -m '$(QUICK)'

test-slow: $(READY)  ## the tests of several seconds each, and of whole programs
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

test-gpu: $(READY)  ## the GPU tests: on CUDA where there is one, on a device that pretends to be one, and Triton's interpreter
	$(BIN)/python -m pytest -n $(WORKERS) -m 'gpu and not slow' tests

test-processes: $(READY)  ## several processes: DDP, launchers, the distributed rule, kills and resuming
	$(BIN)/python -m pytest -m 'processes and not slow' tests

test-faults: $(READY)  ## the fault campaign: kills, damaged files, bad input, long lives; SUMMARY=FILE writes its table
	$(if $(SUMMARY),TORCHPERC_FAULTS_SUMMARY=$(abspath $(SUMMARY))) $(BIN)/python -m pytest -m faults tests

test-browser: $(READY)  ## TensorBoard, reports and the page of `torchperc play` in a headless Chromium, which is installed if it is not there (Debian, as root)
	@command -v chromium >/dev/null || { echo "installing Chromium ..."; apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/python -m pytest -m browser tests

notebooks: $(READY)  ## run the notebooks and keep their outputs
	$(BIN)/python tests/notebook_runs.py

test-notebooks: $(READY)  ## the notebooks run, and their kept outputs are those of a run now
	$(BIN)/python -m pytest -n $(WORKERS) -m notebooks tests/test_notebooks.py

coverage: $(READY)  ## the test suite with coverage: a table, and htmlcov/index.html
	$(BIN)/python -m pytest -n $(WORKERS) -m '$(QUICK)' --cov --cov-report=term --cov-report=html

lint: $(READY)  ## ruff and mypy (strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# what pages and gallery show comes from running the package: when it changes, all of it runs again
docs/_build/.current: $(shell find torchperc experiments -type f -not -path '*/__pycache__/*')
	rm -rf docs/_build docs/gallery docs/notebooks
	mkdir -p docs/_build
	touch $@

docs: $(READY) docs/_build/.current  ## the documentation site in docs/_build/html: every example runs, every warning is an error
	$(BIN)/python -m sphinx -b html -W --keep-going -n -j $(WORKERS) docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html

docs-clean:  ## remove the site and what its examples left, so that `make docs` runs everything anew
	rm -rf docs/_build docs/gallery docs/notebooks

bench: $(READY)  ## how fast, as ratios against peers measured in the same run; then a kernel, a file of 4 GB, and reading text
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	$(BIN)/torchperc bench
	$(BIN)/python experiments/benchmarks/kernel.py
	$(BIN)/python experiments/benchmarks/larger_than_memory.py
	$(BIN)/python experiments/benchmarks/reading.py

clean: docs-clean  ## remove .venv, caches, runs and the documentation site
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* htmlcov build dist *.egg-info runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
