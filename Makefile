# Everything a newcomer needs. Each target sets up what it needs by itself; only Python 3.11+ and make must be there.
PYTHON ?= python3
ARGS ?=
ROUNDS ?= 50
SEEDS ?= 100000
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint docs guards prove clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv/ from uv.lock (uv by pip if absent); nothing to do the second time
	@$(PYTHON) tools/bootstrap.py

demo: setup ## Start the local stack and send a few hundred commands through it, live
	@.venv/bin/waybill demo $(ARGS)

test: lint ## Check the code, then run every test (ARGS="tests/unit -k lane" for a part)
	@.venv/bin/python tools/suite.py $(ARGS)

lint: setup ## Check style, types, layers and generated pages
	@.ci/lint

docs: setup ## Write docs/reference/ anew from the code
	@.venv/bin/python tools/reference.py

guards: setup ## Remove each guarantee's guard in a copy and see its test fail
	@.venv/bin/python tools/guards.py $(ARGS)

prove: setup ## Run SEEDS simulated schedules (100000) and every chaos test ROUNDS times (50): hours
	@.venv/bin/waybill sim --seeds $(SEEDS) --seed 1000000
	@WAYBILL_PROVE=$(ROUNDS) .venv/bin/pytest tests/chaos $(ARGS)

clean: ## End local stacks, wipe their data and .venv/; keep the downloads
	@if [ -x .venv/bin/waybill ]; then for stack in $$(ls .waybill/stacks 2>/dev/null); do \
		.venv/bin/waybill dev reset --name $$stack || exit 1; done; fi
	@rm -rf .venv .waybill/stacks
