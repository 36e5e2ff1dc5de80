# Both README commands set everything up by themselves: a virtual environment, then the work.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test check format docs dist bench reproduce clean

demo: $(VENV)/installed
	$(BIN)/fewone demo --out demo

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html"

# Wheel and source archive into dist/, then the wheel in an empty environment outside the checkout: alone, with [EXTRA].
EXTRA ?= cli
dist: $(VENV)/installed
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tests/smoke/install.py dist/*.whl $(EXTRA)

# The paper's tables once more, from nothing, into reproduced/: says the hours first; run again, it goes on where it was.
# QUICK=1: the main claim on the synthetic series in ten minutes, no data needed. JOBS: trainings at once.
JOBS ?= 1
GRIDS := $(if $(QUICK),quick,budget sts authors digits digits-meta short searched seeds further)
reproduce: $(VENV)/installed
	$(BIN)/fewone sweep $(GRIDS:%=paper/%.toml) --results reproduced/results --runs reproduced/runs --jobs $(JOBS)
	$(BIN)/fewone report reproduced/results --out reproduced/report

bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/meta_iteration.py

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fewone needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demo dist report site .pytest_cache .mypy_cache .ruff_cache
