"""Containers from the command line, as a user has them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Ended

from ringfence.events import PolicyLoosened, SandboxCreated
from ringfence.journal import read, run_dirs

Cli = Callable[..., Any]


@pytest.fixture
def execute(start: Cli, workspace: Path) -> Cli:
    """`ringfence exec` in a process of its own."""

    def run(*words: str) -> Ended:
        process = start("exec", "-C", workspace, *words)
        out, err = process.communicate(timeout=60)
        return Ended(process.returncode, out.decode(), err.decode())

    return run


pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def image() -> str:
    """An image that Docker has; skips without an engine."""
    from tests.sandbox.conftest import image_for

    found = image_for("docker")
    assert found is not None
    return found


def events(kind: type) -> list[Any]:
    """What the newest run recorded of a kind."""
    return [entry.event for entry in read(run_dirs()[0]) if isinstance(entry.event, kind)]


def test_a_command_that_the_memory_limit_killed_is_told(execute: Cli, image: str):
    """A line says which limit it was, and what raises it; a code alone explains nothing."""
    code = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
    ended = execute("--image", image, "--memory", "128m", "--", "python3", "-c", code)
    assert ended.code == 137
    assert "limit: the command was ended by the limit on memory; raise it with --memory\n" in ended.err


def test_create_within_15_s(execute: Cli, workspace: Path, image: str):
    """A sandbox is there within 15 s, by the record."""
    assert execute("--image", image, "--", "true").code == 0
    assert events(SandboxCreated)[0].started_in_ms < 15_000


def test_fallback_when_the_engine_is_gone(execute: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the engine is gone and `fallback: host` was asked for, the command runs on the host: said and recorded."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("RINGFENCE_SANDBOX__FALLBACK", "host")
    ended = execute("--image", "a:1", "--", "echo", "here")
    assert (ended.code, ended.out) == (0, "here\n")
    assert (
        "WARNING: commands run on this machine without a sandbox (backend 'host') (set by sandbox.fallback, because"
        in ended.err
    )
    assert any("without a sandbox" in loosened.what for loosened in events(PolicyLoosened))


def test_no_fallback_unless_asked(execute: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """An engine that is gone is an error, never the host."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    ended = execute("--image", "a:1", "--", "echo", "here")
    assert (ended.code, ended.out) == (125, "")
    assert "systemctl start docker" in ended.err


def test_fallback_in_a_file_is_spelled(ringfence: Cli, execute: Cli, workspace: Path):
    """A file that falls back to the host says that it is unsafe."""
    (workspace / "ringfence.yaml").write_text("sandbox: {fallback: host}\n")
    ringfence("config", "trust", workspace)
    ended = execute("--", "true")
    assert ended.code == 78
    assert "unsafe: [host_backend]" in ended.err


def test_a_network_is_printed_and_recorded(
    execute: Cli, workspace: Path, image: str, monkeypatch: pytest.MonkeyPatch
):
    """A network is granted by a spelled loosening alone, which is printed and recorded."""
    monkeypatch.setenv("RINGFENCE_SANDBOX__NETWORK", "bridge")
    command = ("--image", image, "--", "cat", "/proc/net/dev")
    assert execute(*command).code == 4
    monkeypatch.setenv("RINGFENCE_UNSAFE", json.dumps(["network"]))
    ended = execute(*command)
    assert "eth0" in ended.out
    assert "WARNING: the sandbox is attached to the container network 'bridge'" in ended.err
    assert [one.what for one in events(PolicyLoosened)] == [
        "the sandbox is attached to the container network 'bridge', which egress rules do not restrict"
    ]
