# Everything a newcomer needs: `make up`, `make test`, `make down`.  Each target is safe to repeat.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
SCENARIO ?= default
ARGS ?=
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

.PHONY: venv
venv: ## make .venv (Python, Ansible, test tools); names the Debian tools that other targets need
	@tools/venv.sh $(if $(filter-out venv,$(MAKECMDGOALS)),all)

.PHONY: up
up: venv ## three simulated Sparks, site.yml, one answered completion
	@$(PY) -m tools.up $(ARGS)

.PHONY: recording
recording: venv ## make up once more, drawn as docs/images/make-up.svg
	@$(PY) -m tools.recording

.PHONY: down
down: ## remove every simulated host
	@if [ -x $(PY) ]; then $(PY) -m sparklab destroy --all; fi

.PHONY: lint
lint: venv ## ruff, layout, mypy, yamllint, ansible-lint, the forge's files
	@tools/test.sh lint

.PHONY: mypy
mypy: venv ## types of plugins/module_utils and plugins/plugin_utils
	@tools/test.sh mypy

.PHONY: house
house: venv ## which package imports which, the longest functions, and every rule of the layout that is broken
	@$(PY) -m tools.house

.PHONY: unit
unit: venv ## unit tests
	@tools/test.sh unit

.PHONY: border
border: venv ## hosts that lie, with Ansible's default configuration and without a lab
	@tools/test.sh border

.PHONY: nginx
nginx: venv ## the front proxy's configuration under a real nginx, hostile bodies included; installs nginx as root
	@tools/test.sh nginx

.PHONY: sanity
sanity: venv ## ansible-test sanity, without containers
	@tools/test.sh sanity

.PHONY: matrix
matrix: venv ## unit, border and sanity tests with every supported ansible-core; make matrix ARGS=default adds a lab scenario
	@tools/matrix.sh $(ARGS)

.PHONY: molecule
molecule: venv ## one scenario on the lab: make molecule SCENARIO=default
	@tools/test.sh molecule $(SCENARIO)

.PHONY: docs
docs: venv ## the site, in .lab/docs/html
	@tools/docs.sh $(ARGS)

.PHONY: changelog
changelog: venv ## CHANGELOG.rst of a release from the fragments: make changelog VERSION=0.2.0
	@$(if $(VERSION),,echo "make changelog: name the version, as in VERSION=0.2.0" >&2; exit 2;) tools/changelog.sh $(VERSION)

.PHONY: release
release: venv ## the built collection, in .lab/release; make release TAG=v0.2.0 checks tag, version and changelog first
	@$(PY) -m tools.release $(if $(TAG),--tag $(TAG))

.PHONY: installed
installed: venv ## installation from the built collection by the site's own commands, with every supported ansible-core
	@$(PY) -m pytest -q tests/integration/installed $(ARGS)

.PHONY: test
test: venv ## the CI tier: lint, docs, sanity, unit, border, nginx, four scenarios; with CI=true one more in turn
	@tools/test.sh all

.PHONY: test-full
test-full: venv ## every scenario and 30 minutes of chaos, resumable; results in .lab/results
	@$(PY) -m tools.test_full $(ARGS)

.PHONY: chaos
chaos: venv ## random faults on a serving lab: make chaos SEED=7 MINUTES=30 CLUSTER=ray|mp|direct, or PLAN=FILE to lay them again
	@$(PY) -m tools.chaos $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(PLAN),--plan $(PLAN)) $(ARGS)

.PHONY: judge
judge: venv ## the memory plan against the code of vLLM's CPU build: make judge ARGS="NAME --write" keeps its answers
	@$(PY) -m tools.judge $(ARGS)

.PHONY: bench
bench: venv ## what runs cost, beside the floor and two other ways; table in docs/benchmarks.md
	@$(PY) -m tests.bench $(ARGS)

.PHONY: gpu
gpu: ## the collection on real GPUs of this machine; tables in docs/developers.md; make gpu ARGS="deploy verify" runs single stages
	@$(PY) -m tools.gpu $(ARGS)
	@$(PY) -m tools.gpu --table docs/developers.md
