# Every way of working is a target here; `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# VLLM=0.33.0: with that vLLM, in an environment of its own (requirements/vllm-*.txt).
VENV := .venv$(if $(VLLM),-$(VLLM))
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)/tools
# Images of Python forbid byte code: each process of vLLM would compile its 2,000 modules anew.
unexport PYTHONDONTWRITEBYTECODE
SETUP := $(VENV)/.dev

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-zA-Z0-9_-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(SETUP)  ## install everything that development needs into .venv

$(VENV)/.%: requirements/%.txt pyproject.toml
	@tools/setup $* $(VLLM)

.PHONY: lock
lock:  ## pin all dependencies anew (requirements/*.txt)
	tools/lock

.PHONY: lint
lint: $(SETUP)  ## ruff, mypy --strict, import-linter, generated files up to date
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy operator/guided_operator engine/guided_contract engine/guided_engine engine/guided_grammar sidecar/guided_sidecar tools/devtools benchmarks/rankbench benchmarks/schemasuite benchmarks/*.py
	$(VENV)/bin/lint-imports
	$(PY) -m devtools.api_reference --check
	$(PY) -m devtools.dashboard --check
	$(PY) -m devtools.chart --check

.PHONY: generate
generate: $(SETUP)  ## write what is generated anew: the CRD, its reference, the dashboard, the chart's copies
	$(PY) -m devtools.api_reference
	$(PY) -m devtools.dashboard
	$(PY) -m devtools.chart

# What is there for development has all that a demo needs.
.PHONY: demo
demo: $(if $(wildcard $(SETUP)),$(SETUP),$(VENV)/.demo)  ## real vLLM on this machine, seven requests and their traces; KEEP=1 keeps serving
	@$(PY) -m devtools.demo

# The image that the chart installs: by docker, podman or buildah, whichever is there.
BUILDER ?= $(firstword $(foreach each,docker podman buildah,$(if $(shell command -v $(each)),$(each))))
VERSION := $(shell sed -n 's/^appVersion: *"\?\([^"]*\)"\?$$/\1/p' charts/guidedmodel/Chart.yaml)
NEEDS_BUILDER = @test -n "$(BUILDER)" || { echo "$@: install docker, podman or buildah"; exit 1; }

.PHONY: image
image:  ## build the operator's image, guidedmodel:VERSION, with docker, podman or buildah (BUILDER=)
	$(NEEDS_BUILDER)
	$(BUILDER) build --platform=linux/amd64 --tag guidedmodel:$(VERSION) .

.PHONY: push
push:  ## build it and push it to REGISTRY/guidedmodel:VERSION
	@test -n "$(REGISTRY)" || { echo "push: say where to, as in make push REGISTRY=registry.example/team"; exit 1; }
	@$(MAKE) --no-print-directory image
	$(BUILDER) tag guidedmodel:$(VERSION) $(REGISTRY)/guidedmodel:$(VERSION)
	$(BUILDER) push $(REGISTRY)/guidedmodel:$(VERSION)
	@echo "next: helm install guidedmodel charts/guidedmodel --namespace guidedmodel-system --create-namespace" \
	  "--set image.repository=$(REGISTRY)/guidedmodel"

PYTEST := $(VENV)/bin/pytest --durations=15
# Of the quick tiers each process takes one core, and waits for most of its time: two run side by side.
QUICK := -n 2 --dist loadfile --no-loadscope-reorder -q tests/unit tests/contract
# Tests of the API server wait, too, and run beside them; on a new machine the first waits for what Go builds.
# With 4 CPUs or more the engines run beside the node's tests; tests/conftest.py says what belongs to them.
WORKERS := $(shell [ "$$(nproc)" -ge 4 ] && echo "-n 2 --dist loadgroup -v")
SLOWEST := --durations=40 --durations-min=5
OTHERS := $(addprefix --ignore=tests/,unit contract cluster)

.PHONY: test
test: $(SETUP)  ## every test tier: unit, contract, engine matrix (a few cells), drawn requests, real API server, real node
	@log=$$(mktemp); trap 'kill $$(jobs -p) 2>/dev/null; rm -f $$log' EXIT; trap 'exit 130' INT TERM; \
	$(PY) -m devtools.prebuild & \
	$(PYTEST) -q --timeout=2400 $(SLOWEST) tests/cluster > $$log 2>&1 & cluster=$$!; \
	$(PYTEST) $(QUICK) $(SLOWEST); quick=$$?; \
	wait $$cluster; cluster=$$?; cat $$log; \
	$(PYTEST) $(WORKERS) $(SLOWEST) $(OTHERS) && exit $$((quick | cluster))

.PHONY: test-unit
test-unit: $(SETUP)  ## the tests that take seconds
	$(PYTEST) -q tests/unit

.PHONY: test-judges
test-judges: $(SETUP)  ## who judges from outside what stays true while code goes: tests/judges.txt
	$(PYTEST) $(shell grep -v '^\#' tests/judges.txt)

.PHONY: promises
promises:  ## what users can rely on, and the test of each (WORD=rollback)
	@python3 tools/devtools/promises.py

.PHONY: seams
seams:  ## what another vLLM changed of what the plugin relies on, by its wheel's Python alone (VLLM=0.34.0; SIGN=1 once it is read)
	@python3 -m devtools.seams $(VLLM) $(if $(SIGN),--sign)

# Where a vLLM could mean something else by the same names; all of tests/contract runs by .venv-VLLM/bin/pytest.
MINORS := $(addprefix tests/contract/test_,$(addsuffix .py,seams minors combinations core_detached drafts_by_load rank_copies \
  rank_reasoning request_reading forced_tools grammar_masks structural_tags upstream tools_as_response_format operator_arguments tokenizer_fingerprint))

.PHONY: test-minor
test-minor: $(SETUP)  ## another vLLM: what the plugin relies on, and cells of the engine matrix (VLLM=0.33.0 MATRIX=V1-tp1-draft-sync)
	$(PYTEST) -n 2 --dist loadfile -q $(SLOWEST) tests/engine/test_matrix.py $(MINORS)

.PHONY: test-gpu
test-gpu: $(SETUP)  ## what only a GPU shows: streams, CUDA graphs (skips where there is none)
	$(PYTEST) -rs tests/gpu

.PHONY: test-oldest
test-oldest: $(SETUP)  ## the tests of the real API server, on the oldest Kubernetes that the chart takes
	KUBERNETES=oldest $(PYTEST) -rs tests/cluster

.PHONY: test-keda
test-keda: $(SETUP)  ## scaling to none and back by the real KEDA, built from source (minutes)
	KEDA=real $(PYTEST) -rs tests/cluster/test_keda.py

.PHONY: test-drain
test-drain: $(SETUP)  ## pods that go in each way there is, under load on a real node: no request fails (four vLLM pods)
	DRAIN=full $(PYTEST) -s tests/e2e/test_cluster_model_drain.py

.PHONY: test-matrix
test-matrix: $(SETUP)  ## every cell of the engine matrix on real vLLM; writes tests/engine/matrix.md
	MATRIX=full $(PYTEST) tests/engine

.PHONY: test-clients
test-clients: $(SETUP)  ## a pod through openai, anthropic, instructor, pydantic-ai and langchain-openai, in their own environment
	$(PYTEST) tests/e2e/test_run_reasoning.py -k library

.PHONY: test-parsers
test-parsers: $(SETUP)  ## a pod with each of eleven pairs of vLLM's tool and reasoning parsers (PARSERS=glm45)
	PARSERS=$(or $(PARSERS),all) $(PYTEST) -rs tests/e2e/test_run_parsers.py

.PHONY: test-property
test-property: $(SETUP)  ## 300 drawn requests on real vLLM, every answer judged, and the distribution of tokens (SEED=7)
	$(PYTEST) tests/property

.PHONY: soak
soak: $(SETUP)  ## drawn traffic on real vLLM for 30 minutes, every answer judged (DURATION=5m SEED=7 REQUEST=3 RUNNER=V2)
	@PYTHONPATH=$(CURDIR)/tools:$(CURDIR)/tests $(PY) -m support.soak

.PHONY: fuzz
fuzz: $(SETUP)  ## atheris on what strangers send, a minute each (TARGET=schemas SECONDS=600, INPUT=file)
	@PYTHONPATH=$(CURDIR)/tools:$(CURDIR)/tests SECONDS_EACH=$(SECONDS) $(PY) -m support.fuzz

.PHONY: fuzz-schemas
fuzz-schemas: $(SETUP)  ## drawn JSON schemas of all keywords through our path and both libraries, judged by jsonschema (SECONDS=3600 SEED=7)
	@PYTHONPATH=$(CURDIR)/tools:$(CURDIR)/tests SECONDS_EACH=$(SECONDS) $(PY) -m support.compositions

.PHONY: chaos-grammar
chaos-grammar: $(SETUP)  ## kills of a real pod's grammar workers and service under load (FAULTS=1000 KILLS=50 SEED=0)
	@CHAOS=full $(PYTEST) -s tests/e2e/test_chaos.py

.PHONY: picture
picture: $(SETUP)  ## take docs/trace.png: a request's trace on real vLLM in the viewer's page (installs it, and chromium by apt)
	$(PY) -m devtools.viewer_env
	PICTURE=docs/trace.png $(PYTEST) tests/e2e/test_viewer.py

# --- a real Kubernetes (tools/devtools/cluster*.py) ---

.PHONY: cluster
cluster: $(SETUP)  ## a one-node Kubernetes in namespaces of its own, with the sample on it (root; CLUSTER=existing IMAGE=... takes yours, SAMPLE= and JAEGER= other manifests)
	$(PY) -m devtools.cluster_demo

.PHONY: cluster-down
cluster-down: $(SETUP)  ## end that cluster; nothing of it stays
	$(PY) -m devtools.cluster

.PHONY: schema-table
schema-table: $(SETUP)  ## what is enforced of JSON Schema, by us and by each library: docs/json-schema.md (SUITE=JSON-Schema-Test-Suite/tests)
	@PYTHONPATH=tools:benchmarks $(PY) -m schemasuite

# --- benchmarks (benchmarks/README.md) ---

.PHONY: bench-ranks
bench-ranks: $(SETUP)  ## guided decoding on a virtual GPU against upstream (CELLS=, MODES=, REPS=, PROFILE=1, OUT=)
	@PYTHONPATH=tools:benchmarks $(PY) -m rankbench ranks

.PHONY: bench-host
bench-host: $(SETUP)  ## what guiding adds to the CPU of the thread that launches kernels, against upstream (CELLS=, MODES=, REPS=, FORWARD_MS=12, PROFILE=1, OUT=)
	@PYTHONPATH=tools:benchmarks $(PY) -m rankbench host

.PHONY: bench-speculation
bench-speculation: $(SETUP)  ## speculation on a virtual GPU, by method, scheduling and load, against upstream (CELLS=, MODES=, REPS=, OUT=)
	@PYTHONPATH=tools:benchmarks $(PY) -m rankbench speculation

.PHONY: bench-gpu
bench-gpu: $(SETUP)  ## a model of random weights on a real GPU, guided, ours against upstream (WEIGHTS=1B or 8B, CELLS=, MODES=, REPS=)
	@PYTHONPATH=tools:benchmarks $(PY) -m rankbench.gpu

.PHONY: bench-grammar
bench-grammar: $(SETUP)  ## how long a grammar takes to be prepared, cold and cached, beside upstream's compile (MODES=, EVERY=, UNIQUE=)
	@PYTHONPATH=tools:benchmarks:tests $(PY) -m grammarbench

.PHONY: bench-operator
bench-operator: $(SETUP)  ## the operator with 500 GuidedModels (N=, RATE=, CHANGE=, IDLE=)
	@PYTHONPATH=tools:benchmarks:tests $(PY) -m operatorbench

.PHONY: bench-processors
bench-processors: $(SETUP)  ## what logits processors cost a step of the host, beside none (CELLS=, REPS=)
	@PYTHONPATH=tools:benchmarks $(PY) -m processorbench
