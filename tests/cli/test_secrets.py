"""Secrets of the environment are in no record, on no screen and in no stream."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import slow_after

from ringfence.journal import run_dirs

Cli = Callable[..., Any]
SECRET = "hunter2-correct-horse-battery"


@pytest.fixture
def leaky(script: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model that says a secret of the user's, in text that comes in small pieces, and in a command."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    call = {"name": "shell", "input": {"command": f"echo {SECRET} | tee leak", "reasoning": SECRET}}
    slow = {"chunk_bytes": 64, "delay_s": 0}
    first = {"text": f"so {SECRET} it is: {SECRET}!", "tools": [call], "slow": slow}
    return str(script(first, {"text": f"bye {SECRET}"}))


@pytest.mark.parametrize("form", slow_after(1, [[], ["--json"]]), ids=["view", "json"])
def test_no_secret_is_shown_or_kept(ringfence: Cli, workspace: Path, leaky: str, form: list[str]):
    """Neither whole nor in the pieces in which it came."""
    ended = ringfence("run", f"use {SECRET}", "-C", workspace, "--model", leaky, *form)
    run = run_dirs()[0]
    kept = b"".join(path.read_bytes() for path in run.rglob("*.json*"))
    assert (ended.code, SECRET in ended.out + ended.err, SECRET.encode() in kept) == (9, False, False)


def test_no_secret_is_in_an_error(ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Errors quote values; not these."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    ended = ringfence("run", "x", "-C", workspace / SECRET)
    assert (ended.code, SECRET in ended.err) == (2, False)
