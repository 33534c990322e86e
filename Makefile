# Every way of working is a target here; `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
export PYTHONPATH := tools
SETUP := $(VENV)/.ready

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(SETUP)  ## install everything that development needs into .venv

$(SETUP): requirements/dev.txt pyproject.toml
	@tools/setup

.PHONY: lock
lock:  ## pin all dependencies anew (requirements/*.txt)
	tools/lock

.PHONY: lint
lint: $(SETUP)  ## ruff, mypy --strict, import-linter, generated files up to date
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy operator/guided_operator engine/guided_contract engine/guided_engine sidecar/guided_sidecar tools/devtools
	$(VENV)/bin/lint-imports
