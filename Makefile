# `make demo` and `make test` set up all they need on a fresh machine; nothing is done twice. `make help` lists more.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
# The versions that pip takes: the tested ones, or with constraints-oldest.txt the oldest that are promised.
CONSTRAINTS ?= constraints.txt
# A Python and versions of your choice get an environment of their own, so that the choice is never ignored.
VENV ?= .venv$(if $(filter file,$(origin PYTHON)),,-$(notdir $(PYTHON)))$(patsubst constraints%,%,$(basename $(notdir $(CONSTRAINTS))))
# Where the built wheel of fairseq is kept: one build serves every clone.
WHEELS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fairseq-deep/wheels
TESTS ?= tests
WORKERS ?= 2
THREADS ?= 1

FAIRSEQ := fairseq-fixed==0.12.3.1
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
PYTEST := TEST_THREADS=$(THREADS) $(VENV)/bin/python -m pytest
# Each worker starts with its half of the tests, in the order of the files, and takes from the other's end when it is
# done. So the fixtures of a file are built once, and no long file is left to one worker at the end.
SPREAD := -n $(WORKERS) --dist worksteal
# Nothing but the order: with its own seeds for every generator the plugin would hide a test that leaves one unset.
ORDER := $(if $(RANDOM),-p randomly --randomly-dont-reset-seed $(if $(filter-out 1,$(RANDOM)),--randomly-seed=$(RANDOM)))
# A test that has grown slow is seen here: it becomes shorter, or gets the mark slow and a shorter one at its side.
SLOWEST := --durations=10 --durations-min=5
# Where a call may stand that a newer Python brought; the checkers of style and types see only syntax.
PYTHON_CODE := setup.py benchmarks configs docs fairseq_plugins tests
SHELL_SCRIPTS := .ci/run $(wildcard benchmarks/*.sh scripts/*.sh scripts/reproduce/*.sh)

.PHONY: help setup demo test test-slow test-long test-all test-oldest test-machines test-sse test-avx2 test-threads test-order record breaks lock check docs clean

help:
	@echo 'make demo   train six methods on a small corpus and compare them (results: see the last lines it prints)'
	@echo '            other methods than these: make demo METHODS=admin,deepnet; every method: make demo METHODS=all'
	@echo 'make test   run the fast tests, which hold every promise (one part of them: make test TESTS=tests/cli)'
	@echo '            make test-slow runs the slower ones, make test-long whole chains and figures, make test-all all three'
	@echo '            in random order, with a seed that is printed: make test RANDOM=1; that order again: make test RANDOM=SEED'
	@echo 'make test-oldest   run them with the oldest versions that are promised, in an environment of their own'
	@echo 'make test-machines run them as other machines would: older instructions, two threads, random order'
	@echo '            (over half an hour; one of them: make test-sse, test-avx2, test-threads or test-order)'
	@echo 'make breaks break each part once and see whether a test notices (about an hour; some of them: make breaks ONLY="NAME ...")'
	@echo 'make record write down the losses, weights and options of this revision, to be compared with git diff;'
	@echo '           ONLY="fading interface" restricts it to a method, or to the options'
	@echo 'make check  ruff (rules and format), mypy and shellcheck; nothing newer than the oldest Python that is promised'
	@echo 'make docs   the pages of docs/ as a site, in site/; fails at a lost link or anchor, or a formula that cannot be read'
	@echo 'make lock   write requirements.lock, the checksums of what constraints.txt names'
	@echo 'make setup  only install, into $(VENV) (the others do it where needed)'
	@echo 'make clean  remove $(VENV) and what the tools left behind; the built wheel of fairseq stays'
	@echo
	@echo 'PYTHON=python3.12 chooses another Python (3.10 to 3.13), with an environment of its own.'
	@echo 'pip takes the torch of your package index; for the small one without CUDA:'
	@echo '    PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test'

setup: $(VENV)/.installed

demo: $(VENV)/.installed
	$(VENV)/bin/fairseq-deep demo $(if $(OUT),--out '$(OUT)') $(if $(METHODS),--methods '$(METHODS)')

# Which tests: the marks slow and long are explained in pyproject.toml.
# None of these takes a minute; one that hangs ends after five with the traces of its threads.
test: TIER := -m 'not slow' -o faulthandler_timeout=300
test-slow: TIER := -m 'slow and not long'
test-long: TIER := -m long
test test-slow test-long test-all: $(VENV)/.installed
	$(PYTEST) $(SPREAD) $(ORDER) $(SLOWEST) $(TIER) $(TESTS)

test-oldest:
	$(MAKE) test CONSTRAINTS=constraints-oldest.txt

# What computes depends on the order in which a processor adds. Torch's own kernels, oneDNN's and MKL's heed a limit each,
# so that these tests meet three orders; `make -k test-machines` goes on behind a failure.
NUMBERS := $(addprefix tests/,checkpoints contract core equivalence language_model methods observe recorded search \
	speech_to_text training translator)
test-machines: test-sse test-avx2 test-threads test-order
test-sse:
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE $(MAKE) test TESTS='$(NUMBERS)'
test-avx2:
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 $(MAKE) test TESTS='$(NUMBERS)'
test-threads:
	$(MAKE) test THREADS=2
test-order:
	$(MAKE) test RANDOM=1

breaks: $(VENV)/.installed
	$(VENV)/bin/python -m tests.breaks $(if $(ONLY),--only $(ONLY))

record: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(VENV)/bin/python -W ignore -m tests.recorded.record $(ONLY)

# Two files, because pip can build the sources only when what builds them is there.
LOCK := requirements.lock
LOCK_OF_SOURCES := requirements-sources.lock
SOURCES := antlr4-python3-runtime fairseq-fixed rouge-score
lock: $(VENV)/.installed
	$(PIP) install -q pip-tools
	all=$$(mktemp); trap 'rm -f "$$all"' EXIT; \
	$(VENV)/bin/pip-compile -q --generate-hashes --allow-unsafe --strip-extras --no-build-isolation --no-header \
		--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host -o "$$all" constraints.txt; \
	awk -v sources=' $(SOURCES) ' -v first=$(LOCK) -v second=$(LOCK_OF_SOURCES) '\
		BEGIN { head = "# Written by make lock from constraints.txt; docs/installation.md shows how pip takes it."; \
			print head > first; print head > second } \
		/^[a-z0-9]/ { split($$1, name, "=="); file = index(sources, " " name[1] " ") ? second : first } \
		/^[a-z0-9 ]/ { print > file }' "$$all"

# In an environment of its own, since only this needs mkdocs; once that is there, it works without network.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/.installed: docs/requirements.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check install -q -r docs/requirements.txt
	touch $@

check: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy
	$(VENV)/bin/shellcheck $(SHELL_SCRIPTS)
	$(VENV)/bin/vermin --quiet --no-tips --violations --target=3.10- $(PYTHON_CODE)

clean:
	rm -rf $(VENV) .venv-docs site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fairseq_plugins tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last: an interrupted set-up is taken up again where it stopped.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo 'error: Python 3.10 to 3.13 is needed and $(PYTHON) is not; name one: make PYTHON=python3.11 ...' >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

# A build against NumPy 1 does not load with NumPy 2.
BUILT_AGAINST := import numpy, torch; print(f"torch-{torch.__version__}" + "-numpy-1" * numpy.__version__.startswith("1."))

# fairseq is built against the torch that is installed here: in pip's isolated build it would fetch another one.
$(VENV)/.torch: $(VENV)/.python $(CONSTRAINTS)
	$(PIP) install -c $(CONSTRAINTS) torch numpy cython setuptools wheel
	touch $@

$(VENV)/.fairseq: $(VENV)/.torch
	@wheels='$(WHEELS)'/$$($(VENV)/bin/python -c '$(BUILT_AGAINST)'); \
	mkdir -p "$$wheels"; \
	if ! $(PIP) download -q --no-deps --no-index --find-links "$$wheels" --only-binary :all: -d "$$wheels" '$(FAIRSEQ)' 2>/dev/null; then \
		command -v c++ >/dev/null || { echo 'error: a C++ compiler is needed to build fairseq (Debian: g++ and python3-dev)' >&2; exit 2; }; \
		echo 'building fairseq: about 2 minutes, once for this machine'; \
		building=$$(mktemp -d "$$wheels/building.XXXXXX"); \
		trap 'rm -rf "$$building"' EXIT; \
		$(PIP) wheel --no-deps --no-build-isolation --no-binary fairseq-fixed -w "$$building" '$(FAIRSEQ)'; \
		mv "$$building"/*.whl "$$wheels"; \
	fi; \
	$(PIP) install -c $(CONSTRAINTS) --find-links "$$wheels" --only-binary fairseq-fixed '$(FAIRSEQ)'
	touch $@

$(VENV)/.installed: $(VENV)/.fairseq setup.py $(CONSTRAINTS)
	$(PIP) install -c $(CONSTRAINTS) --no-build-isolation -e '.[plots,dev]'
	touch $@
