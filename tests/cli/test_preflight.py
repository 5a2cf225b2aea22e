"""What cannot work on this machine is found before a job is accepted, and the refusal says what would allow it."""

import json
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ringfence.config.paths import user_config_file

Cli = Callable[..., Any]


def write_fleet(workspace: Path, agent: str) -> Path:
    """Write the file of a fleet of one agent."""
    file = workspace / "ringfence.yaml"
    file.write_text(f"fleet: {{name: shop}}\nagents:\n  one: {agent}\n")
    return file


BARE = "{prompt: x, unsafe: [host_backend], sandbox: {backend: host, memory: 1g}}"
"""No backend but the bare host lacks every limit on every machine."""


@pytest.mark.parametrize("command", ["validate", "up", "up --detach"])
def test_a_fleet_with_a_limit_that_cannot_be_enforced_is_refused(
    ringfence: Cli, workspace: Path, command: str
):
    """Before any job is accepted, with the place, the limit and why; the exit code is that of a refusal."""
    file = write_fleet(workspace, BARE)
    ringfence("config", "trust", file, "--yes")
    ended = ringfence("fleet", *command.split())
    assert ended.code == 4, ended
    assert "agents.one: limit memory=1024 MiB cannot be enforced here" in ended.err
    assert f"{file}:3:" in ended.err
    assert "--soft-limits" not in ended.err  # it has no such option


def test_the_line_that_the_refusal_names_allows_the_fleet(ringfence: Cli, workspace: Path):
    """It goes into the user's own file, as it is printed."""
    write_fleet(workspace, BARE)
    (line,) = re.findall(r"the line `(.*?)` in", ringfence("fleet", "validate").err)
    user_config_file().parent.mkdir(parents=True, exist_ok=True)
    user_config_file().write_text(f"{line}\n")
    ended = ringfence("fleet", "validate", "--json")
    assert (ended.code, json.loads(ended.out)["refused"]) == (0, [])


def test_a_projects_file_cannot_accept_weaker_limits(ringfence: Cli, workspace: Path):
    """Only the user can, in a file of his own or on the command line."""
    (workspace / "ringfence.yaml").write_text("sandbox: {memory: 1g, soft_limits: true}\n")
    ended = ringfence("config", "policy", "show")
    assert ended.code != 0
    assert "sandbox.soft_limits" in ended.err


@pytest.fixture
def as_user(place: Path, start: Cli) -> Cli:
    """Run the command as an ordinary user to whom no control group is delegated."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    home = place.parent / "home"
    home.mkdir()
    os.chown(home, 12_345, 12_345)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "XDG_STATE_HOME": str(home / "state")}

    def run(*words: str | Path) -> tuple[int, str, str]:
        process = start(*words, user=12_345, group=12_345, extra_groups=[], env=environment, cwd=place)
        out, err = process.communicate(timeout=120)
        return process.returncode, out.decode(), err.decode()

    return run


@pytest.mark.parametrize("memory", ["2g", "1g"], ids=["the default", "a tightening"])
def test_a_committed_limit_is_shown_and_refused_wherever_it_cannot_be_enforced(
    as_user: Cli, workspace: Path, memory: str
):
    """`config policy show` still prints the policy; it and `doctor` name the limit and what would allow it."""
    (workspace / "ringfence.yaml").write_text(f"sandbox: {{memory: {memory}}}\n")
    code, out, err = as_user("config", "policy", "show")
    if "cannot be enforced" not in err:
        pytest.skip("the kernel enforces limits for every user here")
    assert code == 4
    assert "memory" in out
    assert "--soft-limits" in err
    assert "REFUSED by the configuration here: limit memory=" in as_user("doctor")[1]


def test_a_default_that_cannot_be_enforced_refuses_nothing(as_user: Cli, workspace: Path):
    """It is shown as weaker than the kernel's."""
    code, out, err = as_user("config", "policy", "show", "--json")
    assert code == 0, err
    assert json.loads(out)["refused"] is None


MISSING = {
    "claude-cli": "Claude Code is not installed",
    "codex-cli": "Codex is not installed",
    "claude-sdk": "needs the package claude-agent-sdk",
}


@pytest.mark.parametrize("runtime", MISSING)
def test_a_program_that_is_missing_is_found_by_validate_and_ends_a_run_alike(
    ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str
):
    """`fleet validate` names it with the agent; a run ends as `configuration`, a program or a package alike."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    monkeypatch.setenv("PATH", "/usr/sbin:/sbin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for provider in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{provider}_API_KEY", f"sk-{provider.lower()}-0123456789abcdef0123")
    file = write_fleet(workspace, f"{{prompt: x, run: {{runtime: {runtime}}}}}")
    ringfence("config", "trust", file, "--yes")
    (doubt, *_) = json.loads(ringfence("fleet", "validate", "--json").out)["warnings"]
    assert str(file) in doubt
    assert MISSING[runtime] in doubt
    file.unlink()
    ended = ringfence("run", "x", "--runtime", runtime)
    assert ended.code == 78, ended.err
    assert MISSING[runtime] in ended.err


def test_validate_runs_and_calls_nothing_that_an_untrusted_file_names(
    ringfence: Cli, workspace: Path, tmp_path: Path
):
    """Neither a program, which is asked for its version, nor a container engine; once the file is trusted, both are."""
    program, engine = tmp_path / "claude", workspace / "engine.sock"
    shutil.copy("/bin/true", program)  # tells no version
    called = threading.Event()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(engine))
        listening.listen()
        threading.Thread(target=_refuse_calls, args=[listening, called], daemon=True).start()
        agent = f"{{prompt: x, run: {{runtime: claude-cli}}, client: {{path: {program}}}}}"
        container = (
            f"{{prompt: x, sandbox: {{backend: docker, image: a, engine: 'unix://{engine}', memory: 1g}}}}"
        )
        file = write_fleet(workspace, f"{agent}\n  two: {container}")
        assert (_asks_program(ringfence), called.is_set()) == (False, False)
        ringfence("config", "trust", file, "--yes")
        assert (_asks_program(ringfence), called.is_set()) == (True, True)


def _asks_program(ringfence: Cli) -> bool:
    """Whether `fleet validate` says what it learned from the agent's program."""
    doubts = json.loads(ringfence("fleet", "validate", "--json").out)["warnings"]
    return any("run.runtime" in each for each in doubts)


def _refuse_calls(listening: socket.socket, called: threading.Event) -> None:
    """Take connections and close them, until the socket is closed."""
    with suppress(OSError):
        while True:
            listening.accept()[0].close()
            called.set()
