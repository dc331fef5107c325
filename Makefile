# Requires Python 3.10+ with venv, make and a C compiler; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help venv lint test chaos adapters kernels oldest golden docs reference bench day demo example lock fuzz sbom audit clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create the virtual environment if requirements changed

$(STAMP): pyproject.toml hatch_build.py healthd/trainer/beacons/_step_writer.c requirements/dev.lock requirements/constraints-dev.txt
	@echo "installing into $(VENV) (minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "cannot create $(VENV): install Python's venv module (Debian: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 1; }
	$(PIP) --require-hashes -r requirements/dev.lock
	$(PIP) -c requirements/constraints-dev.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

SCRIPTS = $(shell git ls-files '*.sh' .ci/run)

lint: venv ## check style, types, import contracts, names, prose and deployment files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -p no:randomly tests/house/test_names.py tests/house/test_prose.py
	$(BIN)/yamllint --strict deploy
	@test ! -x $(BIN)/shellcheck && echo "no shellcheck for this platform: scripts are not read" || { set -x; $(BIN)/shellcheck $(SCRIPTS); }
	@test ! -x $(BIN)/hadolint && echo "no hadolint for this platform: deploy/containers is not read" || { set -x; $(BIN)/hadolint deploy/containers/*; }

KERNELS := build/kernels
OLDEST := build/triton-oldest

# The commit seeds the test order, so that it varies between commits and is reproducible for each.
SEED = $(shell printf '%d' 0x$$(git rev-parse HEAD 2>/dev/null | cut -c1-7 | grep . || echo 0))

test: lint $(KERNELS)/.installed ## run all tests; on Debian as root, first install the services they need
	tests/system_packages.sh
	$(BIN)/python -m pytest -n 2 -m "not chaos" --randomly-seed=$(SEED)
	$(KERNELS)/bin/python -m pytest -n 2 --randomly-seed=$(SEED) $(addprefix tests/unit/preflight/kernels/test_,compiled.py ahead_of_time.py simulated_cuda_interpreted.py)

CHAOS_SEEDS := 1-500
CHAOS_JOBS := 4

chaos: venv ## run the long tests: SIGKILL at every point of the demo, large models, random faults (1-2 hours; as root)
	tests/system_packages.sh
	$(BIN)/python -m pytest -m chaos
	$(BIN)/python -m tests.chaos --seeds $(CHAOS_SEEDS) --jobs $(CHAOS_JOBS)

ADAPTERS := build/adapters

adapters: venv ## run the adapters' tests with the real frameworks, in a separate environment (300 MB)
	@test -x $(ADAPTERS)/bin/python || $(BIN)/python -m venv $(ADAPTERS)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $$($(ADAPTERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth
	$(ADAPTERS)/bin/python -m pip install -qq --disable-pip-version-check -c requirements/constraints-dev.txt -r requirements/adapters.in
	$(ADAPTERS)/bin/python -W 'ignore:The pynvml package is deprecated:FutureWarning' -m pytest -W 'ignore:The pynvml package is deprecated:FutureWarning' tests/e2e/test_adapters_*.py tests/unit/healthd/trainer

$(KERNELS)/.installed: requirements/kernels.lock requirements/kernels-oldest.lock $(STAMP)
	@echo "installing Triton into $(KERNELS) and $(OLDEST) (1.8 GB) ..."
	@test -x $(KERNELS)/bin/python || $(BIN)/python -m venv $(KERNELS)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $$($(KERNELS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth
	$(KERNELS)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/kernels.lock
	$(KERNELS)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps --upgrade --target $(OLDEST) -r requirements/kernels-oldest.lock
	@touch $@

kernels: $(KERNELS)/.installed ## run all tests of the GPU kernels with Triton, without a GPU, in a separate environment
	$(KERNELS)/bin/python -m pytest -n 2 tests/unit/preflight/kernels

OLDEST_TORCH := build/torch-oldest
oldest: venv ## run preflight's device and peer tests with the oldest torch that it supports, in a separate environment (5 GB)
	@test -x $(OLDEST_TORCH)/bin/python || $(BIN)/python -m venv $(OLDEST_TORCH)
	$(OLDEST_TORCH)/bin/python -m pip install -qq --disable-pip-version-check torch==2.6.0
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $$($(OLDEST_TORCH)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth
	$(OLDEST_TORCH)/bin/python -m pytest -n 2 tests/unit/preflight/links $(addprefix tests/unit/preflight/test_,simulated_cuda.py torch_checks.py memory_checks.py)

golden: venv ## rewrite the golden files; review the diff
	$(BIN)/python -m dashboards
	GOLDEN=update $(BIN)/python -m pytest -q -m "not chaos and not slurm"

docs: venv ## build the documentation site in build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "to read: python3 -m http.server -d build/site"

reference: venv ## regenerate the pages of docs/reference from code; review the diff
	$(BIN)/python -m tools.reference

bench: venv ## measure every performance target and write bench/results/report.md (25 minutes); QUICK=1 for a trial, ONLY="kernel-line pages" to select
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(ONLY)

SEED_OF_DAY := 1

day: venv ## simulate a day of a large cluster with and without gpu-healthd (30 minutes); writes build/day.md
	tests/system_packages.sh
	$(BIN)/python -m bench.day --seed $(SEED_OF_DAY)

demo: venv ## run the demo: two faults, two kinds of recovery
	tests/system_packages.sh munge slurmctld slurmd slurm-client
	$(BIN)/healthctl demo

EXAMPLE := build/example
STEPS := 400
BEACONS := /dev/shm/gpu-healthd

example: venv ## train a small GPT on two simulated nodes with four ranks (30 s); interrupt and rerun to resume
	@mkdir -p $(EXAMPLE) && { test -d $(BEACONS) || mkdir -p -m 1777 $(EXAMPLE)/beacons; }
	@if test -d $(BEACONS); then beacons=$(BEACONS); else beacons=$(EXAMPLE)/beacons; fi; \
	HEALTHD_BEACON_DIR=$$beacons $(BIN)/healthctl launch --backend local --node-names node0,node1 --ranks-per-node 2 \
	  -- $(BIN)/python examples/train_gpt.py --steps $(STEPS) --checkpoints $(EXAMPLE)/checkpoints
	@echo "to go on: make example STEPS=$$(($(STEPS) * 2)); to begin anew: rm -r $(EXAMPLE)"

IMAGE_LOCK := --universal --python-version 3.11 --generate-hashes -c requirements/dev.lock -c requirements/constraints-dev.txt \
  --no-emit-package gpu-healthd --custom-compile-command "make lock" --upgrade --quiet

lock: venv ## resolve requirements/*.lock again
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml requirements/more.in --extra dev --universal --python-version 3.10 \
	  --generate-hashes --overrides requirements/no-torch.txt --no-emit-package torch --no-emit-package gpu-healthd \
	  --custom-compile-command "make lock" --upgrade --quiet -o requirements/dev.lock
	$(BIN)/uv pip compile pyproject.toml --extra nats $(IMAGE_LOCK) -o requirements/node.lock
	$(BIN)/uv pip compile pyproject.toml --extra preflight $(IMAGE_LOCK) -o requirements/preflight.lock
	$(BIN)/uv pip compile pyproject.toml --extra postgres --extra kubernetes --extra ingest $(IMAGE_LOCK) -o requirements/centre.lock
	$(BIN)/uv pip compile requirements/build.in $(IMAGE_LOCK) -o requirements/build.lock
	for each in kernels kernels-oldest; do $(BIN)/uv pip compile requirements/$$each.in --universal --python-version 3.10 \
	  --generate-hashes --custom-compile-command "make lock" --upgrade --quiet -o requirements/$$each.lock; done
	$(BIN)/uv pip compile requirements/audit.in --universal --python-version 3.10 --generate-hashes \
	  --custom-compile-command "make lock" --upgrade --quiet -o requirements/audit.lock

CASES := 1000000

fuzz: venv ## fuzz every parser of external input with libFuzzer (CASES in total), and every API call; adds results to bench/results
	$(BIN)/python -m tests.fuzz.campaign --cases $(CASES) --write
	API_CASES=50 $(BIN)/python -m pytest -q tests/adversary/test_every_operation.py

sbom: venv ## write bills of materials (CycloneDX) for node, controller and preflight to build/sbom
	$(BIN)/python -m tools.supply.bill_of_materials

AUDIT := build/audit

audit: venv ## check every shipped package for known vulnerabilities; fails without an answer from the database
	@test -x $(AUDIT)/bin/python || $(BIN)/python -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/audit.lock
	$(BIN)/python -m tools.supply.audit $(AUDIT)/bin/pip-audit

clean: ## remove all build output
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
