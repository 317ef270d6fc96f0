# `make demo` and `make test` work as the first command in a fresh clone: each target installs what it needs into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WORKERS ?= auto
REST   := slow or processes or browser or gpu or faults

# tests start some forty processes; without compiled files each would compile the package anew
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-all test-faults notebooks coverage lint docs docs-clean bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)-lint $(READY)-test-all $(READY)-docs  ## install the tools of all targets but bench at once

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "torchperc needs Python 3.10 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# .venv/.ready-test: the extra `test` of pyproject.toml is installed
$(READY)-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing torchperc[$*] into $(VENV): one to three minutes, once; pip writes to $(VENV)/install-$*.log ..."
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$*]' >$(VENV)/install-$*.log 2>&1 || { tail -n 20 $(VENV)/install-$*.log >&2; exit 1; }
	@touch $@

demo: $(READY)-cli  ## AND by rule and by gradient, side by side; then XOR, which no line separates
	@$(BIN)/torchperc demo

test: $(READY)-test  ## the test suite: unit, property, oracle and documentation tests
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not ($(REST))'

test-all: $(READY)-test-all  ## all other tests: slow ones, several processes, browser, notebooks, a short fault campaign
	@command -v chromium >/dev/null || { echo "installing Chromium (Debian, as root) ..."; { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >$(VENV)/install-chromium.log 2>&1 || { tail -n 20 $(VENV)/install-chromium.log >&2; exit 1; }; }
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --hypothesis-profile all -m '$(REST) or hypothesis'

test-faults: $(READY)-test  ## the whole fault campaign: kills, damaged files, bad input
	TORCHPERC_FAULTS=all $(BIN)/python -m pytest -m faults tests

notebooks: $(READY)-test-all  ## run the notebooks and keep their outputs
	$(BIN)/python tests/notebook_runs.py

coverage: $(READY)-test  ## the test suite with coverage: a table, and htmlcov/index.html
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not ($(REST))' --cov --cov-report=term --cov-report=html

lint: $(READY)-lint  ## ruff and mypy (strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# what pages and gallery show comes from running the package: when it has changed, or a build was interrupted, all of it runs again
docs/_build/.complete: $(shell find torchperc experiments -type f -not -path '*/__pycache__/*')
	rm -rf docs/_build docs/gallery docs/notebooks

docs: $(READY)-docs docs/_build/.complete  ## the documentation site in docs/_build/html: every example runs, every warning is an error
	@rm -f docs/_build/.complete
	$(BIN)/python -m sphinx -b html -W --keep-going -n -j $(WORKERS) docs docs/_build/html; code=$$?; touch docs/_build/.complete; exit $$code
	$(BIN)/python docs/check_site.py docs/_build/html

docs-clean:  ## remove the site and what its examples left, so that `make docs` runs everything anew
	rm -rf docs/_build docs/gallery docs/notebooks

bench: $(READY)-bench  ## how fast, as ratios against peers measured in the same run; then a kernel, a file of 4 GB, and reading text
	PYTHONPATH=experiments $(BIN)/python -m benchmarks.bench
	$(BIN)/python experiments/benchmarks/kernel.py
	$(BIN)/python experiments/benchmarks/larger_than_memory.py
	$(BIN)/python experiments/benchmarks/reading.py

clean: docs-clean  ## remove .venv, caches, runs and the documentation site
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* htmlcov build dist *.egg-info runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
