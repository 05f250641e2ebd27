# symshape: one command each. Needs make and Python 3.11+; everything else goes into .venv (delete it with `make clean-venv`).
#
#   make demo            trace two models, stream real traffic through symshape.compile and torch.compile side by side
#   make test            the tests, doctests and pages (10 minutes on 2 cores)
#   make test-slow       the rest of what CI runs: notebooks, a smoke run of every benchmark and fuzzer, other processes
#   make lint            format check, lint, types
#   make test TORCH=2.14.1 PYTHON=python3.12     the same with another torch, another Python: in a venv of its own
#
# Variables: PYTHON (which Python makes the venv), TORCH (instead of the pin), VENV, WORKERS (test processes), ARGS (passed on to the tool), NAME (one
# benchmark or fuzzer), COUNT and SEED (fuzzers), SECONDS (mutation), PIP_ARGS (for pip install; pip's own configuration
# is honoured too), COMPILE (0: guards is not compiled; 1: it must be; empty: it is where a C compiler is found).

PYTHON  ?= python3
TORCH   ?=
# Python and torch that are named on the command line have a venv of their own: .venv-python3.12-torch-2.14.1.
CHOSEN  := $(filter command,$(firstword $(origin PYTHON)))
VENV    ?= .venv$(if $(CHOSEN),-$(notdir $(PYTHON)))$(if $(TORCH),-torch-$(TORCH))
WORKERS ?= 2
EXTRAS  ?= cli,models,notebook,dev
ARGS    ?=
NAME    ?=
COUNT   ?=
SECONDS ?= 1500
SEED    ?=
PIP_ARGS ?=
COMPILE ?=

BIN   := $(VENV)/bin
PY    := $(BIN)/python
BEGUN := $(VENV)/.symshape-begun
INSTALLED := $(VENV)/.symshape-installed
GUARDS := $(VENV)/.symshape-guards
STAMP := $(VENV)/.symshape-compiled
PINS := $(if $(TORCH),$(VENV)/constraints.txt,constraints.txt)
# What is compiled in place fits one Python and one torch: for another venv it is compiled again.
BUILT_FOR := build/.built-for
OTHER := $(if $(filter $(VENV),$(shell cat $(BUILT_FOR) 2>/dev/null)),,built-for-another-venv)
CODE  := guards meta_fns symshape tests
LINTED := $(CODE) $(wildcard notebooks docs)

# What is not compiled is not to be looked for either: another venv's may lie in the checkout.
ifeq ($(COMPILE),0)
export SYMSHAPE_NATIVE := 0
endif

.DEFAULT_GOAL := help
.PHONY: built-for-another-venv help begin guards install setup browser jupyter demo test test-slow test-all lint format types bench fuzz sweep loops golden pages docs docs-tools look mutation notebooks clean clean-venv

help:  ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

begin: $(BEGUN)  ## make .venv with what guards needs, to run and to be compiled

guards: $(GUARDS)  ## compile guards, which needs nothing but that

install: $(INSTALLED)  ## make .venv, without compiling guards

setup: $(STAMP)  ## make .venv with everything in it (the other targets do it themselves)

# Redone only when what is asked for changes. pip first: an old one may not read today's metadata.
$(BEGUN): pyproject.toml constraints.txt
	@echo "==> looking for Python 3.11 or newer"
	@chosen=; for candidate in "$(PYTHON)" $(if $(CHOSEN),,python3.13 python3.12 python3.11); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then echo "error: no Python 3.11+ found; name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; fi; \
	if "$(PY)" -m pip --version >/dev/null 2>&1; then \
	    echo "==> $(VENV) is there, bringing it up to date"; \
	else \
	    echo "==> making $(VENV) with $$("$$chosen" --version)"; \
	    "$$chosen" -m venv "$(VENV)" || { echo "error: '$$chosen -m venv' failed (on Debian: apt install python3-venv)" >&2; exit 1; }; \
	fi
	@echo "==> pip and setuptools, as pinned"
	@"$(PY)" -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) -c constraints.txt --upgrade pip setuptools
	@echo "==> what guards needs, to run and to be compiled"
	@"$(PY)" -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) -c constraints.txt attrs mypy sympy z3-solver
	@touch "$@"

$(INSTALLED): $(BEGUN)
	@echo "==> symshape with [$(EXTRAS)], as pinned in constraints.txt (torch is large: a few minutes the first time)"
	@if [ -n "$(TORCH)" ]; then sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt >"$(PINS)"; fi
	@SYMSHAPE_COMPILE=0 "$(PY)" -m pip install --disable-pip-version-check $(PIP_ARGS) -c $(PINS) --no-build-isolation -e ".[$(EXTRAS)]"
	@"$(PY)" -c 'import importlib.metadata as m, torch; print("==> ready: symshape", m.version("symshape"), "on torch", torch.__version__)'
	@touch "$@"

