"""Whose a transcript is, and what a file that is none gets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import RecordError
from ringfence.runtime.transcript.discovery import identify, survey


def test_each_client_is_told_by_its_records(claude: Path, codex: Path) -> None:
    """The name of the file does not matter."""
    other = claude.with_name("rollout-none")
    claude.rename(other)
    assert (identify(other), identify(codex)) == ("claude", "codex")


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        (b"", 1, "is empty"),
        (b"\n\n", 1, "is empty"),
        (b"hello world\n", 1, "is no JSON"),
        (b"\n{\n", 2, "is no JSON"),
        (b"PK\x03\x04\0\0\xff\n", 1, "is no JSON"),
        (b"[]\n", 1, "is no JSON object"),
        (b'{"name":"x"}\n', 1, "no known agent CLI"),
        (b'{"type":"system","subtype":"init","session_id":"s"}\n', 1, "stream-json"),
        (b'{"seq":0,"time":"","prev":"","event":"journal.opened","data":{}}\n', 1, "ringfence runs logs"),
    ],
    ids=["empty", "blank", "text", "torn", "binary", "array", "object", "stream-json", "journal"],
)
def test_a_file_that_is_no_transcript(content: bytes, place: int, reason: str, tmp_path: Path) -> None:
    """The error says where, what is there, and what was expected."""
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError) as raised:
        identify(path)
    text = str(raised.value)
    assert text.startswith(f"{path}:{place}: ")
    assert reason in text
    assert "expected a session of the claude CLI" in text
    assert "\n" not in text


def test_a_damaged_beginning_does_not_hide_whose_it_is(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """The first record that is known decides, among the first lines."""
    assert identify(written(b"\0\0\0\n", b'{"torn\n', {"type": "mode"}, said())) == "claude"


def test_a_survey_says_who_where_and_what(claude: Path, codex: Path) -> None:
    """The beginning is enough for the version, the workspace, the prompt and the model."""
    first, second = survey(claude), survey(codex)
    assert (first.client_version, first.workspace, first.prompt, first.model) == (
        "2.1.329",
        "/home/dev/project",
        "Do the thing\n",
        "claude-opus-4-5",
    )
    assert (second.client_version, second.workspace, second.prompt, second.model) == (
        "0.169.0",
        "/home/dev/project",
        "Do the thing",
        "gpt-5.5-codex",
    )


def test_what_the_client_writes_itself_is_no_prompt(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """Messages marked as the client's own, and commands to it, are passed over."""
    typed = said("<command-name>/clear</command-name>")
    assert survey(written(said("its own", isMeta=True), typed, said("by the user"))).prompt == "by the user"
