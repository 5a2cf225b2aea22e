"""A session and its sub-agents, read at once or followed as they grow."""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cases import slow_after

from ringfence.errors import RecordError, UsageError
from ringfence.events import Event, MessageSent, ModelReplied, Origin, TranscriptDamaged, TranscriptNoted
from ringfence.runtime.transcript.session import follow_events, read_events

_DEADLINE_S = 20


def _agents(events: list[Event]) -> set[str | None]:
    return {event.origin.agent for event in events if isinstance(event.origin, Origin)}


def _texts(events: list[Event]) -> list[str]:
    return [event.content for event in events if isinstance(event, MessageSent)]


async def _until_idle(path: Path, *, from_end: bool = False) -> list[Event]:
    with anyio.fail_after(_DEADLINE_S):
        events = follow_events(path, from_end=from_end, idle_s=0.6, poll_s=0.005)
        async with aclosing(events) as following:
            return [event async for event in following]


async def _next(events: AsyncIterator[Event], kind: type[Event]) -> Any:
    with anyio.fail_after(_DEADLINE_S):
        while not isinstance(event := await anext(events), kind):
            pass
        return event


def _append(path: Path, *records: Any) -> None:
    with path.open("ab") as file:
        file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))


def test_sub_agents_come_after_the_session(claude: Path) -> None:
    """Their events say whose they are."""
    events = list(read_events(claude))
    agents = [event.origin.agent for event in events if isinstance(event.origin, Origin)]
    assert agents == sorted(agents, key=lambda agent: agent is not None)
    assert _agents(events) == {None, "a0123456789abcdef"}


def test_a_sub_agent_that_is_no_file_is_told(claude: Path, tmp_path: Path) -> None:
    """A link in its place is not followed, a FIFO not waited for; the others are read."""
    secret = tmp_path / "secret"
    secret.write_text('{"type":"user","sessionId":"s","message":{"content":"not yours"}}\n')
    folder = claude.with_suffix("") / "subagents"
    (folder / "agent-link.jsonl").symlink_to(secret)
    os.mkfifo(folder / "agent-fifo.jsonl")
    events = list(read_events(claude))
    told = sorted(event.reason for event in events if isinstance(event, TranscriptDamaged))
    assert ["a FIFO" in told[0], "a link" in told[1]] == [True, True]
    assert "not yours" not in str(events)
    assert "a0123456789abcdef" in _agents(events)


def test_a_directory_of_sub_agents_that_is_a_link_is_left_alone(claude: Path, tmp_path: Path) -> None:
    """Nothing outside of the session's own directory is read."""
    folder = claude.with_suffix("") / "subagents"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert _agents(list(read_events(claude))) == {None}


def test_a_torn_end_is_told(claude: Path) -> None:
    """A session whose writer was killed reads up to there, and says so."""
    whole = claude.read_bytes()
    claude.write_bytes(whole + b'{"type":"user","mess')
    (told,) = [event for event in read_events(claude) if isinstance(event, TranscriptDamaged)]
    assert (told.offset, told.size_bytes) == (len(whole), 20)
    assert "has no end" in told.reason


