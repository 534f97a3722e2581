# Each target does its own set-up: a virtual environment, torch first and pinned, then the package. Stamp files make
# the second call instant, and a change of pyproject.toml or constraints.txt installs again.

PYTHON ?= python3
VENV ?= .venv
# On Linux without a GPU: `make run TORCH_INDEX=cpu` takes the CPU build of torch instead of the CUDA one.
TORCH_INDEX ?=
ARGS ?=
BROWSERS := chromium chromium-browser google-chrome

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
TORCH_SOURCE := $(if $(TORCH_INDEX),--index-url https://download.pytorch.org/whl/$(TORCH_INDEX))

.DEFAULT_GOAL := help
.PHONY: help run test browser check format bench-decode bench-digits bench-review bench-label-model wheel clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

run: $(VENV)/installed ## Install, then `dpssl run` on the embedded digits (ARGS="--seed 2" adds flags)
	$(BIN)/dpssl run $(ARGS)

test: $(VENV)/installed-dev ## Install, then run all tests (ARGS="-k resume" selects)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(ARGS)

browser: ## Get the Chromium in which pages are tested, where there is none (apt, as root); without one they are skipped
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "`id -u`" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	else echo "No Chromium here. Install it, on Debian by: sudo apt-get install chromium" >&2; exit 1; fi

check: $(VENV)/installed-dev ## Formatting, lint, types and import contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed-dev ## Format the code and apply the safe lint fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench-decode: $(VENV)/installed ## Decoding image files beside a plain Pillow loop; writes results/decode.json
	$(BIN)/python benchmarks/decode.py $(ARGS)

bench-digits: $(VENV)/installed ## Ours beside the other systems on digits; writes results/digits.json
	$(BIN)/python benchmarks/digits.py $(ARGS)

bench-review: $(VENV)/installed ## Digits: reviewing useful images against random ones; writes results/review.json
	$(BIN)/python benchmarks/review.py $(ARGS)

bench-label-model: $(VENV)/installed-bench ## Our label model beside other packages' on the same votes
	$(BIN)/python benchmarks/label_model.py $(ARGS)

wheel: $(VENV)/installed-dev ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove the environment, builds and caches; runs/ stays
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# OpenMP threads that spin while they wait slow down everything else on a small machine.
test bench-label-model: export OMP_WAIT_POLICY = PASSIVE
test bench-label-model: export GOMP_SPINCOUNT = 0

$(VENV)/torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "dpssl needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version 2>&1`. Name one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV): a minute or a few, this once"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) $(TORCH_SOURCE) torch
	@touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(INSTALL) --editable '.[bench]'
	@touch $@
