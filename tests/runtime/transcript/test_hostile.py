"""Whatever stands in a transcript, it can be read, recorded and shown."""

import io
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.cases import examples, slow_after

from ringfence.cli.render.transcript import print_event
from ringfence.events import Event, TranscriptDamaged, TranscriptNoted
from ringfence.journal import Journal, new_run_id, read, verify_run
from ringfence.runtime.transcript.session import read_events

_TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\ud800", "\x1b[2J", "$blob", "\0", "\u202e"]
)
_LEAF = st.none() | st.booleans() | st.integers() | st.floats() | _TEXT
_ANY = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def _some(**values: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these keys, each with a value that fits or any other."""
    return st.fixed_dictionaries({}, optional={key: value | _ANY for key, value in values.items()})


_BLOCK = _some(
    type=st.sampled_from(["text", "tool_use", "tool_result", "thinking", "output_text"]),
    text=_TEXT,
    id=_TEXT,
    name=_TEXT,
    input=_ANY,
    tool_use_id=_TEXT,
    content=_ANY,
)
_USAGE = _some(input_tokens=st.integers(), output_tokens=st.integers(), cached_input_tokens=st.integers())
_MESSAGE = _some(id=_TEXT, model=_TEXT, content=st.lists(_BLOCK, max_size=3) | _TEXT, usage=_USAGE)
_CLAUDE = _some(
    type=st.sampled_from(["user", "assistant", "system", "attachment", "summary", "cost-state"]),
    subtype=st.sampled_from(["api_error", "compact_boundary", "informational"]),
    timestamp=st.datetimes().map(lambda when: when.isoformat() + "Z"),
    message=_MESSAGE,
    isSidechain=st.booleans(),
    agentId=_TEXT,
    sessionId=_TEXT,
    cwd=_TEXT,
    error=_some(status=st.integers(), formatted=_TEXT),
    retryInMs=st.integers(),
)
_PAYLOAD = _some(
    type=st.sampled_from(
        ["message", "reasoning", "function_call", "custom_tool_call", "function_call_output", "turn_aborted"]
    ),
    role=st.sampled_from(["user", "assistant", "developer"]),
    content=st.lists(_BLOCK, max_size=3),
    summary=st.lists(_BLOCK, max_size=2),
    arguments=_TEXT,
    output=_ANY,
    call_id=_TEXT,
    name=_TEXT,
    usage=_USAGE,
    id=_TEXT,
)
_CODEX = _some(
    type=st.sampled_from(
        ["response_item", "event_msg", "session_meta", "turn_context", "token_usage_record"]
    ),
    timestamp=_TEXT,
    payload=_PAYLOAD,
)
_FIRST = {
    "claude": {"type": "mode", "sessionId": "s"},
    "codex": {"type": "session_meta", "timestamp": "", "payload": {"id": "s"}},
}


def _journal(directory: Path, events: Iterable[Event]) -> None:
    """Write events into a record of their own."""
    with Journal.create(directory, new_run_id()) as journal:
        for event in events:
            journal.append(event)
        journal.seal()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "records"), slow_after(1, [("claude", _CLAUDE), ("codex", _CODEX)]), ids=["claude", "codex"]
)
def test_any_records_can_be_read_recorded_and_shown(
    client: str, records: st.SearchStrategy[dict[str, Any]]
) -> None:
    """Every record is an event that the journal takes and gives back, and that shows nothing active."""

    @settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(records, max_size=4))
    def check(values: list[dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory(prefix="ringfence-hostile-") as folder:
            path = Path(folder, "s.jsonl")
            path.write_text("".join(json.dumps(value) + "\n" for value in [_FIRST[client], *values]))
            events = list(read_events(path))
            shown = io.StringIO()
            console = Console(file=shown, width=80)
            for event in events:
                print_event(console, event, None)
            directory = Path(folder, "run")
            _journal(directory, events)
            assert verify_run(directory).ok
            assert len(list(read(directory))) == len(events) + 3
        assert not set(shown.getvalue()) & set("\x1b\0\u202e")

    check()


def test_large_numbers_are_kept(tmp_path: Path) -> None:
    """As they were; one that no machine would take is told as damage."""
    path = tmp_path / "s.jsonl"
    number = "123456789012345678901234567890"
    path.write_text(
        f'{{"type":"later","sessionId":"s","n":{number}}}\n{{"type":"later","n":{"9" * 10_000}}}\n'
    )
    _journal(tmp_path / "run", read_events(path))
    event, damage = [record.event for record in read(tmp_path / "run")][1:3]
    assert isinstance(event, TranscriptNoted)
    assert event.record["n"] == int(number)
    assert isinstance(damage, TranscriptDamaged)
