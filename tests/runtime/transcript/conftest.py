"""Sessions of the real clients, made small: the shapes of their records, with invented content."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.events import Event
from ringfence.runtime.transcript.record import Record
from ringfence.runtime.transcript.translator import Translator

SAMPLES = Path(__file__).parent / "samples"
CLAUDE_ID = "00000001-0000-4000-8000-000000000001"
CODEX_ID = "0000002a-0000-4000-8000-00000000002a"


def translated(translator: Translator, *values: dict[str, Any]) -> list[Event]:
    """The events of records, to the end of their file."""
    events = [
        event
        for line, value in enumerate(values, 1)
        for event in translator.translate(Record(line, 0, value))
    ]
    return [*events, *translator.flush()]


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    """A session of claude 2.1.329 with one sub-agent, where that client would keep it."""
    project = tmp_path / "claude-home" / "projects" / "-home-dev-project"
    shutil.copytree(SAMPLES / "claude-2.1.329", project)
    return project / f"{CLAUDE_ID}.jsonl"


@pytest.fixture
def codex(tmp_path: Path) -> Path:
    """A rollout of codex 0.169.0, where that client would keep it."""
    day = tmp_path / "codex-home" / "sessions" / "2026" / "01" / "02"
    shutil.copytree(SAMPLES / "codex-0.169.0", day)
    return next(day.glob("*.jsonl"))


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A session of claude with these records; bytes are put in as they are."""

    def write(*records: Any, name: str = "s.jsonl") -> Path:
        path = tmp_path / name
        lines = [each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in records]
        path.write_bytes(b"".join(lines))
        return path

    return write


@pytest.fixture
def said() -> Callable[..., dict[str, Any]]:
    """A user's message as claude writes it."""

    def record(text: Any = "hello", **more: Any) -> dict[str, Any]:
        return {
            "type": "user",
            "sessionId": "s",
            "version": "2.1.329",
            "cwd": "/home/dev/project",
            "timestamp": "2026-01-02T03:04:05.000Z",
            "message": {"role": "user", "content": text},
            **more,
        }

    return record
