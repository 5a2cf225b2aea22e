"""Docker's sandbox product, by a stand-in program that records its words and runs `exec` on this machine."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import PolicyRefused, SandboxStartFailed
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.base import BindMount, Launch, Placement
from ringfence.sandbox.protocol.loader import guest_arguments
from ringfence.sandbox.sbx import SbxBackend

_STAND_IN = """#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
verbs = words[1:] if words[0] == "sandbox" else words
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
with open({log!r} + ".environment", "a") as log:
    log.write("".join(name + "\\n" for name in os.environ))
if verbs[0] == {fails!r}:
    sys.exit("no sign-in: run sbx login")
if verbs[0] == "exec":
    if os.getuid() == 0:
        os.setresuid(1500, 1500, 1500)
    os.execv("/usr/bin/python3", verbs[verbs.index("python3"):])
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not os.access("/usr/bin/python3", os.X_OK),
    reason="the stand-in needs /usr/bin/python3",
)


class StandIn:
    """The program, and what it was told."""

    def __init__(self, directory: Path, *, fails: str = "", plugin: bool = False) -> None:
        self._log = directory / "said"
        program = directory / "program"
        program.write_text(_STAND_IN.format(log=str(self._log), fails=fails))
        program.chmod(0o755)
        self.backend = SbxBackend((str(program), "sandbox") if plugin else (str(program),))

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    @asynccontextmanager
    async def open(self, placement: Placement, **changes: Any) -> AsyncIterator[Sandbox]:
        """A sandbox by this program."""
        asked = spec(**changes)
        fence = await self.backend.start(Launch("abc", asked, placement, guest_arguments()))
        # In the product the limit counts what is in the machine; here all that this user runs, other tests too.
        fence.facts = replace(fence.facts, process_limit=None)
        sandbox = Sandbox(fence, asked, placement, sandbox_id="abc", chosen_because="")
        async with sandbox.running():
            yield sandbox


def spec(**changes: Any) -> SandboxSpec:
    """What may be asked of this backend."""
    return SandboxSpec(**{"backend": "sbx", "unsafe": ("network",), "cpus": 2, **changes})


NOWHERE = Placement(1500, 1500, None, None)


async def test_creates_enters_and_removes(tmp_path: Path, workspace: Path) -> None:
    """A machine of the workspace's own path is created, entered once for all commands, and removed."""
    stand_in = StandIn(tmp_path)
    async with stand_in.open(Placement(1500, 1500, workspace, workspace), memory="512m") as sandbox:
        for _ in range(2):
            assert (await sandbox.run(["echo", "hello"])).stdout == "hello\n"
    create, enter, remove = stand_in.calls
    machine = ["--quiet", "--name", "ringfence-abc", "--memory", "512m", "--cpus", "2"]
    assert create == ["create", *machine, "shell", str(workspace)]
    assert enter[:7] == ["exec", "-i", "-w", "/", "ringfence-abc", "python3", "-I"]
    assert remove == ["rm", "--force", "ringfence-abc"]


async def test_lends_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of the program sees a key of ours: it would lend it to whatever runs inside."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    async with StandIn(tmp_path).open(NOWHERE):
        pass
    seen = (tmp_path / "said.environment").read_text().split()
    assert "HOME" in seen
    assert "ANTHROPIC_API_KEY" not in seen


async def test_says_what_it_is(tmp_path: Path) -> None:
    """Its notes say that it is not verified, and that its network is another's to decide."""
    async with StandIn(tmp_path).open(NOWHERE) as sandbox:
        notes = " ".join(sandbox.facts.notes)
    assert "NOT VERIFIED" in notes
    assert "UNSAFE: the network" in notes


async def test_guards_what_the_host_trusts(tmp_path: Path, workspace: Path) -> None:
    """What is guarded is shown read-only, the private git directory by guarding all of `.git`."""
    (workspace / ".git").mkdir()
    (workspace / ".envrc").touch()
    mounts = (
        BindMount(Path("/elsewhere"), workspace / ".git", read_only=False),
        BindMount(Path("/objects"), workspace / ".git" / "objects", read_only=True),
        BindMount(workspace / ".envrc", workspace / ".envrc", read_only=True),
        BindMount(Path("/dev/null"), workspace / ".absent", read_only=True),
    )
    stand_in = StandIn(tmp_path)
    async with stand_in.open(Placement(1500, 1500, workspace, workspace, mounts=mounts)) as sandbox:
        assert any(".absent" in note for note in sandbox.facts.notes)
    create = stand_in.calls[0]
    guarded = [f"{workspace}/.envrc:ro", f"{workspace}/.git:ro"]
    assert create[create.index("shell") + 1 :] == [str(workspace), *guarded]


async def test_read_only(tmp_path: Path, workspace: Path) -> None:
    """A workspace in mode read_only is shown so, with nothing beside it."""
    stand_in = StandIn(tmp_path)
    async with stand_in.open(Placement(1500, 1500, workspace, workspace, workspace_read_only=True)):
        pass
    create = stand_in.calls[0]
    assert create[create.index("shell") + 1 :] == [f"{workspace}:ro"]


async def test_the_older_plugin(tmp_path: Path) -> None:
    """`docker sandbox` has the same verbs, and asks nothing before it removes."""
    stand_in = StandIn(tmp_path, plugin=True)
    assert await stand_in.backend.remove_leftovers(frozenset({"abc"})) == ["ringfence-abc"]
    assert stand_in.calls == [["sandbox", "rm", "ringfence-abc"]]


async def test_without_the_program() -> None:
    """A machine without it is told what to install."""
    lacking = await SbxBackend().unavailable()
    assert lacking is None or "sbx login" in lacking


@pytest.mark.parametrize("verb", ["create", "exec"])
async def test_what_it_says_is_told(tmp_path: Path, verb: str) -> None:
    """A failure of the product comes with its own words, and nothing is left."""
    stand_in = StandIn(tmp_path, fails=verb)
    with pytest.raises(SandboxStartFailed, match="no sign-in"):
        async with stand_in.open(NOWHERE):
            pass
    assert stand_in.calls[-1] == ["rm", "--force", "ringfence-abc"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"unsafe": ()}, "network"), ({"pids": 50}, "limits-enforced"), ({"cpus": 0.5}, "limits-enforced")],
    ids=["network", "pids", "half-a-processor"],
)
async def test_refuses_what_it_cannot_keep(tmp_path: Path, changes: dict[str, Any], rule: str) -> None:
    """What the product cannot enforce is refused before anything is created."""
    stand_in = StandIn(tmp_path)
    with pytest.raises(PolicyRefused) as caught:
        async with stand_in.open(NOWHERE, **changes):
            pass
    assert (caught.value.rule, stand_in.calls) == (rule, [])


async def test_refuses_a_clone(tmp_path: Path, workspace: Path) -> None:
    """A clone lies elsewhere on this machine than it is shown inside."""
    with pytest.raises(PolicyRefused, match="read_only"):
        async with StandIn(tmp_path).open(Placement(1500, 1500, workspace, tmp_path)):
            pass


@pytest.mark.parametrize(
    "line", ["url = https://me:token@example.org/x.git", "extraHeader = Authorization: x"]
)
async def test_refuses_a_credential_in_git(tmp_path: Path, workspace: Path, line: str) -> None:
    """A key in the repository's settings would be seen inside."""
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text(f'[remote "origin"]\n\t{line}\n')
    with pytest.raises(PolicyRefused, match="credential"):
        async with StandIn(tmp_path).open(Placement(1500, 1500, workspace, workspace)):
            pass
