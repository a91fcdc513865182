# On a machine with only Python >= 3.11:  make demo  |  make test
PYTHONS = python3.11 python3.12 python3.13 python3 python
VENV ?= .venv
BIN := $(VENV)/bin
NEWEST := $(VENV)/newest
# The versions that are known to work together, whatever the index has by now.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test sb3 mario lint format types tests docs results results-gpu benchmark gpu-bundle soak clean help \
  bonus-examples browser constraints newest
.NOTPARALLEL: # one environment, which one installs into at a time

help: ## what can be made
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.installed ## the noisy-TV comparison, ending with runs/demo/report.html
	$(BIN)/curiax reproduce noisy-tv --seeds 8 --out runs/demo

test: lint types browser tests ## environment, lint, format and type checks, tests; says what it left out

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/basedpyright

# One process more than there are cores, as tests that start commands of their own wait for them; each takes 2 GB.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); expr $$((n < 7 ? n : 7)) + 1)
# Byte code is kept for the hundreds of processes that tests start, and none of them has threads that wait for others.
tests: export PYTHONDONTWRITEBYTECODE =
tests: export OPENBLAS_NUM_THREADS = 1
tests: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS)

browser: ## what the tests of the report's page and of films need of the system, where root may install it
	@sh scripts/get_browser.sh

sb3: $(VENV)/.installed-sb3 ## PyTorch and Stable-Baselines3, which `make test` then tests with

mario: $(VENV)/.installed-mario ## Super Mario Bros., which `make test` then tests with; needs g++ (for educational use, says its licence)

docs: $(VENV)/.installed-docs ## the documentation, as a site in docs/_build/html; no network
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Seeds 3000 to 3031 and 2000 to 2031 were used for nothing else; 500 to 515 settled the open choices. MuJoCo's: 0 to 7.
# Suites share their runs: Half-Cheetah's take about 25 minutes for six methods on two cores, Ant Maze's about 60, those
# of arcade games about 90.
REPRODUCE = $(BIN)/curiax reproduce --runs runs/store
MUJOCO_SEEDS = --seeds "3000-3031 half-cheetah=8 ant-maze=8"
results: $(VENV)/.installed-results ## every suite in results/; about five hours on two cores
	$(REPRODUCE) noisy-tv --seeds 3000-3031 --out results/noisy-tv
	$(REPRODUCE) mountain-car --seeds 3000-3031 --out results/mountain-car
	$(REPRODUCE) stochastic-mountain-car --seeds 3000-3031 --out results/stochastic-mountain-car
	$(REPRODUCE) stochastic-mountain-car --seeds 2000-2031 --preset curiax --out results/stochastic-mountain-car-curiax \
	  --methods lbs disagreement icm rnd vime ride ngu random
	$(REPRODUCE) half-cheetah --seeds 8 --out results/half-cheetah
	$(REPRODUCE) ant-maze --seeds 8 --out results/ant-maze
	$(REPRODUCE) continuous --seeds 8 --out results/continuous
	$(REPRODUCE) episodic $(MUJOCO_SEEDS) --out results/episodic
	$(REPRODUCE) more-methods --seeds 3000-3031 --out results/more-methods
	$(REPRODUCE) more-methods-choices --seeds 500-515 --out results/more-methods-choices
	$(REPRODUCE) lbs-ablation --seeds 3000-3031 --out results/lbs-ablation
	$(REPRODUCE) choices --seeds 500-515 --out results/choices
	$(REPRODUCE) mnist --seeds 1000-1009 --out results/mnist
	$(REPRODUCE) mnist-choices --seeds 500-509 --out results/mnist-choices
	$(BIN)/python scripts/mnist_variance.py results/mnist-variance.json
	$(REPRODUCE) half-cheetah-choices --seeds 8 --out results/half-cheetah-choices
	$(REPRODUCE) ant-maze-choices --seeds 8 --out results/ant-maze-choices
	$(REPRODUCE) arcade --games breakout,qbert --methods lbs surprisal --seeds 3 --steps 1500000 --preset small \
	  --out results/arcade-small

results-gpu: $(VENV)/.installed-results ## arcade games with the paper's networks, 10 M steps, and their speed; never run, perhaps an hour on a GPU with 16 cores
	$(BIN)/python benchmarks/arcade.py
	$(REPRODUCE) arcade --games breakout,riverraid --methods lbs surprisal --seeds 1 --steps 10000000 --out results/arcade

bonus-examples: $(VENV)/.installed-sb3 ## results/bonus-examples.json: the examples with and without bonus; ten minutes
	$(BIN)/python scripts/bonus_examples.py

benchmark: $(VENV)/.installed-dev ## every benchmark that needs nothing beyond Curiax; JSON to results/benchmarks/
	$(BIN)/python benchmarks/run_all.py

gpu-bundle: $(VENV)/.installed ## dist/gpu: Curiax and what an offline GPU node lacks; BUNDLE="--extras atari mujoco" for other options
	$(BIN)/python scripts/gpu_bundle.py $(BUNDLE)

soak: $(VENV)/.installed-dev ## the long checks of reliability; figures to results/reliability.json; an hour and a half
	$(BIN)/python soak/run_all.py

constraints: $(VENV)/.installed-dev ## constraints.txt anew: the newest versions that pyproject.toml allows, for every Python
	$(BIN)/python -m pip --disable-pip-version-check --quiet install uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --no-annotate \
	  --custom-compile-command "make constraints" --output-file constraints.txt pyproject.toml

newest: $(BIN)/python ## whether Curiax works with what the index has by now, as `pip install` without constraints takes it
	rm -rf $(NEWEST)
	$(BIN)/python -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip --disable-pip-version-check --quiet install --no-compile .
	$(NEWEST)/bin/curiax list >/dev/null
	$(NEWEST)/bin/curiax run mountain-car --method lbs --seeds 1 --steps 2048 --out $(NEWEST)/run >/dev/null
	rm -rf $(NEWEST)

# A name on the PATH need not be a Python that works and makes environments (pyenv's need not, Debian's without
# python3-venv does not), so each is asked.
$(BIN)/python:
	@for python in $(or $(PYTHON),$(PYTHONS)); do \
	  "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  echo "$$python -m venv $(VENV)"; \
	  "$$python" -m venv $(VENV) && exit; \
	  rm -f $(BIN)/python; exit 2; \
	done; \
	echo "Curiax needs Python 3.11 or newer with its modules venv and ensurepip (Debian: apt-get install python3-venv);" \
	  "none of these has that: $(or $(PYTHON),$(PYTHONS)). Another one: make PYTHON=/path/to/python3.12 ..." >&2; exit 2

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-results: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[atari,mujoco]'
	@touch $@ $(VENV)/.installed

# On Linux this takes a build with gigabytes of CUDA where no other is offered. A smaller one:
# make sb3 TORCH='torch --index-url https://download.pytorch.org/whl/cpu'
TORCH ?= torch
$(VENV)/.installed-sb3: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) $(TORCH)
	$(INSTALL) -e '.[sb3]'
	@touch $@ $(VENV)/.installed

# nes-py is compiled on the spot, by g++ and nothing else.
$(VENV)/.installed-mario: pyproject.toml constraints.txt | $(BIN)/python
	@command -v g++ >/dev/null || \
	  { echo "Super Mario Bros. needs a C++ compiler, g++, to build nes-py: apt-get install g++, then make mario" >&2; exit 2; }
	$(INSTALL) -e '.[mario]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.installed

clean: ## remove the environment, caches and runs
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .xla_cache runs dist docs/_build
