# Needs Python 3.10 or newer with venv, make and a C compiler; everything else is fetched into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help venv lint test chaos adapters kernels golden docs reference bench day demo example lock fuzz sbom audit clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create the virtual environment (at once when nothing changed)

$(STAMP): pyproject.toml requirements/dev.lock requirements/constraints-dev.txt
	@echo "installing into $(VENV) (minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "cannot create $(VENV): install Python's venv module (Debian: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 1; }
	$(PIP) --require-hashes -r requirements/dev.lock
	$(PIP) -c requirements/constraints-dev.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

SCRIPTS = $(shell git ls-files '*.sh' .ci/run)

lint: venv ## style, types, import directions, deployment files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict deploy
	@test ! -x $(BIN)/shellcheck && echo "no shellcheck for this platform: scripts are not read" || { set -x; $(BIN)/shellcheck $(SCRIPTS); }
	@test ! -x $(BIN)/hadolint && echo "no hadolint for this platform: deploy/containers is not read" || { set -x; $(BIN)/hadolint deploy/containers/*; }

# Tests come in another order at each commit, and in the same one wherever that commit is tested.
SEED = $(shell printf '%d' 0x$$(git rev-parse HEAD 2>/dev/null | cut -c1-7 | grep . || echo 0))

test: lint ## every test; on Debian as root, first installs the services they need
	tests/system_packages.sh
	$(BIN)/python -m pytest -n 2 -m "not chaos" --randomly-seed=$(SEED)

CHAOS_SEEDS := 1-500
CHAOS_JOBS := 4

chaos: venv ## the long tests: kill -9 at every point of the demo, large models, random disasters (an hour or two; as root)
	tests/system_packages.sh
	$(BIN)/python -m pytest -m chaos
	$(BIN)/python -m tests.chaos --seeds $(CHAOS_SEEDS) --jobs $(CHAOS_JOBS)

ADAPTERS := build/adapters

adapters: venv ## the adapters' tests on the real frameworks, which go into an environment of their own (300 MB)
	@test -x $(ADAPTERS)/bin/python || $(BIN)/python -m venv $(ADAPTERS)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $$($(ADAPTERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth
	$(ADAPTERS)/bin/python -m pip install -qq --disable-pip-version-check -c requirements/constraints-dev.txt -r requirements/adapters.in
	$(ADAPTERS)/bin/python -m pytest tests/e2e/test_adapters_*.py tests/unit/healthd/trainer

KERNELS := build/kernels

kernels: venv ## the GPU kernels' tests, which need Triton and no GPU; it goes into an environment of its own (1.1 GB)
	@test -x $(KERNELS)/bin/python || $(BIN)/python -m venv $(KERNELS)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $$($(KERNELS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth
	$(KERNELS)/bin/python -m pip install -qq --disable-pip-version-check -r requirements/kernels.in
	$(KERNELS)/bin/python -m pytest tests/unit/preflight/kernels

golden: venv ## rewrite the golden files; review the diff
	$(BIN)/python -m dashboards
	GOLDEN=update $(BIN)/python -m pytest -q -m "not chaos and not slurm"

docs: venv ## the documents as a site, in build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "to read: python3 -m http.server -d build/site"

reference: venv ## write anew the pages of docs/reference that are made from code; review the diff
	$(BIN)/python -m tools.reference

bench: venv ## measure every budget and write bench/results/report.md (25 minutes); QUICK=1 as a trial, ONLY="kernel-line pages" only these
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(ONLY)

SEED_OF_DAY := 1

day: venv ## a day of a big cluster in ten minutes, with us and without us; half an hour, a page in build/day.md
	tests/system_packages.sh
	$(BIN)/python -m bench.day --seed $(SEED_OF_DAY)

demo: venv ## the whole path once, for real: two faults, two ways out
	tests/system_packages.sh munge slurmctld slurmd slurm-client
	$(BIN)/healthctl demo

EXAMPLE := build/example
STEPS := 400
BEACONS := /dev/shm/gpu-healthd

example: venv ## a small GPT with all of it on: two pretend nodes, four ranks, half a minute; Ctrl-C, and again, goes on where it was
	@mkdir -p $(EXAMPLE) && { test -d $(BEACONS) || mkdir -p -m 1777 $(EXAMPLE)/beacons; }
	@if test -d $(BEACONS); then beacons=$(BEACONS); else beacons=$(EXAMPLE)/beacons; fi; \
	HEALTHD_BEACON_DIR=$$beacons $(BIN)/healthctl launch --backend local --node-names node0,node1 --ranks-per-node 2 \
	  -- $(BIN)/python examples/train_gpt.py --steps $(STEPS) --checkpoints $(EXAMPLE)/checkpoints
	@echo "to go on: make example STEPS=$$(($(STEPS) * 2)); to begin anew: rm -r $(EXAMPLE)"

IMAGE_LOCK := --universal --python-version 3.11 --generate-hashes -c requirements/dev.lock -c requirements/constraints-dev.txt \
  --no-emit-package gpu-healthd --custom-compile-command "make lock" --upgrade --quiet

lock: venv ## resolve requirements/*.lock anew
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml requirements/more.in --extra dev --universal --python-version 3.10 \
	  --generate-hashes --overrides requirements/no-torch.txt --no-emit-package torch --no-emit-package gpu-healthd \
	  --custom-compile-command "make lock" --upgrade --quiet -o requirements/dev.lock
	$(BIN)/uv pip compile pyproject.toml $(IMAGE_LOCK) -o requirements/node.lock
	$(BIN)/uv pip compile pyproject.toml --extra preflight $(IMAGE_LOCK) -o requirements/preflight.lock
	$(BIN)/uv pip compile pyproject.toml --extra postgres --extra kubernetes $(IMAGE_LOCK) -o requirements/centre.lock
	$(BIN)/uv pip compile requirements/build.in $(IMAGE_LOCK) -o requirements/build.lock
	$(BIN)/uv pip compile requirements/audit.in --universal --python-version 3.10 --generate-hashes \
	  --custom-compile-command "make lock" --upgrade --quiet -o requirements/audit.lock

CASES := 1000000

fuzz: venv ## every parser of what others write under libFuzzer (CASES of all together), and every call of the API; adds its figures to bench/results
	$(BIN)/python -m tests.fuzz.campaign --cases $(CASES) --write
	API_CASES=50 $(BIN)/python -m pytest -q tests/adversary/test_every_operation.py

sbom: venv ## bills of materials (CycloneDX) for node, centre and preflight, in build/sbom
	$(BIN)/python -m tools.supply.bill_of_materials

AUDIT := build/audit

audit: venv ## ask the advisory database about every package that we ship; it is an error if it does not answer
	@test -x $(AUDIT)/bin/python || $(BIN)/python -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/audit.lock
	$(BIN)/python -m tools.supply.audit $(AUDIT)/bin/pip-audit

clean: ## remove everything made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
