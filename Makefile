# Each target does all of its own set-up: a virtual environment in .venv, the wheel built and installed into it (never an
# editable install: what is shown, tested and measured is what a user gets), and again only when sources have changed.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
DONE   := $(VENV)/done
PIP    := $(PY) -m pip -qq --disable-pip-version-check
WHEEL   = $$(echo build/dist/ipyagent-*.whl)

# Folders too: their time changes when a file is removed.
SOURCES := $(shell find kernel_ext labextension sessions \( -name __pycache__ -o -name node_modules -o -name lib -o -name .yarn \
             -o -name ui-tests -o -path "*/ipyagent/static" \) \
             -prune -o -print) pyproject.toml README.md LICENSE
FRONT   := $(addprefix labextension/,package.json yarn.lock tsconfig.json) \
           $(shell find labextension/src labextension/style labextension/schema)

# The front end's tools, as yarn.lock has them; its output is shown when it fails.
JLPM    := cd labextension && { said=$$(jlpm install --immutable 2>&1) || { echo "$$said" >&2; exit 1; }; }

# `ipyagent` and `jupyter` in a notebook's shell lines are those of this environment.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo lab test ui check bench faults clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

demo: $(DONE)/wheel $(DONE)/run  ## run demo.ipynb headless to its end and say what happened
	@$(PY) tools/run_demo.py demo.ipynb --out build/demo.ipynb --work build/demo

lab: $(DONE)/wheel $(DONE)/run  ## open demo.ipynb in JupyterLab (LAB_ARGS="--no-browser --port 8899")
	$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS) demo.ipynb

# -P keeps this folder off sys.path. The front end's own tests come first and take seconds; ARGS are for pytest alone.
test: $(DONE)/wheel $(DONE)/test  ## run the tests against the installed wheel (ARGS="-k lease -x")
	$(if $(ARGS),,@if command -v node >/dev/null; then $(JLPM) && jlpm run test; \
	  else echo "no Node.js: the tests of the front end are left out" >&2; fi)
	@IPYAGENT_TEST_INSTALLED=1 $(PY) -P -m pytest $(ARGS)

ui: $(DONE)/wheel $(DONE)/test  ## run the tests in a real browser, with real kernels (needs chromium; ARGS="panel")
	@$(JLPM) && IPYAGENT_PYTHON=$(CURDIR)/$(PY) jlpm run test:ui $(ARGS)

check: $(DONE)/wheel $(DONE)/dev  ## lint, types, import rules
	$(PY) -m ruff check
	$(PY) -m mypy
	$(PY) -m pyright --pythonpath $(PY)
	PYTHONPATH=kernel_ext:labextension:sessions $(VENV)/bin/lint-imports --no-cache
	@$(JLPM) && jlpm run check

bench: $(DONE)/wheel $(DONE)/test  ## measure; every number in the docs names its line of this output
	$(PY) benchmarks/run.py $(ARGS)

faults: $(DONE)/wheel $(DONE)/test  ## kill runs at every seam amid outages of each class (ARGS="--kills 1000 --seed 7")
	@$(PY) -P -c 'import sys; sys.path.insert(0, "."); from tests.kill.campaign import main; sys.exit(main())' $(ARGS)

clean:  ## remove everything that these targets made
	rm -rf $(VENV) build dist .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find kernel_ext labextension sessions tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "ipyagent needs Python 3.11 or newer with venv, and '$(PYTHON)' is not that: make PYTHON=/path/to/python3.11 ..." >&2; \
	  exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

# The build takes a bundle that is there for the right one, so a stale one has to go.
build/front.done: $(FRONT)
	rm -rf labextension/ipyagent_lab/labextension kernel_ext/ipyagent/static
	@mkdir -p build && touch $@

build/wheel.done: $(SOURCES) build/front.done | $(PY)
	rm -rf build/dist
	$(PIP) wheel . --no-deps --wheel-dir build/dist
	@touch $@

# The version stays the same while the sources change, so pip has to be told to install again.
$(DONE)/wheel: build/wheel.done | $(PY)
	$(PIP) install --force-reinstall --no-deps "$(WHEEL)"
	@mkdir -p $(DONE) && touch $@

# What the wheel needs changes only with pyproject.toml.
# matplotlib, pandas: the notebooks draw with the one and look at a result with the other; ipyagent needs neither.
$(DONE)/run: pyproject.toml | $(DONE)/wheel
	$(PIP) install "$(WHEEL)" matplotlib pandas
	@touch $@

$(DONE)/test: pyproject.toml | $(DONE)/wheel
	$(PIP) install "$(WHEEL)[test]"
	@touch $@

$(DONE)/dev: pyproject.toml | $(DONE)/wheel
	$(PIP) install "$(WHEEL)[test,dev]"
	@touch $@
