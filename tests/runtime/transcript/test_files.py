"""What may stand in a transcript's place."""

import os
import socket
from pathlib import Path

import pytest

from ringfence.errors import RecordError, UsageError
from ringfence.runtime.transcript.reader import TranscriptReader


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _link(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text("not yours")
    path.symlink_to(secret)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(Path.mkdir, "a directory"), (_fifo, "a FIFO"), (_socket, "a socket"), (_link, "a link")],
    ids=["directory", "fifo", "socket", "link"],
)
def test_only_a_regular_file_is_opened(make: object, kind: str, tmp_path: Path) -> None:
    """Anything else is refused by its kind, at once."""
    path = tmp_path / "s.jsonl"
    assert callable(make)
    make(path)
    with pytest.raises(UsageError, match=kind):
        TranscriptReader(path)


def test_a_device_is_not_even_opened() -> None:
    """Opening some devices does something."""
    with pytest.raises(UsageError, match="a device"):
        TranscriptReader(Path("/dev/null"))


def test_no_link_is_followed_below_a_directory(tmp_path: Path) -> None:
    """A directory on the way that is a link leads nowhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "s.jsonl").write_text("{}\n")
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="no transcript"):
        TranscriptReader(tmp_path / "folder" / "s.jsonl", below=tmp_path)


def test_an_absent_file_is_said_with_the_next_step(tmp_path: Path) -> None:
    """The error names the path and how to find one."""
    with pytest.raises(UsageError, match=r"nothing\.jsonl.*session ls"):
        TranscriptReader(tmp_path / "nothing.jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_said(tmp_path: Path) -> None:
    """The error says that it is about permissions."""
    path = tmp_path / "s.jsonl"
    path.touch(0)
    with pytest.raises(RecordError, match="permissions"):
        TranscriptReader(path)


def _append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more\n")


def _replace(path: Path) -> None:
    new = path.with_name("new")
    new.write_text("one\ntwo\n")
    new.replace(path)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda path: None, None),
        (_append, None),
        (_replace, "replaced"),
        (lambda path: path.write_text("x"), "truncated"),
        (lambda path: path.write_text("another text that is longer\n"), "rewritten"),
        (Path.unlink, "removed"),
    ],
    ids=["nothing", "append", "replace", "truncate", "rewrite", "remove"],
)
def test_a_change_under_the_reader_is_seen(act: object, expected: str | None, tmp_path: Path) -> None:
    """Whatever happens to a file that is being read, but being added to, is told by its name."""
    path = tmp_path / "s.jsonl"
    path.write_text("one\ntwo\n")
    assert callable(act)
    with TranscriptReader(path) as reader:
        reader.take()
        act(path)
        damage = reader.reopen_if_changed()
    assert (damage and damage.reason.split(" while ")[0]) == (expected and f"the file was {expected}")
