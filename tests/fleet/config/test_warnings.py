"""Warnings about a fleet's files: problems that a job would otherwise meet first."""

import re
import socket

import pytest
from tests.fleet.config.conftest import Load

from ringfence.fleet.config.warnings import find_warnings

_UNKNOWN = "agents: {a: {run: {model: none-such}"
_COPIES = "\nsandbox: {mode: clone}"
_BOUNDS = {
    "limits.cost_usd": _UNKNOWN + ", limits: {cost_usd: 1}}}",
    "budget.cost_usd": _UNKNOWN + ", budget: {cost_usd: 1}}}",
    "fleet.budget.cost_usd": _UNKNOWN + "}}\nfleet: {budget: {cost_usd: 1}}",
}


@pytest.mark.parametrize("bound", _BOUNDS)
def test_a_bound_on_dollars_without_a_price_is_foreseen(load: Load, bound: str):
    """The warning names the place of the model, the limit that needs its price, and where to add the price."""
    (doubt,) = find_warnings(load(_BOUNDS[bound] + _COPIES), {})
    assert re.search(
        r"/ringfence\.yaml:1:27: agents\.a\.run\.model: its jobs are refused, because of "
        rf"`{re.escape(bound)}`: .* price of 'none-such', .* `prices:` in .*ringfence\.yaml",
        doubt,
    )


_PRICED = {
    "by-the-file": _BOUNDS["budget.cost_usd"]
    + "\nprices: {none-such: {input: 1, output: 2, cache_write: 1, cache_read: 1}}",
    "by-the-table": "agents: {a: {budget: {cost_usd: 1}}}",
    "unbound": _UNKNOWN + "}}",
}


@pytest.mark.parametrize("kind", _PRICED)
def test_a_known_price_is_no_doubt(load: Load, kind: str):
    """A model with a price, or without a limit in dollars, causes no warning."""
    assert list(find_warnings(load(_PRICED[kind] + _COPIES), {})) == []


def test_a_price_is_asked_for_on_several_machines_too(load: Load):
    """A missing price is reported for a fleet of several machines, too; files that this machine lacks are not."""
    engine = "\nfleet: {engine: {type: postgres, url: 'postgresql://h/d'}}"
    (doubt,) = find_warnings(load(_BOUNDS["budget.cost_usd"] + engine), {})
    assert "`prices:`" in doubt


_SMALL = {
    "fleet": "fleet: {budget: {tokens: 1000}}\nagents: {a: {prompt: x}, b: {prompt: x}}",
    "agent": "agents: {a: {prompt: x, concurrency: 2, budget: {tokens: 1000}}}",
}


@pytest.mark.parametrize(
    ("kind", "key"),
    [("fleet", "fleet.budget.tokens"), ("agent", "agents.a.budget.tokens")],
    ids=["fleet", "agent"],
)
def test_a_budget_that_one_job_reserves_alone_is_foreseen(load: Load, kind: str, key: str):
    """Where several jobs may run, a warning says that one of them reserves the whole budget, and what to set."""
    (doubt,) = find_warnings(load(_SMALL[kind] + _COPIES), {})
    assert doubt.startswith(f"{key}: `limits.tokens` lets one job of agent 'a'")
    assert doubt.endswith("set `limits: {tokens: ...}` well below 1,000")
    assert list(find_warnings(load(_SMALL[kind] + _COPIES + "\nlimits: {tokens: 100}"), {})) == []


def test_a_label_that_no_worker_can_have_is_foreseen(load: Load):
    """On SQLite, where workers have no labels, a placement other than this machine causes a warning."""
    agent = "agents: {a: {prompt: x, placement: LABEL}}" + _COPIES
    (doubt,) = find_warnings(load(agent.replace("LABEL", "gpu")), {})
    assert "agents.a.placement: no worker has the label 'gpu'" in doubt
    assert list(find_warnings(load(agent.replace("LABEL", socket.gethostname())), {})) == []
    several = "\nfleet: {engine: {type: postgres, url: 'postgresql://h/d'}}"
    assert list(find_warnings(load(agent.replace("LABEL", "gpu") + several), {})) == []
