"""Pools of real sandboxes, and workspaces prepared for runs as runs do it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.sandbox.supervisor.conftest import until
from tests.sandbox.workspace.runs import prepare

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.registry import traits_of
from ringfence.sandbox.supervisor.directory import SupervisorState

OTHER_UID = 1500


def git(place: Path, *words: str) -> str:
    """Run git on a workspace, and give away what it made."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*"]
    done = subprocess.run(["git", *identity, *words], cwd=place, check=True, capture_output=True, text=True)
    give(place)
    return done.stdout


def give(place: Path) -> None:
    """Let a workspace be an ordinary user's."""
    if os.geteuid() == 0:
        for folder, _, names in os.walk(place):
            for name in (".", *names):
                os.chown(Path(folder, name), OTHER_UID, OTHER_UID, follow_symlinks=False)


def cold_id() -> str:
    """A name for a sandbox that is not from the pool."""
    return f"cold{uuid4().hex[:8]}"


def is_cold(sandbox: Sandbox) -> bool:
    """Whether it is not from the pool."""
    return sandbox.id.startswith("cold")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; whoever is the machine's first process may take long to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@dataclass
class Runs:
    """Opens the first sandbox of one run after another on a workspace."""

    workspace: Path
    size: int = 1
    max_age_s: float = 600.0
    changes: dict[str, Any] = field(default_factory=dict)
    unseen: str | None = None
    """Why the engine does not see this machine's files, where it does not."""

    @property
    def pool(self) -> Pool:
        """The pool of this state directory."""
        return Pool(state_dir() / "pool", PoolSize(self.size, self.max_age_s))

    async def prepared(self) -> tuple[SandboxSpec, Placement, Path]:
        """A run up to where it needs a sandbox."""
        run = f"2026-01-01T00-00-00-{uuid4().hex[:8]}"
        run_dir = make_private_dir(state_dir() / "runs" / run)
        spec = SandboxSpec(**{"backend": "bubblewrap", "workspace": self.workspace, **self.changes})
        unseen = self.unseen or traits_of(spec).unseen
        made = await prepare(
            self.workspace, spec.mode, run=run, run_dir=run_dir, state=state_dir(), unseen=unseen
        )
        return spec, made.placement, run_dir

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Sandbox]:
        """A run's first sandbox."""
        spec, placement, run_dir = await self.prepared()
        async with self.pool.opened(spec, placement, run_dir, sandbox_id=cold_id()) as sandbox:
            async for _result in sandbox.set_up(spec.setup):
                pass
            yield sandbox

    async def ready(self) -> list[SupervisorState]:
        """What waits, once all of it is ready."""
        await until(lambda: self._ready() is not None)
        return self._ready() or []

    def _ready(self) -> list[SupervisorState] | None:
        states = [state for _, state in self.pool.waiting() if state is not None]
        return states if len(states) == self.size else None

    async def warmed(self) -> list[SupervisorState]:
        """Fill the pool by a run that finds none."""
        async with self.opened() as sandbox:
            assert is_cold(sandbox)
        return await self.ready()


@pytest.fixture
def project() -> Iterator[Path]:
    """A small project under git, with files that are guarded."""
    directory = Path(tempfile.mkdtemp(prefix="ringfence-pool-"))
    (directory / "a.txt").write_text("one\n")
    (directory / ".envrc").write_text("export A=1\n")
    (directory / ".github" / "workflows").mkdir(parents=True)
    (directory / ".github" / "workflows" / "ci.yml").write_text("on: push\n")
    git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "first")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
async def runs(project: Path) -> AsyncIterator[Runs]:
    """Runs on the project; what waits in the pool afterwards is ended."""
    made = Runs(project)
    yield made
    await made.pool.drain()
