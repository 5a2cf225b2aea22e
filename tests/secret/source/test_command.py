"""A secret that a program prints: real programs, well-behaved and not."""

import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed, InfrastructureFault
from ringfence.secret import KnownSecret
from ringfence.secret.source import read_source

SECRET = "hunter2-correct-horse"


async def _read(*argv: str, lease: str = "", **more: Any):
    reference = SecretReference.model_validate({"cmd": list(argv), **more})
    return await read_source(KnownSecret("KEY", reference, True), os.environ, lease=lease)


def _python(program: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", program)


async def test_a_program_gives_the_line_that_it_prints():
    """Without the end of the line."""
    assert (await _read("printf", "%s\n", SECRET)).text == SECRET


async def test_no_shell_is_between():
    """What means something to a shell means nothing here."""
    assert (await _read("printf", "%s", "$(id);`id`*")).text == "$(id);`id`*"


async def test_it_runs_where_no_workspace_steers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Many programs read settings of the current directory, which an agent may have written."""
    monkeypatch.chdir(tmp_path)
    assert (await _read("pwd")).text == "/"


async def test_it_is_told_the_id_of_the_lease():
    """A broker can lend under that name."""
    assert (await _read("printf", "%s", "for-{lease}-only", lease="abc")).text == "for-abc-only"


async def test_nobody_can_type_into_it():
    """Its input is empty, so what would ask a person ends."""
    assert (await _read(*_python("import sys; print(f'got {len(sys.stdin.read())} characters')"))).text == (
        "got 0 characters"
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "is empty"),
        (f"print('{SECRET}'); raise SystemExit(1)", "exited with 1"),
        (f"print('{SECRET}'); print('{SECRET}')", "2 lines"),
        (f"import sys; print('{SECRET}'); sys.exit('bad {SECRET}')", r"exited with 1 \('bad \[redacted\]'\)"),
        ("import os\nwhile True: os.write(1, b'hunter2' * 9000)", "more than 65536 bytes"),
        ("import os\nwhile True: os.write(2, b'hunter2' * 9000)", "more than 65536 bytes"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exited with -9"),
    ],
    ids=[
        "nothing",
        "exit 1",
        "two lines",
        "complains with the secret",
        "floods",
        "floods stderr",
        "is killed",
    ],
)
async def test_a_program_that_fails_is_a_clear_error(program: str, said: str):
    """What it printed is not shown, wherever it printed it."""
    with pytest.raises(AuthenticationFailed, match=said) as refused:
        await _read(*_python(program))
    assert "hunter2" not in str(refused.value)


@pytest.mark.slow
async def test_a_program_that_hangs_is_ended(tmp_path: Path):
    """With everything that it started, after the time it was given."""
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 9> {tmp_path}/alive; echo on >&9; sleep 1000 & sleep 1000"
    with pytest.raises(AuthenticationFailed, match=r"did not end in 1 s"):
        await _read("sh", "-c", script, timeout="1s")
    with os.fdopen(alive, "rb") as pipe:
        assert pipe.readline() == b"on\n"
        select.select([pipe], [], [], 30)
        assert pipe.read() == b"", "somebody still holds the other end"


async def test_a_program_that_is_not_there_is_another_fault():
    """Nothing is wrong with the credential; the error names it, and that a path would do as well."""
    with pytest.raises(InfrastructureFault, match=r"secret 'KEY' .*install it, or write its full path"):
        await _read("no-such-program-anywhere")


async def test_a_program_of_the_home_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By ~/; PATH is not asked, as a workspace may be on it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "give").write_text(f"#!/bin/sh\necho {SECRET}\n")
    (tmp_path / "give").chmod(0o700)
    assert (await _read("~/give")).text == SECRET