built-for-another-venv: ;

# In place, so that what is edited is what is compiled. Without a C compiler guards runs as it is, at a third of the speed.
# Guards apart, as it need not wait for torch (.ci/run compiles it while torch is installed).
$(GUARDS): $(BEGUN) setup.py $(wildcard guards/*.c guards/*.py guards/*/*.py) $(OTHER)
	@echo "==> compiling guards with mypyc (a minute or two; COMPILE=0 leaves it out)"
	@rm -rf build && find guards -name "*.so" -delete
	@SYMSHAPE_PART=guards SYMSHAPE_COMPILE=$(COMPILE) "$(PY)" setup.py --quiet build_ext --inplace >build.log 2>&1 || { cat build.log >&2; exit 1; }
	@grep "stays interpreted" build.log || true
	@rm -f build.log
	@mkdir -p build && echo "$(VENV)" >$(BUILT_FOR)
	@touch "$@"

$(STAMP): $(INSTALLED) $(GUARDS) $(wildcard symshape/*/*.cpp symshape/*/*/*.cpp symshape/*/*/*.h)
	@find symshape -name "*.so" -delete
	@SYMSHAPE_PART=native SYMSHAPE_COMPILE=$(COMPILE) "$(PY)" setup.py --quiet build_ext --inplace >build.log 2>&1 || { cat build.log >&2; exit 1; }
	@rm -f build.log
	@touch "$@"

# For the tests of reports and of the site; they skip what is not there. Downloads have a time limit, what was downloaded is installed whole.
AXE := node_modules/axe-core/axe.min.js
DEBS := chromium chromium-driver fonts-dejavu-core
browser:  ## a headless Chromium (Debian, as root) and axe-core (npm) for the tests of reports, where they can be had
	@if command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "==> Chromium and its driver"; export DEBIAN_FRONTEND=noninteractive; \
	    { timeout 15 apt-get update -qq && timeout 40 apt-get install -y -qq -d --no-install-recommends $(DEBS) && \
	      apt-get install -y -qq --no-install-recommends $(DEBS); } >browser.log 2>&1 || echo "    not to be had: the tests that need it skip (browser.log)"; \
	else echo "==> no Chromium with its driver: the tests that need it skip"; fi
	@if [ -f $(AXE) ] || ! command -v npm >/dev/null; then :; else \
	    echo "==> axe-core"; timeout 30 npm install --no-save --no-package-lock --no-audit --no-fund --silent axe-core@4.14.1 >/dev/null 2>&1 || echo "    not to be had: the test of accessibility skips"; fi

demo: $(STAMP)  ## trace models, show guards, stream real traffic (under 3 minutes)
	@$(BIN)/symshape demo $(ARGS)

test: $(STAMP)  ## tests, doctests, pages (10 minutes on 2 cores; ARGS="-k name" for some of them)
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-slow: $(STAMP)  ## what CI runs behind make test: smoke runs, notebooks, Inductor, other processes
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "slow and not nightly" $(ARGS)

test-all: $(STAMP)  ## all tests, with those that take minutes each
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "nightly or not nightly" $(ARGS)

lint: $(INSTALLED)  ## format check, lint, types
	@status=0; \
	echo "==> ruff format --check"; $(PY) -m ruff format --check $(CODE) || status=1; \
	echo "==> ruff check"; $(PY) -m ruff check $(LINTED) || status=1; \
	echo "==> mypy --strict"; $(PY) -m mypy || status=1; \
	exit $$status

types: $(INSTALLED)  ## types alone
	@$(PY) -m mypy

format: $(INSTALLED)  ## rewrite the code in the one format, fix what ruff can fix
	@$(PY) -m ruff format $(CODE)
	@$(PY) -m ruff check --fix $(LINTED)

bench: $(STAMP)  ## benchmarks against peers (NAME=dispatch for one, ARGS=--smoke for a quick one)
	@$(PY) -m tests.bench $(NAME) $(ARGS)

fuzz: $(STAMP)  ## fuzzers (NAME=decide COUNT=1000000 SEED=7)
	@$(PY) -m tests.fuzz $(NAME) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Beside the packages of .venv, so that torch stays as it is pinned. A torchvision that does not fit torch breaks what looks for it.
LIBRARIES := einops kornia kornia_rs torch_geometric timm diffusers xxhash importlib_metadata zipp aiohttp aiosignal \
    aiohappyeyeballs frozenlist multidict propcache yarl requests charset_normalizer
ADD = "$(PY)" -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --no-deps --upgrade --target $(VENV)-sweep
sweep: $(STAMP)  ## programs of einops, kornia, PyG, timm, diffusers and torchvision against eager (ARGS="--only einops")
	@[ -f $(VENV)-sweep/.installed ] || { mkdir -p $(VENV)-sweep; rm -f sweep.log; \
	vision="torchvision==$$($(PY) -c 'import torch; print(f"0.{int(torch.__version__.split(chr(46))[1]) + 15}.*")')"; \
	for each in $(LIBRARIES) "$$vision"; do $(ADD) "$$each" >>sweep.log 2>&1 || echo "    $$each is not to be had (sweep.log)"; done; \
	PYTHONPATH="$(VENV)-sweep" $(PY) -W ignore -c "import torchvision" >>sweep.log 2>&1 || { \
	    rm -rf $(VENV)-sweep/torchvision*; echo "    torchvision does not fit this torch (sweep.log)"; }; \
	touch $(VENV)-sweep/.installed; }
	@PYTHONPATH="$(VENV)-sweep" $(PY) -W ignore -m tests.sweep libraries $(ARGS)

golden: $(STAMP)  ## write the golden files again (NAME=errors for one)
	@$(PY) -m tests.golden --write $(NAME)

pages: $(STAMP)  ## write the generated pages and pictures of docs/ and README again
	@$(PY) -m tests.pages --write

# A place of its own: it needs neither torch nor symshape, which are read and not imported.
docs-tools:  # what builds the site
	@[ -x $(VENV)-docs/bin/mkdocs ] || { $(or $(firstword $(wildcard $(PY))),$(PYTHON)) -m venv $(VENV)-docs && \
	    $(VENV)-docs/bin/pip install --disable-pip-version-check --quiet $(PIP_ARGS) -c constraints.txt mkdocs mkdocs-material "mkdocstrings[python]" ruff; }

docs: docs-tools  ## the pages for users as a site, strictly, in build/site
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict $(ARGS)

look: docs browser $(STAMP)  ## the site in a headless Chromium: axe-core in light, dark and 620 pixels, and the search
	@$(PY) -m pytest -n0 -m "not nightly" tests/test_site.py $(ARGS)

# Beside the packages of .venv, for the same reason as those of the sweep.
LOOPS := accelerate==1.15.0 pytorch-lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 psutil==7.2.2
loops: $(STAMP)  ## the guide to training in the loops of accelerate, Lightning and transformers' Trainer
	@[ -f $(VENV)-loops/.installed ] || { $(PY) -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --no-deps --upgrade \
	    --target $(VENV)-loops $(LOOPS) && touch $(VENV)-loops/.installed; }
	@PYTHONPATH="$(VENV)-loops" $(PY) -W ignore -m tests.pages.running docs/guides/train.md

# cosmic-ray has a place of its own: what it depends on is nothing that we pin.
mutation: $(STAMP)  ## mutants of a sample of modules against their tests (SECONDS=1500, NAME=deciders)
	@[ -x $(VENV)-mutation/bin/cosmic-ray ] || { $(PY) -m venv $(VENV)-mutation && \
	    $(VENV)-mutation/bin/pip install --disable-pip-version-check --quiet $(PIP_ARGS) "cosmic-ray==8.7.0"; }
	@nice $(VENV)-mutation/bin/python -m tests.mutation $(NAME) --python $(PY) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

# A place of its own: what JupyterLab and Notebook depend on is nothing that we pin. The kernel is that of .venv.
jupyter: $(STAMP) browser  ## the widget in a headless JupyterLab and Notebook, with a kernel of their own (slow)
	@[ -x $(VENV)-jupyter/bin/jupyter-notebook ] || { $(PY) -m venv $(VENV)-jupyter && \
	    $(VENV)-jupyter/bin/pip install --disable-pip-version-check --quiet $(PIP_ARGS) "jupyterlab==4.6.6" "notebook==7.6.5" "anywidget==0.11.0"; }
	@SYMSHAPE_JUPYTER=$(VENV)-jupyter/bin/jupyter $(PY) -m pytest -n0 -m nightly tests/symshape/exploring/test_jupyter.py $(ARGS)

notebooks: $(STAMP)  ## execute the notebooks and write their outputs back
	@for notebook in notebooks/*.ipynb; do \
	    echo "==> $$notebook"; $(PY) -m tests.notebooks "$$notebook" || exit 1; \
	done

clean:  ## caches and build products (keeps .venv)
	@rm -rf build dist *.egg-info $(STAMP) $(GUARDS) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find guards symshape -name "*.so" -delete
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

clean-venv: clean  ## also .venv and the venvs beside it
	@rm -rf "$(VENV)" .venv-* node_modules