def test_unknown_records_are_kept_as_they_were(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """What a later version writes is in the events, untouched."""
    later = {"type": "later", "sessionId": "s", "deep": [{"x": None}]}
    notes = [event for event in read_events(written(said(), later)) if isinstance(event, TranscriptNoted)]
    assert [(note.kind, note.record) for note in notes] == [("later", later)]


@pytest.mark.slow
async def test_following_gives_what_reading_gives(claude: Path) -> None:
    """The same events; those of sub-agents among the others."""
    followed = await _until_idle(claude)
    assert sorted(map(str, followed)) == sorted(map(str, read_events(claude)))


async def test_what_is_added_is_told_while_it_is_written(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """Half a record waits; a reply is told without waiting for what follows it."""
    path = written(said("one"))
    events = follow_events(path, poll_s=0.005)
    async with aclosing(events) as following:
        assert (await _next(following, MessageSent)).content == "one"
        line = json.dumps(said("two")).encode() + b"\n"
        with path.open("ab") as file:
            file.write(line[:20])
            file.flush()
            file.write(line[20:])
        assert (await _next(following, MessageSent)).content == "two"
        reply = {"id": "m", "model": "claude-opus-4-5", "content": [{"type": "text", "text": "done"}]}
        _append(path, {"type": "assistant", "sessionId": "s", "message": reply})
        assert (await _next(following, ModelReplied)).content == [{"type": "text", "text": "done"}]


async def test_an_empty_file_is_waited_for(tmp_path: Path, said: Callable[..., dict[str, Any]]) -> None:
    """Whose it is shows with its first record."""
    path = tmp_path / "s.jsonl"
    path.touch()
    events = follow_events(path, poll_s=0.005)
    async with aclosing(events) as following, anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, _append, path, said("first"))
        assert (await _next(following, MessageSent)).content == "first"


@pytest.mark.slow
async def test_a_new_sub_agent_is_followed(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """Its file is taken up when it appears."""
    path = written(said("one"))
    folder = path.with_suffix("") / "subagents"
    events = follow_events(path, poll_s=0.005)
    async with aclosing(events) as following:
        await _next(following, MessageSent)
        folder.mkdir(parents=True)
        _append(folder / "agent-a1.jsonl", said("sub", isSidechain=True, agentId="a1"))
        event = await _next(following, MessageSent)
        assert (event.content, event.origin.agent) == ("sub", "a1")


async def test_a_replaced_file_is_told_and_read_anew(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """What is in the new one is told from its beginning."""
    path = written(said("one"))
    events = follow_events(path, poll_s=0.005)
    async with aclosing(events) as following:
        await _next(following, MessageSent)
        written(said("new"), name="other").replace(path)
        assert "replaced" in (await _next(following, TranscriptDamaged)).reason
        assert (await _next(following, MessageSent)).content == "new"


async def test_a_link_in_the_place_of_a_followed_file_ends_it(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """It leads nowhere: following ends with an error instead."""
    path = written(said("one"))
    events = follow_events(path, poll_s=0.005)
    async with aclosing(events) as following:
        await _next(following, MessageSent)
        secret = written(said("not yours"), name="secret")
        (tmp_path / "link").symlink_to(secret)
        (tmp_path / "link").rename(path)
        with pytest.raises(UsageError, match="a link"):
            await _next(following, MessageSent)


async def test_a_sub_agent_that_becomes_a_link_does_not_end_the_session(
    claude: Path, said: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Its file is told of and left; the session is followed on."""
    agent = claude.with_suffix("") / "subagents" / "agent-a0123456789abcdef.jsonl"
    events = follow_events(claude, poll_s=0.005)
    async with aclosing(events) as following:
        await _next(following, MessageSent)
        (tmp_path / "link").symlink_to(claude)
        (tmp_path / "link").rename(agent)
        assert "a link" in (await _next(following, TranscriptDamaged)).reason
        _append(claude, said("after"))
        while (await _next(following, MessageSent)).content != "after":
            pass


@pytest.mark.slow
async def test_only_what_is_new(written: Callable[..., Path], said: Callable[..., dict[str, Any]]) -> None:
    """With `from_end` what was there before is left out."""
    path = written(said("old"))
    assert _texts(await _until_idle(path, from_end=True)) == []


@pytest.mark.parametrize("lines", [1, 40], ids=["one", "many"])
@pytest.mark.parametrize("idle_s", slow_after(1, [0.3, None]), ids=["ends-first", "goes-on"])
async def test_a_file_that_is_none_is_not_followed(
    lines: int, idle_s: float | None, written: Callable[..., Path]
) -> None:
    """Lines that no client writes end it with an error that says so, soon."""
    path = written(*[{"line": number} for number in range(lines)])
    events = follow_events(path, idle_s=idle_s, poll_s=0.005)
    async with aclosing(events) as following:
        with (
            anyio.fail_after(_DEADLINE_S),
            pytest.raises(RecordError, match=r"s\.jsonl:1: .*expected a session"),
        ):
            await anext(following)
