# The same few commands for people and for CI. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup check test test-user test-fast test-full test-rest test-user-rest test-latest test-oldest test-chaos test-kubernetes mutants demo demo-loop docs bench lock clean release-check
.PHONY: check-source check-format check-lint check-types check-imports check-pages check-words check-examples

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Tests that need a container engine skip themselves with the reason; those that cost money run only by name.
# One more than there are cores: tests wait for deadlines and each other's processes much of their time.
WORKERS ?= $(shell expr $$(nproc) + 1)
CHAOS_S ?= 1800
JOBS ?= 1
# Tests start ringfence hundreds of times: without bytecode each start compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## List these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-14s %s\n", $$1, $$2 }'

setup: ## Make .venv with everything needed (instant when nothing changed)
	@./scripts/setup.sh

check: check-source check-examples ## Format, lint, types, import rules, generated pages, words, examples in the docs

check-source: check-format check-lint check-types check-imports check-pages check-words

check-format: setup
	$(BIN)/ruff format --check
check-lint: setup
	$(BIN)/ruff check
check-types: setup
	$(BIN)/mypy
check-imports: setup
	$(BIN)/lint-imports
check-pages: setup
	$(BIN)/python scripts/generate_reference.py --check
check-words: setup
	$(BIN)/python scripts/check_words.py
check-examples: setup
	$(PYTEST) -q -n $(WORKERS) tests/docs

test: setup ## The suite: all that a change of this repository can break
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "not live and not chaos and not full" --durations=15

test-user: setup ## The suite without containers and without what cannot depend on the user (tests/tiers.py); properties on few examples
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup --hypothesis-profile fast \
		-m "not live and not chaos and not full and not any_user and not docker" --durations=15

test-rest: setup ## What `make test` leaves out (tests/tiers.py): combinations of engines and clients
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "full and not live and not chaos"

test-user-rest: setup ## What `make test-user` leaves out, with every engine
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "(full or any_user or docker) and not live and not chaos"

test-fast: setup ## What answers soon: without what is slow, or needs an engine or a network
	$(PYTEST) -q -n $(WORKERS) --dist worksteal --hypothesis-profile fast -m "not slow and not docker and not network and not live and not chaos and not full"

test-full: ## Before a release, what CI leaves out: newest and oldest clients, every engine as both users, the long storm, mutants, the release itself
	@.ci/run full

test-latest: setup ## The real clients' tests with the newest claude and codex, in bubblewrap
	TEST_CLIENTS="$$(scripts/clients.sh --latest)" TEST_REQUIRES_CLIENTS=any RINGFENCE_CLIENT__FORCE=true \
		$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "not docker" tests/real_clients tests/integrations/clients tests/endings

test-oldest: setup ## The same with the oldest claude and codex that docs/reference/runtimes.md names
	TEST_CLIENTS="$$(scripts/clients.sh --oldest)" TEST_REQUIRES_CLIENTS=any \
		$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "not docker" tests/real_clients tests/integrations/clients tests/endings

mutants: setup ## Disable each guard of tests/mutants/guards.toml in a copy, see that a test notices (JOBS=N, GUARDS="ID ...")
	$(BIN)/python -m tests.mutants --jobs $(JOBS) $(GUARDS)

test-chaos: setup ## A fleet of twenty for half an hour, while its workers, daemon, sandboxes and database are killed (CHAOS_S=SECONDS)
	$(BIN)/python -m tests.fleet.chaos.storm --seconds $(CHAOS_S)

test-kubernetes: setup ## Sandboxes and a fleet on a node of Kubernetes, which is built, started and ended (as root, with Docker)
	scripts/kubernetes.sh install node
	$(BIN)/ringfence image build --bootstrap base
	@export KUBERNETES_STATE="$$(mktemp -d)/node"; trap 'scripts/kubernetes.sh down; rmdir "$${KUBERNETES_STATE%/node}"' EXIT; \
		scripts/kubernetes.sh up node && \
		scripts/kubernetes.sh image $$($(BIN)/ringfence image show base --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["names"])') && \
		$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m kubernetes_node tests/kubernetes_node

demo: setup ## The main job: an agent repairs the failing tests of examples/red-suite in a sandbox (SANDBOX=docker: in a container)
	@./scripts/demo.sh

demo-loop: setup ## A loop: five stories for examples/loop, tests first, each in sandboxes, what passes on a branch
	@./scripts/demo-loop.sh

docs: setup ## Write the reference pages that are made from the code
	$(BIN)/python scripts/generate_reference.py

bench: setup ## Measure, print the table and write docs/reference/performance.md
	$(BIN)/python -m benchmarks

release-check: setup ## Build a release, install and try it as users do, write its SBOM, all in dist/ (OUTSIDE=1: also request links to other hosts)
	@PYTHONPATH= $(BIN)/python scripts/release_check.py $(if $(OUTSIDE),--outside)

lock: setup ## Take newer dependencies into uv.lock
	$(BIN)/uv lock --upgrade --system-certs

clean: ## Back to a fresh clone
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
