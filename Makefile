# `make demo`, `make test` and `make docs` do all set-up from a bare clone. `make test` is what .ci/run runs.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
COMPILED := .venv/compiled
SOURCES := $(shell find harness sims real reports -name '*.py')

# tests start hundreds of interpreters: none of them should compile the sources anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint warm reference docs clean

demo: $(STAMP) $(COMPILED)
	$(BIN)/haloscope demo --out demo

test: $(STAMP)
	$(MAKE) --jobs 2 --output-sync=target lint warm
	$(BIN)/pytest -q -n auto --maxprocesses 4 --dist worksteal -m "not alone"
	$(BIN)/pytest -q -m alone $$(grep -rl 'mark\.alone' tests --include='*.py')

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# beside mypy, which keeps one core busy: kernels, and the bytecode of the tests, which every worker would compile
warm: $(COMPILED)
	mkdir -p build && $(BIN)/pytest -q -q --collect-only > build/collected || (cat build/collected; exit 1)

# the pages of docs that are made from the code
reference: $(STAMP)
	$(BIN)/python -m docs.generate.reference
	$(BIN)/python -m docs.generate.recipes
	$(BIN)/python -m docs.generate.outputs
	$(BIN)/python -m docs.generate.api
	$(BIN)/python -m docs.generate.methods
	$(BIN)/python -m docs.generate.accuracy
	$(BIN)/python -m docs.generate.architecture

# the site, into build/site/html; needs no network once the packages are installed
docs: $(STAMP) $(COMPILED)
	$(BIN)/python -m docs.generate.site

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("haloscope needs Python 3.11 or newer: make PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test]'
	$(BIN)/python -m compileall -q -q --workers 0 .venv/lib || true  # on all cores; some packages ship files that do not compile
	touch $@

# numba keeps compiled code by its own file, and does not see that what it calls in another file has changed;
# what most runs need is compiled here, once
$(COMPILED): $(SOURCES) | $(STAMP)
	find harness sims real reports \( -name '*.nbi' -o -name '*.nbc' \) -delete
	rm -rf "$${HALOSCOPE_CACHE:-$$HOME/.cache/haloscope}/kernels"
	$(BIN)/haloscope compare --methods vanilla,bns-gcn:p=0.1,sylvie-s:bits=1 --modes loopback,sim --cluster ethernet-10g \
		--dataset synthetic:nodes=200 --dropout 0.5 --norm layer --epochs 1 --out build/compiled --force --quiet
	touch $@

clean:
	rm -rf .venv build dist demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find harness sims real reports tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
