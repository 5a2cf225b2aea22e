"""A secret in a file: what is taken, what is refused, and that nothing waits or fills memory."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import KnownSecret
from ringfence.secret.source import read_source

SECRET = "hunter2-correct-horse"


async def _read(path: Path):
    return await read_source(KnownSecret("KEY", SecretReference(file=path), True), {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that only its owner can read."""
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


async def test_a_private_file_gives_its_line(file: Path):
    """Without the end of the line, and there is nothing to tell."""
    value = await _read(file)
    assert (value.text, value.warnings) == (SECRET, ())


async def test_a_link_is_followed(file: Path, tmp_path: Path):
    """What mounts secrets is often made of links; the file that is opened counts."""
    (tmp_path / "link").symlink_to(file)
    assert (await _read(tmp_path / "link")).text == SECRET


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o444])
async def test_a_file_that_others_may_read_is_used_and_told(file: Path, mode: int):
    """Container engines mount secrets so; who has a choice should hear of it."""
    os.chmod(file, mode)  # noqa: PTH101
    value = await _read(file)
    assert value.text == SECRET
    assert "chmod 600" in value.warnings[0]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
async def test_a_file_that_others_may_write_is_refused(file: Path, mode: int):
    """They could put a key of theirs there, and read in their account what the agent does."""
    os.chmod(file, mode)  # noqa: PTH101
    with pytest.raises(AuthenticationFailed, match="other users can write"):
        await _read(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_a_file_of_another_user_is_refused(file: Path):
    """Its owner can write it, whatever its mode."""
    os.chown(file, 12_345, 12_345)
    with pytest.raises(AuthenticationFailed, match="other users can write"):
        await _read(file)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def _huge(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1024**3)


def _text(content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0o600)

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "No such file or directory; write it there, or name another"),
        (Path.mkdir, "not a regular file"),
        (_pipe, "not a regular file"),
        (_link_to_pipe, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (_huge, "more than 65536 bytes"),
        (_text(b""), "is empty"),
        (_text(b" \n\n"), "is empty"),
        (_text(f"{SECRET}\nsecond line\n".encode()), "2 lines"),
        (_text(SECRET.encode() + b"\xff"), "not UTF-8 text"),
        (_text(SECRET.encode() + b"\x00\x1b"), "control characters"),
    ],
    ids=["absent", "directory", "pipe", "link to pipe", "endless", "loop", "1 GB", "empty", "blank", "lines", "bytes",
         "control"],
)  # fmt: skip
async def test_what_is_no_secret_is_a_clear_error(tmp_path: Path, make: Callable[[Path], None], said: str):
    """Never a wait, never a gigabyte read; the error names the file's place and not its content."""
    make(tmp_path / "key")
    with pytest.raises(AuthenticationFailed, match=said) as refused:
        await _read(tmp_path / "key")
    assert "secret 'KEY' (file:" in str(refused.value)
    assert "hunter2" not in str(refused.value)
