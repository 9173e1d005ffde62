# Everything from a fresh clone: Python 3.11 or newer is all that is needed.
#   make tune    tune the 1024x1024x1024 matmul with a fused addition, and print what was found
#   make test    run the tests
#   make docs    build the site of the documentation into build/site
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BENCH := .bench-venv
STAMP := $(VENV)/.setup-stamp
BYTECODE := tests/__pycache__
OLDEST := .oldest
BENCH_STAMP := $(BENCH)/.setup-stamp
TVM := .tvm-venv
TRIALS ?= 64
# The checkout itself on the path: packages added later are found without another install.
EDITABLE := --config-settings editable_mode=compat
PYTEST_ARGS ?=
# Processes that run tests side by side: many tests wait for other processes or for the clock.
WORKERS ?= 4
PYTEST := $(VENV)/bin/python -m pytest -n $(WORKERS)
# File after file, half of what another has left to whoever is through: nobody idles at the end.
IN_TURN := --dist worksteal
# Long tests one by one to whoever is free, the longest of them first (tests/conftest.py).
IN_ORDER := --dist load --maxschedchunk 1

# Written bytecode halves what processes of tests take to start, whatever the surroundings ask for.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup test test-long test-oldest fuzz lint format docs tune bench bench-gpu bench-setup metaschedule-setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no python3.11 or python3 on the PATH"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11; run: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(EDITABLE) -e '.[dev]'
	touch $@

# In a fresh clone every process would rewrite the assertions of every test at once: one does.
$(BYTECODE): | $(STAMP)
	-$(VENV)/bin/python -m pytest -qq --collect-only > /dev/null

test: $(STAMP) | $(BYTECODE)
	$(PYTEST) $(IN_TURN) -m "not long" $(PYTEST_ARGS)

test-long: $(STAMP)
	$(PYTEST) $(IN_ORDER) -m long $(PYTEST_ARGS)

# The cost model with the oldest XGBoost that pyproject.toml admits, from its small CPU build.
test-oldest: $(STAMP)
	test -d $(OLDEST)/xgboost || $(VENV)/bin/python -m pip install --quiet \
		--disable-pip-version-check --no-deps --target $(OLDEST) xgboost-cpu==2.1.1
	PYTHONPATH=$(OLDEST) $(VENV)/bin/python -m pytest tests/cost_model -m "not long" $(PYTEST_ARGS)

# The long fuzzes on examples that no run has seen.
fuzz: $(STAMP)
	FUZZ_FRESH=1 $(PYTEST) $(IN_ORDER) -m long $(PYTEST_ARGS)

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(STAMP)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# The site of the documentation, with its links checked; reads no network.
docs: $(STAMP)
	$(VENV)/bin/python docs/site/build.py

tune: $(STAMP)
	$(VENV)/bin/autosched tune matmul_add 1024 1024 1024 --trials $(TRIALS)

# The engines that benchmarks compare with, in an environment of their own.
bench-setup: $(BENCH_STAMP)

# torch by itself and first: an index that offers its CPU build is then asked for this name only.
$(BENCH_STAMP): benchmarks/requirements.txt
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	touch $@

# Apache TVM, for benchmarks/metaschedule.py.
metaschedule-setup:
	test -x $(TVM)/bin/python || $(PYTHON) -m venv $(TVM)
	$(TVM)/bin/python -m pip install --quiet --disable-pip-version-check \
		-r benchmarks/requirements-metaschedule.txt

# Needs a CUDA device, and an interpreter with a CUDA build of torch (TORCH_PYTHON).
TORCH_PYTHON ?= $(BENCH)/bin/python
bench-gpu: $(STAMP)
	$(VENV)/bin/python benchmarks/gpu.py --torch-python $(TORCH_PYTHON)

bench: $(STAMP) $(BENCH_STAMP)
	$(VENV)/bin/python benchmarks/run.py

clean:
	rm -rf $(VENV) $(BENCH) $(OLDEST) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
