"""Whatever a client prints, reading it neither fails nor holds more and more."""

import json
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples, slow_after

from ringfence.journal import Journal, new_run_id, verify_run
from ringfence.runtime.agent_cli.base import AgentCli
from ringfence.runtime.agent_cli.exit_status import Exit, classify_exit
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.codex.cli import CodexCli
from ringfence.runtime.transcript.record import Line, parse

from .streaming import captured, read

CLIS: dict[str, AgentCli] = {"claude": ClaudeCli(), "codex": CodexCli()}
_LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "\0", "x" * 300])
)
_ANY = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
_SAMPLES = {
    "claude": ["tool", "sub-agent", "mcp-failed", "denied", "schema", "retried", "api-error", "partial"],
    "codex": ["tool", "patch", "schema", "api-error", "mcp", "long"],
}


@cache
def _lines(client: str) -> list[dict[str, Any]]:
    return [json.loads(line) for name in _SAMPLES[client] for line in captured(client, name)]


@st.composite
def _mutated(draw: st.DrawFn, client: str) -> bytes:
    """A line that a client might print, with something in it exchanged; or anything at all."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=40)).replace(b"\n", b"")
    line: Any = json.loads(json.dumps(draw(st.sampled_from(_lines(client)))))
    at = line
    while isinstance(at, dict) and at:
        key = draw(st.sampled_from(sorted(at)))
        if draw(st.booleans()) or not isinstance(at[key], dict):
            at[key] = draw(_ANY)
            break
        at = at[key]
    return json.dumps(line).encode()


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_any_lines_can_be_read(client: Any, tmp_path: Path) -> None:
    """No bytes make it raise; each event can be journaled; how it ended can be told."""

    @settings(max_examples=examples(120), deadline=None)
    @given(st.lists(_mutated(client), max_size=8))
    def check(lines: list[bytes]) -> None:
        output = CLIS[client].output()
        for event in read(output, lines):
            journal.append(event)
        assert classify_exit(output.report, Exit(0)).reason

    with Journal.create(tmp_path, new_run_id()) as journal:
        check()
        journal.seal()
    assert verify_run(tmp_path).ok


ENDLESS = {
    "claude": {
        "type": "assistant",
        "message": {"id": "m", "content": [{"type": "text", "text": "x" * 20_000}]},
    },
    "codex": {"type": "item.completed", "item": {"type": "agent_message", "text": "x" * 20_000}},
}
CALLS = {
    "claude": {"type": "assistant", "message": {"id": "m", "content": [{"type": "tool_use", "name": "x"}]}},
    "codex": {"type": "item.started", "item": {"type": "command_execution", "command": "x"}},
}


@pytest.mark.parametrize("client", ["claude", "codex"])
@pytest.mark.parametrize(
    "lines", slow_after(1, [ENDLESS, CALLS]), ids=["a reply without an end", "calls that never return"]
)
def test_an_output_without_an_end_is_not_held(client: str, lines: dict[str, Any]) -> None:
    """Neither the pieces of a reply nor calls that never return are held without bound."""
    output = CLIS[client].output()
    tracemalloc.start()
    try:
        for number in range(1000):
            value = json.loads(json.dumps(lines[client]))
            target = value["message"]["content"][0] if client == "claude" else value["item"]
            target["id"] = f"{number}-" + "i" * 20_000
            data = json.dumps(value).encode()
            line = Line(number + 1, 0, len(data), data)
            output.take(line, parse(line))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 6_000_000
