"""A fleet's files: checked, shown, included and imported without a daemon."""

import json
from typing import Any

import pytest
from tests.promises.product import Product

AGENTS = {"one": {"prompt": "p", "workspace": "."}}


def test_validate(product: Product) -> None:
    """`fleet validate` says which fleet and agents a file has, and whether it is trusted."""
    file = product.configure(fleet={"name": "shop"}, agents=AGENTS)
    found = product.does("fleet validate", "--json").json
    assert (found["fleet"], found["agents"], found["untrusted"]) == ("shop", ["one"], [str(file)])
    product.does("trust", "--yes")
    assert product.does("fleet validate", "--json").json["untrusted"] == []


WRONG = {
    "unknown key": ("agents: {a: {promt: x}}\n", "1:14", "promt"),
    "unknown agent": (
        "agents:\n  a: {prompt: x, triggers: {t: {type: after, agent: b}}}\n",
        "2:",
        "b",
    ),
    "name": ('agents: {"A b": {prompt: x}}\n', "1:", "A b"),
    "cron": ('agents: {a: {prompt: x, schedules: {s: {cron: "61 * * * *"}}}}\n', "1:", "61"),
    "never": ('agents: {a: {prompt: x, schedules: {s: {cron: "0 0 30 2 *"}}}}\n', "1:", "30 2"),
    "time zone": ("fleet: {timezone: Nowhere/Here}\nagents: {a: {prompt: x}}\n", "1:19", "Nowhere/Here"),
    "triggers in a list": ("agents: {a: {prompt: x, triggers: [t]}}\n", "1:", "triggers"),
    "type of a trigger": ("agents: {a: {prompt: x, triggers: {t: {type: dream}}}}\n", "1:", "dream"),
    "secret in plain text": (
        "agents: {a: {prompt: x, triggers: {t: {type: webhook, secret: plain-text}}}}\n",
        "1:",
        "secret",
    ),
    "unknown secret": (
        'agents: {a: {prompt: x, triggers: {t: {type: webhook, secret: "${secret:none}"}}}}\n',
        "1:",
        "none",
    ),
    "circle": (
        "agents: {a: {prompt: x, triggers: {t: {type: after, agent: a}}}}\n",
        "1:",
        "a",
    ),
    "hook on the host": (
        "agents: {a: {prompt: x, hooks: {after_run: [{type: command, command: ls, where: host}]}}}\n",
        "1:",
        "host",
    ),
    "address": ("fleet: {webhooks: {address: nowhere}}\nagents: {a: {prompt: x}}\n", "1:", "nowhere"),
    "too many at once": ("agents: {a: {prompt: x, concurrency: 2, workspace: .}}\n", "1:", "concurrency"),
    "variable": ('agents: {a: {prompt: "${NOT_SET_AT_ALL}"}}\n', "1:", "NOT_SET_AT_ALL"),
    "included file": ("include: [{file: none.yaml}]\n", "1:", "none.yaml"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(product: Product, case: str) -> None:
    """A fleet's file that is wrong ends with 78, and a line with file, line, column and value."""
    text, place, value = WRONG[case]
    file = product.write("ringfence.yaml", text)
    ended = product("fleet validate")
    assert ended.ends_as("configuration")
    assert f"{file}:{place.removeprefix(':')}" in ended.err
    assert value in ended.err


def test_show(product: Product) -> None:
    """`fleet show --origin` prints what holds for each agent, and which line says so."""
    file = product.configure(fleet={"name": "shop"}, limits={"turns": 7}, agents=AGENTS)
    out = product.does("fleet show", "--origin").out
    assert "7" in out
    assert f"{file}:1:" in out
    assert "one" in product.does("fleet show", "--json").out


def limits(product: Product, agent: str) -> dict[str, Any]:
    """An agent's limits."""
    values = product.does("fleet show", "--agent", agent, "--json").json["values"]
    above = f"agents.{agent}.limits."
    return {key.removeprefix(above): value for key, value in values.items() if key.startswith(above)}


def test_a_budget_without_a_price(product: Product) -> None:
    """A budget of money for a model whose price is not known is named by `fleet validate`, with its place."""
    agent = {"prompt": "p", "budget": {"cost_usd": 1}, "run": {"model": "odd-model"}}
    file = product.configure(agents={"one": agent})
    (doubt,) = product.does("fleet validate", "--json").json["warnings"]
    assert f"{file}:1:" in doubt
    assert "odd-model" in doubt


def test_sections_are_laid_upon_each_other(product: Product) -> None:
    """What stands at the top of a file holds for all agents, and what an agent says is stronger, key by key."""
    agents = {"one": {"prompt": "p"}, "two": {"prompt": "p", "limits": {"turns": 9}}}
    product.configure(limits={"turns": 7, "tool_calls": 8}, agents=agents)
    found = {name: limits(product, name) for name in agents}
    assert (found["one"]["turns"], found["two"]["turns"], found["two"]["tool_calls"]) == (7, 9, 8)


def test_include(product: Product) -> None:
    """Agents of an included file are named `FLEET.AGENT`, and overrides are laid upon it."""
    product.write("sub/ringfence.yaml", json.dumps({"fleet": {"name": "sub"}, "agents": AGENTS}))
    include = [{"file": "sub/ringfence.yaml", "overrides": {"limits": {"turns": 3}}}]
    product.configure(fleet={"name": "top"}, include=include, agents={"own": {"prompt": "p"}})
    found = product.does("fleet validate", "--json").json
    assert sorted(found["agents"]) == ["own", "sub.one"]
    assert limits(product, "sub.one")["turns"] == 3


def test_another_file(product: Product) -> None:
    """`--file` names a fleet's file elsewhere."""
    file = product.place / "elsewhere" / "other.yaml"
    product.configure(file, fleet={"name": "other"}, agents={"one": {"prompt": "p"}})
    assert product.does("fleet validate", "--file", file, "--json").json["fleet"] == "other"


def test_no_file(product: Product) -> None:
    """Without a fleet's file every command of it ends with one line."""
    ended = product("fleet validate")
    assert ended.code in {2, 78}
    assert len(ended.err.strip().splitlines()) == 1


def test_systemd(product: Product) -> None:
    """`fleet systemd` prints a unit that starts this fleet."""
    file = product.configure(fleet={"name": "shop"}, agents=AGENTS)
    out = product.does("fleet systemd").out
    assert "[Service]" in out
    assert str(file) in out
    assert "Type=notify" in out


HERDCTL = """
version: 1
fleet: {name: herd}
agents: [{path: reviewer.yaml}]
web: {enabled: true}
"""
REVIEWER = """
name: reviewer
runtime: cli
default_prompt: Review what changed.
max_turns: 12
schedules:
  daily: {type: cron, cron: "0 9 * * 1-5"}
"""


@pytest.fixture
def herd(product: Product) -> Product:
    """A product with a fleet of herdctl's."""
    product.write("herdctl.yaml", HERDCTL)
    product.write("reviewer.yaml", REVIEWER)
    return product


def test_herdctl_as_it_is(herd: Product) -> None:
    """A fleet of herdctl's is read as it is, and each key that does not come over is named with its place."""
    ended = herd.does("fleet validate", "--file", "herdctl.yaml")
    assert f"{herd.project / 'herdctl.yaml'}:5:6" in ended.err
    assert "web" in ended.err


def test_herdctl_imported(herd: Product) -> None:
    """`fleet import` writes it as a `ringfence.yaml` that is valid, and overwrites nothing."""
    herd.does("fleet import", "herdctl.yaml")
    found = herd.does("fleet validate", "--json").json
    assert (found["fleet"], found["agents"]) == ("herd", ["reviewer"])
    assert limits(herd, "reviewer")["turns"] == 12
    herd("fleet import", "herdctl.yaml").fails_as("usage", "ringfence.yaml")


def test_herdctl_that_is_wrong(herd: Product) -> None:
    """A file of herdctl's that is wrong ends with 78 and its place, and nothing is written."""
    herd.write("reviewer.yaml", REVIEWER.replace("max_turns: 12", "max_turns: many"))
    ended = herd("fleet import", "herdctl.yaml")
    assert ended.ends_as("configuration")
    assert "reviewer.yaml:5" in ended.err
    assert not (herd.project / "ringfence.yaml").exists()
