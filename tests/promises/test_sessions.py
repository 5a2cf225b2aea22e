"""Transcripts of sessions, as the clients keep them and as our own runs do."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.promises.product import Product, read_until, says

ID = "3f0c1d5e-0000-4000-8000-000000000001"
THREAD = "0195f000-0000-7000-8000-000000000002"


def claude_lines() -> list[dict[str, Any]]:
    """A transcript of claude's."""
    common = {"sessionId": ID, "version": "2.1.329", "cwd": "/home/dev/shop"}
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make all"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": "missing: libfoo \x1b[31m",
        "is_error": True,
    }
    reply = {"id": "m1", "model": "claude-opus-4-5", "content": [use], "stop_reason": "tool_use"}
    usage = {"usage": {"input_tokens": 900, "output_tokens": 30}}
    asked = {"role": "user", "content": "Why is the build red?"}
    return [
        {"type": "user", "timestamp": "2026-01-28T10:30:45.100Z", "message": asked, **common},
        {
            "type": "assistant",
            "timestamp": "2026-01-28T10:30:47.200Z",
            "message": {**reply, **usage},
            **common,
        },
        {
            "type": "user",
            "timestamp": "2026-01-28T10:30:48.000Z",
            "message": {"role": "user", "content": [result]},
            **common,
        },
    ]


@pytest.fixture(scope="module")
def kept(make_product: Callable[[], Product]) -> Product:
    """A product whose user has a session of claude's, and a run."""
    product = make_product()
    file = transcript(product)
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in claude_lines()))
    product.run(product.script(says("Ours.")), prompt="Our own task.")
    return product


def transcript(product: Product) -> Path:
    """Where claude keeps it."""
    return product.home / ".claude" / "projects" / "-home-dev-shop" / f"{ID}.jsonl"


def test_list(kept: Product) -> None:
    """`session ls` lists sessions of the clients and our own, the newest first, with workspace and task."""
    rows = {row["client"]: row for row in kept.does("session ls", "--json").json}
    assert rows["claude"]["session_id"] == ID
    assert (rows["claude"]["workspace"], rows["claude"]["prompt"]) == (
        "/home/dev/shop",
        "Why is the build red?",
    )
    assert rows["ringfence"]["prompt"] == "Our own task."


@pytest.mark.parametrize(
    ("words", "clients"),
    [
        (("--client", "claude"), {"claude"}),
        (("-C", "{project}"), {"ringfence"}),
        (("-n", "1"), {"ringfence"}),
    ],
    ids=["client", "workspace", "number"],
)
def test_list_is_narrowed(kept: Product, words: tuple[str, ...], clients: set[str]) -> None:
    """`session ls` is narrowed by client, by workspace and by number."""
    given = [word.format(project=kept.project) for word in words]
    assert {row["client"] for row in kept.does("session ls", "--json", *given).json} == clients


def test_show(kept: Product) -> None:
    """`session show` prints task, calls and results in their order, and nothing that acts on the terminal."""
    out = kept.does("session show", ID[:8]).out
    places = [out.index(text) for text in ("Why is the build red?", "make all", "missing: libfoo")]
    assert places == sorted(places)
    assert "\x1b" not in out


def test_show_for_programs(kept: Product) -> None:
    """`session show --json` prints events, each with the file and line that it was read from."""
    events = kept.does("session show", transcript(kept), "--json").events
    assert [event["event"] for event in events if event["event"].startswith("tool.")] == [
        "tool.called",
        "tool.returned",
    ]
    assert [event["origin"]["line"] for event in events][-1] == 3


def test_a_damaged_transcript(kept: Product) -> None:
    """Lines that cannot be read are told, and do not hide the rest."""
    file = kept.place / "damaged.jsonl"
    lines = [json.dumps(line) for line in claude_lines()]
    file.write_bytes("\n".join([lines[0], "{no json", lines[1], '{"type":"x'.ljust(20)]).encode() + b"\xff\0")
    events = kept.does("session show", file, "--json").events
    assert "transcript.damaged" in [event["event"] for event in events]
    assert "tool.called" in [event["event"] for event in events]


def test_follow(kept: Product) -> None:
    """`session follow` prints what is added as it is written, until it is interrupted."""
    file = kept.place / "growing.jsonl"
    first, *more = [json.dumps(line) + "\n" for line in claude_lines()]
    file.write_text(first)
    with kept.started("session follow", str(file), "--json") as process:
        read_until(process.stdout, b"message.sent")
        with file.open("a") as growing:
            growing.writelines(more)
        read_until(process.stdout, b"tool.returned")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


@pytest.mark.parametrize("command", ["session show", "session follow"])
def test_a_session_that_is_not_there(kept: Product, command: str) -> None:
    """A session that is not there is a usage error that names it."""
    kept(command, "no-such-session").fails_as("usage", "no-such-session")


def test_links_are_refused(kept: Product) -> None:
    """No link is followed to a transcript."""
    link = kept.place / "link.jsonl"
    link.symlink_to(transcript(kept))
    assert kept("session show", link).code != 0
