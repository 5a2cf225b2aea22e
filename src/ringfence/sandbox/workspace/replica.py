"""A workspace as a run found it, at the same path inside, in a directory that goes when it is done with."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Placement
from ringfence.sandbox.workspace.git.private import make_mount_point, make_private_git
from ringfence.sandbox.workspace.ownership import decide_for
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.restore import materialise
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.work import load_record, open_store


@asynccontextmanager
async def replica_of(
    run: Path, checkpoint: str, state: Path, *, is_carried: bool = False
) -> AsyncIterator[Placement]:
    """A clone of `checkpoint` for a sandbox of its own; the user's workspace is not touched.

    The private git directory is the user's repository as it is now: commits made since are in it.

    Args:
        run: The run's directory.
        checkpoint: Which state.
        state: The state directory.
        is_carried: Whether the sandbox's engine does not see this machine's files.

    Raises:
        RecordError: The run's work record or its checkpoint is gone.
    """
    record = load_record(run)
    workspace = Path(record.workspace)
    store = open_store(record, state)
    decision = decide_for(workspace, "clone")
    owner = Actor(decision.uid, decision.gid)
    directory = Path(tempfile.mkdtemp(prefix="replica-", dir=make_private_dir(state / "tmp")))
    try:
        private = None
        is_wanted = record.base_commit is not None or record.git_present
        if is_wanted and why_untrusted(workspace, state) is None:
            private = await make_private_git(
                workspace,
                directory / "git",
                reader=record.actor,
                owner=owner,
                identity=None,
                stands_alone=is_carried,
            )
        tree = directory / "work"
        tree.mkdir(mode=0o700)
        if private is not None:
            make_mount_point(tree, private, directory / "git")
        await materialise(store, checkpoint, tree, owner)
        overlays = private.overlays if private is not None else ()
        yield Placement(
            decision.uid,
            decision.gid,
            workspace,
            tree,
            overlays=tuple(overlays),
            carry="in" if is_carried else "none",
        )
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, directory)


def _remove(directory: Path) -> None:
    with suppress(OSError):  # gc tries again
        remove_tree(directory)
