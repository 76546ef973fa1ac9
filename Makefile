# Knowledge Gateway. `make` lists the targets. Python 3.11+ and a package registry are all that demo needs; see `make prerequisites`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
UV_VERSION := 0.13.9
TOOLS := $(CURDIR)/.tools
BIN := $(CURDIR)/.venv/bin
# The project's own tools come first, a pinned uv among them.
export PATH := $(BIN):$(TOOLS)/uv/bin:$(PATH)
export PYTHONDONTWRITEBYTECODE := 1
export UV_PYTHON := $(PYTHON)

CORPUS ?= examples/houseplants/corpus
IMAGE_TAG ?= 0.1.0
IMAGE_ARGS ?=
MODELS_EMBEDDING ?= multilingual-e5-small
MODELS_RERANKER ?= ms-marco-minilm-l12-v2
EVAL_DATA ?= examples/houseplants
EVAL_OPTIONS ?=
BENCH ?=
SOAK_MINUTES ?= 15

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(TOOLS)/uv/bin/uv: | python
	@if command -v uv >/dev/null && uv --version | grep -q '^uv $(UV_VERSION)'; then mkdir -p $(@D) && ln -sf "$$(command -v uv)" $@; \
	else echo "installing uv $(UV_VERSION) into .tools"; $(PYTHON) -m venv $(TOOLS)/uv && $(TOOLS)/uv/bin/pip install -q uv==$(UV_VERSION); fi

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (found $$($(PYTHON) -V 2>&1)); set PYTHON=python3.x or install it."; exit 1; }

