# SimSD Serve. `make help` lists the targets. Needs Python 3.11 or newer, git and make; everything else goes into $(VENV).

VENV ?= .venv
BIN := $(VENV)/bin
# python3.11 is what constraints.txt was tested with; else the first newer one.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# pip shows its progress to a person, and keeps quiet in a log.
INSTALL := $(BIN)/python -m pip install --no-compile $(if $(CI),--quiet) --constraint constraints.txt
# Arguments for the command behind a target: make serve ARGS="--port 9000", make test ARGS="-k text".
ARGS ?=

# What pip would do on one core, on all. Some packages carry files of newer Pythons, which do not compile.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
# Where this is set (many container images do), each of the cluster's processes compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

# In two processes, since Ray leaves traces in one that had a server. Status 5: ARGS selected no test of these.
SLOW := $(BIN)/python -m pytest -m slow

.DEFAULT_GOAL := help
.PHONY: help install serve test test-slow lint types format protos bench train-pair clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## Make the virtual environment and install (only when something changed)

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing simsd-serve into $(VENV); the first time takes some minutes"
	@$(INSTALL) --editable .
	@$(COMPILE)
	@touch $@

# What only lint, types and tests need, so that `make serve` need not wait for it.
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools for lint, types and tests"
	@$(INSTALL) --editable '.[dev]'
	@$(COMPILE)
	@touch $@

serve: install ## Serve the shipped pair on this machine; Ctrl-C stops it
	@exec $(BIN)/simsd serve $(ARGS)

test: lint types ## Lint, types, and all tests but the slow ones
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(VENV)/.installed-dev ## The tests that take minutes each: scaling, nodes, updates, compiled graphs, figures
	$(SLOW) tests/unit tests/serve/server tests/serve/process $(ARGS) || test $$? = 5
	$(SLOW) tests/serve --ignore tests/serve/server --ignore tests/serve/process $(ARGS) || test $$? = 5

lint: $(VENV)/.installed-dev ## ruff: rules and format; import-linter: who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev ## mypy on simsd/ and deployments/
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## Rewrite the code as ruff wants it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

protos: $(VENV)/.installed-dev ## Generate simsd_client/v1 from protos/ again
	$(BIN)/python -m grpc_tools.protoc -Isimsd_client/v1=protos/simsd/v1 \
		--python_out=. --pyi_out=. --grpc_python_out=. protos/simsd/v1/simsd.proto

bench: ARGS = --compile
bench: $(VENV)/.installed-bench ## Measure everything on the shipped pair, into docs/results
	$(BIN)/simsd bench all --results docs/results $(ARGS)
	$(BIN)/simsd bench decode --overlap --families lists --results docs/results/overlap \
		--methods vanilla-static,vanilla-dynamic,simsd,simsd-sequential,exact-sequential $(filter --quick,$(ARGS))

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "installing what draws the plots"
	@$(INSTALL) --editable '.[bench]'
	@touch $@

train-pair: install ## Train the shipped pair again from nothing (an hour and a half on two cores)
	$(BIN)/python -m training.train_pair --out simsd/assets $(ARGS)

clean: ## Remove the virtual environment and all caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
