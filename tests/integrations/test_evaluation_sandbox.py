"""The sandbox of an evaluation: what a task's configuration may say, and that nothing is left of one."""

import os
import signal
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from ringfence.config.paths import state_dir, user_config_file
from ringfence.errors import ConfigurationError, PolicyRefused, RingfenceError, SandboxDied, UsageError
from ringfence.integrations.evaluation_sandbox import (
    EvaluationSandbox,
    HeldSandbox,
    evaluation_spec,
    remove_leftovers,
)

pytestmark = pytest.mark.anyio

PATIENCE_S = 90.0


def running(marker: str) -> list[int]:
    """Processes of the machine whose command line has a marker, which no other test may use: they run at once."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other processes do."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- no event tells of them
            await anyio.sleep(0.05)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory that sandboxes start with."""
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "a.txt").write_text("as it was")
    return directory


def write_user_configuration(text: str) -> None:
    """Write the user's own ringfence.yaml."""
    file = user_config_file()
    file.parent.mkdir(parents=True)
    file.write_text(text)


@pytest.mark.parametrize(
    "field", ["mode", "mounts", "network", "unsafe", "soft_limits", "forward", "engine_access"]
)
def test_what_would_open_a_sandbox_cannot_be_said(field: str):
    """A task's configuration has no field for it, and an unknown field is an error."""
    with pytest.raises(UsageError, match=field):
        EvaluationSandbox(**{field: "bind"})


def test_the_bare_host_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Neither a task nor a variable makes an evaluation run without a fence."""
    with pytest.raises(PolicyRefused, match="no fence"):
        evaluation_spec(EvaluationSandbox(backend="host"))
    monkeypatch.setenv("RINGFENCE_SANDBOX__BACKEND", "host")
    with pytest.raises(PolicyRefused, match="RINGFENCE_SANDBOX__BACKEND"):
        evaluation_spec()


@pytest.mark.parametrize(
    "text",
    [
        "egress: {allow: [open]}\nunsafe: [egress]",
        "egress: {allow: [example.com]}",
        "sandbox: {backend: host}\nunsafe: [host_backend]",
        "sandbox: {memory: 64g}",
        "sandbox: {mounts: [{source: /srv, target: /srv}]}",
    ],
)
def test_a_file_beside_a_task_only_tightens(tmp_path: Path, text: str):
    """Until it is trusted, a project's ringfence.yaml grants nothing."""
    file = tmp_path / "ringfence.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="ringfence config trust"):
        evaluation_spec(file=file)


def test_a_file_beside_a_task_tightens(tmp_path: Path):
    """Limits of a project's ringfence.yaml are those of the sandbox."""
    file = tmp_path / "ringfence.yaml"
    file.write_text("sandbox: {memory: 256m, pids: 50}")
    spec = evaluation_spec(file=file)
    assert (spec.memory, spec.pids) == (256 * 1024**2, 50)


def test_another_file_is_an_error(tmp_path: Path):
    """A file of another name would have no effect."""
    file = tmp_path / "sandbox.yaml"
    file.write_text("sandbox: {memory: 256m}")
    with pytest.raises(UsageError, match=r"name it ringfence\.yaml"):
        evaluation_spec(file=file)


def test_open_egress_is_logged(caplog: pytest.LogCaptureFixture):
    """What a task's own code grants is named."""
    spec = evaluation_spec(EvaluationSandbox(egress=["open"]))
    assert spec.egress.is_open
    assert "can reach every public host (set by egress of the task's sandbox)" in caplog.text


def test_what_the_user_grants_to_runs_is_left_out():
    """A model's API and swapped credentials need a run; the rest of the user's configuration counts."""
    write_user_configuration("egress: {allow: [model, example.com]}\nsandbox: {mode: clone, cpus: 1}\n")
    spec = evaluation_spec()
    assert ([str(rule) for rule in spec.egress.allow], spec.mode, spec.cpus) == (["example.com"], None, 1)


def test_a_relative_workspace_is_refused():
    """Harnesses change their directory."""
    with pytest.raises(UsageError, match="relative"):
        evaluation_spec(EvaluationSandbox(workspace="files"))


async def test_a_home_is_no_workspace(files: Path, monkeypatch: pytest.MonkeyPatch):
    """The rules for workspaces hold: nobody's keys are copied into a sandbox."""
    monkeypatch.setenv("HOME", str(files))
    with pytest.raises(PolicyRefused, match="it is a home"):
        await HeldSandbox.open(evaluation_spec(EvaluationSandbox(workspace=files)))


async def test_each_sandbox_has_a_copy(files: Path):
    """What is written in one is seen by no other, and not on the machine."""
    spec = evaluation_spec(EvaluationSandbox(workspace=files))
    first, second = await HeldSandbox.open(spec), await HeldSandbox.open(spec)
    try:
        await first.sandbox.write_file("a.txt", b"changed")
        assert await second.sandbox.read_file("a.txt") == b"as it was"
    finally:
        await first.close()
        await second.close()
    assert (files / "a.txt").read_text() == "as it was"
    assert not list((state_dir() / "tmp").glob("*"))


async def test_it_can_be_closed_by_another_task():
    """Harnesses open a sandbox in one task and close it in another; a second close does nothing."""
    held: list[HeldSandbox] = []

    async def open_one() -> None:
        held.append(await HeldSandbox.open(evaluation_spec()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_one)
    assert (await held[0].sandbox.run(["true"])).ok
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held[0].close)
    await held[0].close()
    with pytest.raises(SandboxDied):
        await held[0].sandbox.run(["true"])


async def test_why_it_cannot_be_opened_is_raised():
    """Errors of the start are those of `Sandbox.open`."""
    with pytest.raises(RingfenceError, match="set-up command 'exit 3' failed"):
        await HeldSandbox.open(evaluation_spec(EvaluationSandbox(setup=["exit 3"])))


async def test_a_cancelled_start_leaves_nothing():
    """A start that is cancelled during its set-up ends everything inside before the cancellation goes on."""
    marker = "86399.25"
    spec = evaluation_spec(EvaluationSandbox(setup=[f"exec sleep {marker}"]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(HeldSandbox.open, spec)
        await until(lambda: running(marker))
        tasks.cancel_scope.cancel()
    assert not running(marker)


async def test_a_killed_process_leaves_nothing(files: Path):
    """After SIGKILL everything inside ends by itself, and the next clean-up removes the private copy."""
    marker = "86399.75"
    program = textwrap.dedent(f"""\
        import asyncio
        from pathlib import Path
        from ringfence.integrations.evaluation_sandbox import EvaluationSandbox, HeldSandbox, evaluation_spec

        async def main():
            held = await HeldSandbox.open(evaluation_spec(EvaluationSandbox(workspace=Path({str(files)!r}))))
            await held.sandbox.run(["sleep", "{marker}"], timeout_s=None)

        asyncio.run(main())
        """)
    async with await anyio.open_process([sys.executable, "-c", program], stdout=None, stderr=None) as process:
        try:
            await until(
                lambda: running(f"sleep\0{marker}")
            )  # not the program, whose text has the marker, too
        finally:
            process.send_signal(signal.SIGKILL)
    await until(lambda: not running(marker))
    (left,) = (state_dir() / "tmp").glob("sandbox-*")
    os.utime(left, (0, 0))
    assert await remove_leftovers() == [str(left)]
    assert not left.exists()
