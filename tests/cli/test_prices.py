"""Prices: what is known of them, where they come from, and limits on cost for the real clients."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.promises.needs import need_client

from ringfence.config.paths import user_config_file

Cli = Callable[..., Any]


def shown(ringfence: Cli) -> dict[str, dict[str, Any]]:
    """`config prices --json`, by model."""
    ended = ringfence("config", "prices", "--json")
    assert ended.code == 0, ended.err
    return {row["model"]: row for row in json.loads(ended.out)["prices"]}


def test_each_price_has_a_source_and_a_date(ringfence: Cli, workspace: Path):
    """`config prices` names for each model of the table where its price was read, and when."""
    rows = shown(ringfence)
    assert {"claude-opus-5-5", "claude-fable-5-2", "gpt-6.1-sol", "gpt-5.5"} <= rows.keys()
    for row in rows.values():
        assert "." in row["source"], row
        assert len(row["checked_on"]) == len("2026-11-24"), row


def test_own_prices_stand_before_the_table(ringfence: Cli, workspace: Path):
    """`prices:` in one's own file overrides the table; the list says which, and where it is written."""
    user_config_file().parent.mkdir(parents=True, exist_ok=True)
    price = "{input: 1, output: 2, cache_write: 3, cache_read: 0.5}"
    user_config_file().write_text(f"prices:\n  gpt-6.1-sol: {price}\n  mine: {price}\n")
    rows = shown(ringfence)
    assert (rows["gpt-6.1-sol"]["configured"], rows["gpt-6.1-sol"]["output"]) == (True, 2.0)
    assert str(user_config_file()) in rows["mine"]["source"]
    assert not rows["gpt-5.5"]["configured"]
    assert "mine *" in ringfence("config", "prices").out


def test_a_projects_file_changes_no_price(ringfence: Cli, workspace: Path):
    """Nobody has trusted it: a price of nothing would undo the limit on cost."""
    price = "{input: 0, output: 0, cache_write: 0, cache_read: 0}"
    (workspace / "ringfence.yaml").write_text(f"prices:\n  gpt-6.1-sol: {price}\n")
    ended = ringfence("config", "prices")
    assert ended.code != 0
    assert "prices.gpt-6.1-sol" in ended.err


CLIENTS = {
    "sonnet": ("claude-cli", "claude", "--model", "sonnet"),
    "opus with a large context": ("claude-cli", "claude", "--model", "opus[1m]"),
    "codex": ("codex-cli", "codex"),
}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", CLIENTS)
def test_a_client_works_under_a_limit_on_cost(
    ringfence: Cli, workspace: Path, model: Cli, monkeypatch: pytest.MonkeyPatch, case: str
):
    """By the model that its requests name: an alias is resolved by the client, and codex has a priced default."""
    runtime, program, *words = CLIENTS[case]
    url = model({"text": "done"})
    for provider, path in {"ANTHROPIC": "", "OPENAI": "/v1"}.items():
        monkeypatch.setenv(f"{provider}_BASE_URL", url + path)
        monkeypatch.setenv(f"{provider}_API_KEY", f"sk-{provider.lower()}-0123456789abcdef0123")
    ended = ringfence(
        "run", "say done", "--runtime", runtime, "--cli-path", need_client(program), *words,
        "--max-cost-usd", "5", "--json",
    )  # fmt: skip
    events = [json.loads(line) for line in ended.out.splitlines()]
    spent = [each["cost_usd"] for each in events if each.get("event") == "model.exchanged"]
    assert spent, ended.err
    assert all(cost > 0 for cost in spent)
    assert "cost_limit_needs_price" not in ended.out


def test_a_model_without_a_price_is_refused_before_it_is_asked(
    ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """The refusal says where a price is given, and what else bounds a run."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-0123456789abcdef0123")
    ended = ringfence("run", "x", "--runtime", "codex-cli", "--model", "gpt-9", "--max-cost-usd", "1")
    assert ended.code == 4
    assert "'gpt-9'" in ended.err
    assert "ringfence config prices" in ended.err
