"""The workspace of a sandbox that is opened without a run: locked for writing, with a private git directory."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import UsageError
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Placement
from ringfence.sandbox.registry import examine
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.workspace.git.config import UserSettings, read_settings
from ringfence.sandbox.workspace.git.layout import find_git, why_not_used
from ringfence.sandbox.workspace.git.private import make_private_git
from ringfence.sandbox.workspace.lock import claimed
from ringfence.sandbox.workspace.ownership import place
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.run_as import Actor, owner_of


def _check_ways_out(spec: SandboxSpec) -> None:
    """Refuse what only a run, or a caller who opens the gate, can give a sandbox.

    Raises:
        UsageError: A field of the spec would have no effect.
    """
    wanted = {
        "forward": bool(spec.forward),
        "engine_access": spec.engine_access is not None,
        "egress": bool(spec.egress.lines()),
    }
    names = [f"{name}=..." for name, is_wanted in wanted.items() if is_wanted]
    if names:
        raise UsageError(
            f"SandboxSpec({', '.join(names)}) needs a run, which records what leaves a sandbox; use `ringfence run` or "
            "`ringfence exec`, or open the gate yourself (`ringfence.egress.gate.opened_gate`) and pass has_gate=True"
        )


@asynccontextmanager
async def standalone(
    spec: SandboxSpec, name: str, state: Path, *, has_gate: bool
) -> AsyncIterator[Placement]:
    """Prepare the workspace of a sandbox without a run; it is released when the context is left.

    Args:
        spec: Its workspace and mode.
        name: Of the sandbox, shown to other processes that find the workspace locked.
        state: The state directory.
        has_gate: Whether the caller opens the ways out that the spec names.

    Raises:
        PolicyRefused: As `ownership.place`; or another writes to the workspace (`workspace-busy`).
        UsageError: The workspace is absent, no directory or unreadable; or the spec names ways out that nobody opens.
        InfrastructureFault: The lock or the private git directory cannot be made.
    """
    if not has_gate:
        _check_ways_out(spec)
    if spec.workspace is None:
        yield place(None, spec.mode)
        return
    traits = await examine(spec)
    unseen = traits.unseen
    with claimed(spec.workspace, spec.mode, run=name, state=state, unseen=unseen):
        placement = place(spec.workspace, spec.mode, unseen=unseen)
        is_mounted = traits.is_fence and traits.sees_host_files
        if placement.workspace is None or not is_mounted:
            yield placement
            return
        directory = Path(tempfile.mkdtemp(prefix="sandbox-", dir=make_private_dir(state / "tmp")))
        try:
            yield await _with_git(placement, placement.workspace, directory / "git", state)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, directory)


async def _with_git(placement: Placement, workspace: Path, directory: Path, state: Path) -> Placement:
    """The placement with a private git directory, where the repository there is one that is used."""
    reader = owner_of(workspace) if os.geteuid() == 0 else Actor.current()
    if why_untrusted(workspace, state) or await reader.call(lambda: why_not_used(workspace)):
        return placement
    settings = await read_settings(reader, workspace, await reader.call(lambda: find_git(workspace)))
    private = await make_private_git(
        workspace,
        directory,
        reader=reader,
        owner=Actor(placement.uid, placement.gid),
        identity=settings.identity,
    )
    if placement.workspace_read_only:
        return (
            placement
            if private is None
            else replace(placement, overlays=(*private.overlays, *placement.overlays))
        )
    return place(workspace, "bind", private=private, fixed=_fixed(settings))


def _fixed(settings: UserSettings) -> tuple[bytes, ...]:
    return tuple(os.fsencode(path) for path in settings.obeyed if path != ".")


def _remove(directory: Path) -> None:
    with suppress(OSError):  # gc tries again
        remove_tree(directory)