.venv/.synced: uv.lock pyproject.toml services/*/pyproject.toml | $(TOOLS)/uv/bin/uv
	@echo "setting up .venv from uv.lock"
	@uv sync --frozen --quiet && touch $@

setup: .venv/.synced ## the virtual environment, from the lock file

models: setup ## fetch and check the demo's and the tests' models
	@knowledge-models fetch multilingual-e5-small ms-marco-minilm-l12-v2

tools: setup ## what the tests need besides Python: an OpenSearch node
	@python -m tests.parts.opensearch install

prerequisites: ## what is missing on this machine, all at once
	@$(PYTHON) -m tests.parts.prerequisites

demo: setup ## set-up, models, corpus, services and a guided tour (CORPUS=DIR takes another corpus)
	@python -m examples.demo demo --corpus "$(CORPUS)"

up: setup ## the demo's services in the background; prints URLs and a token
	@python -m examples.demo up --corpus "$(CORPUS)"

down: ## stop what `make up` started
	@if [ -x $(BIN)/python ]; then python -m examples.demo down; else echo "nothing is set up, so nothing runs"; fi

check: setup ## lint, types, layers, unit tests, lock check, secret scan: the everyday loop
	@uv lock --check --quiet
	@ruff check --quiet . && ruff format --check --quiet .
	@mypy
	@lint-imports --no-logo 2>/dev/null | tail -1
	@python -m tests.parts.secrets
	@pytest -q services -m "not models and not opensearch" --numprocesses auto --maxprocesses 4 --dist loadfile

test: setup ## everything: check, contract suite on a real OpenSearch node, end to end with real weights
	@mkdir -p .run
	@python -m tests.parts.opensearch install >.run/opensearch-install.log 2>&1 & echo $$! >.run/opensearch-install.pid
	@python -m tests.parts.toolchain chart >.run/toolchain.log 2>&1 & echo $$! >.run/toolchain.pid
	@$(MAKE) check models
	@echo "waiting for the OpenSearch node's files"; while kill -0 "$$(cat .run/opensearch-install.pid)" 2>/dev/null; do sleep 0.5; done; cat .run/opensearch-install.log
	@pytest services -m "models or opensearch"
	@pytest tests -m "not cluster and not chart and not kubernetes and not images and not prometheus and not traces and not browser"
	@echo "waiting for the chart's tools"; while kill -0 "$$(cat .run/toolchain.pid)" 2>/dev/null; do sleep 0.5; done; cat .run/toolchain.log
	@$(MAKE) chart-test
	@pytest tests/observe -m prometheus
	@$(MAKE) browser-test

test-cluster: setup ## three nodes and a kill under search, ingestion and reindex; a secured node of 2.19 (needs Java 17 and 21); an upgrade
	@pytest tests/cluster

chart-test: setup ## the charts: lint, unit tests, schemas of two Kubernetes versions, kube-score, docs (HELM=4 takes Helm 4)
	@pytest -q tests/charts

observe: setup ## Prometheus, Jaeger and a collector beside the demo's services; prints where to look, until Ctrl-C
	@python -m examples.observe --corpus "$(CORPUS)"

test-observe: setup ## dashboards and alerts on a real Prometheus, traces through a real collector in a real Jaeger
	@python -m tests.parts.toolchain observe >/dev/null
	@pytest tests/observe

browser-test: models ## the pages in a real Chromium, with a real Prometheus behind them; screenshots in .run/screenshots
	@python -m tests.parts.axe >/dev/null
	@pytest tests/browser

incident: setup ## a scripted incident (slow, gone, wrong key, healed) that answers, pages, metrics, alerts, traces and log must all tell alike
	@python -m tests.parts.axe >/dev/null
	@python -m tests.parts.toolchain observe >/dev/null
	@python -m tests.browser.incident

.run/ca.crt: setup
	@mkdir -p .run && python -c 'import ssl, certifi, shutil; shutil.copy(ssl.get_default_verify_paths().cafile or certifi.where(), "$@")'

.run/skaffold-config:
	@mkdir -p .run && printf 'global:\n  collect-metrics: false\n  survey:\n    disable-prompt: true\n' >$@

e2e: setup .run/ca.crt .run/skaffold-config ## on a real cluster (E2E_KUBECONFIG, E2E_CONTEXT, E2E_LOAD_IMAGE): install, search, faults, policies, upgrades under load
	@pytest -q -s tests/kubernetes

dev: setup .run/ca.crt .run/skaffold-config ## skaffold dev: build, load, install, forward ports 8000 and 8090; an edited source file is live without a build
	@tools="$$(python -m tests.parts.toolchain cluster)"; config="$$(python -m tests.parts.toolchain.docker)"; \
	if [ -n "$$config" ]; then export DOCKER_CONFIG="$$config"; fi; export PATH="$$tools:$$PATH" SKAFFOLD_CONFIG=.run/skaffold-config SKAFFOLD_UPDATE_CHECK=false SKAFFOLD_INTERACTIVE=false; \
	skaffold run --module opensearch && skaffold dev --module knowledge --port-forward=user

docs: setup ## write what is generated: the charts' READMEs and values schema, the dashboards
	@python -m tests.charts.schema
	@python -m tests.observe.dashboards
	@PATH="$$(python -m tests.parts.toolchain helm-docs):$$PATH" helm-docs --chart-search-root charts --log-level error

images: setup ## the images of all services; prints their sizes (MODELS_EMBEDDING=, MODELS_RERANKER= leave the models out; IMAGE_ARGS go to docker build)
	@config="$$(python -m tests.parts.toolchain.docker)"; if [ -n "$$config" ]; then export DOCKER_CONFIG="$$config"; fi; \
	for service in gateway reranker embedding frontend; do \
	  echo "building knowledge-$$service:$(IMAGE_TAG)"; \
	  case $$service in reranker) models="$(MODELS_RERANKER)";; embedding) models="$(MODELS_EMBEDDING)";; *) models="";; esac; \
	  DOCKER_BUILDKIT=1 docker build --quiet --target $$service --tag knowledge-$$service:$(IMAGE_TAG) --build-arg MODELS="$$models" \
	    --build-arg VERSION=$(IMAGE_TAG) --build-arg REVISION="$$(git rev-parse HEAD)" $(IMAGE_ARGS) . >/dev/null; \
	done; docker images --format '  {{.Repository}}:{{.Tag}}  {{.Size}}' | grep -E 'knowledge-(gateway|reranker|embedding|frontend):$(IMAGE_TAG)'

image-test: setup ## the images as containers, by testcontainers: start, health, user, read-only root, what is in them, how they end
	@IMAGE_TAG=$(IMAGE_TAG) pytest -m images tests/images tests/integration

cold-test: ## the same as `make test` with every cache in a fresh folder
	@fresh=$$(mktemp -d); echo "caches in $$fresh"; \
	env XDG_CACHE_HOME=$$fresh/cache UV_CACHE_DIR=$$fresh/uv PIP_CACHE_DIR=$$fresh/pip MAVEN_OPTS="-Dmaven.repo.local=$$fresh/m2" $(MAKE) test

eval: setup ## ranking quality of each leg, hybrid and reranked (EVAL_DATA=DIR takes a folder of data sets, EVAL_OPTIONS=--fusion judges fusion)
	@python -m tests.quality "$(EVAL_DATA)" $(EVAL_OPTIONS)

bench: setup ## the gateway against its parts and a raw search, as ratios (BENCH="scale --sizes 592,20000" runs one); writes docs/benchmarks.md
	@python -m tests.load $(BENCH)

bench-rerank: setup ## the reranker-service against a padded batch, three peers, deadlines and overload (EVAL_DATA=DIR; gigabytes once); writes docs/benchmarks.md
	@python -m tests.load.rerank --data "$(EVAL_DATA)"

soak: setup ## the reranker-service under mixed load for SOAK_MINUTES (15): fails if its memory grows or an answer is none that may come
	@python -m tests.soak --minutes $(SOAK_MINUTES)

.PHONY: help python setup models tools prerequisites demo up down check test test-cluster chart-test observe test-observe browser-test incident images image-test e2e dev docs cold-test eval bench bench-rerank soak
