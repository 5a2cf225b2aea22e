"""Commits that the user's repository cannot take, kept as a bundle in the run's own directory.

The bundle is not the one that came out of the sandbox: it is made here, of objects that were checked.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import anyio.to_thread

from ringfence.errors import InfrastructureFault, next_step
from ringfence.sandbox.workspace.git import Git
from ringfence.sandbox.workspace.refs import Refs

BUNDLE_LIMIT_BYTES = 512 * 1024**2


def bundle_name(place: str) -> str:
    """What the bundle is called for the repository at `place` in the workspace; empty: its own."""
    return f"commits-{quote(os.fsencode(place), safe='')}.bundle" if place else "commits.bundle"


async def keep_commits(git: Git, refs: Mapping[str, str], base: Refs, *, file: Path) -> str:
    """Keep commits as a bundle; return what to tell the user about it.

    Args:
        git: A git directory of ours that has the commits.
        refs: The name under which each shall be fetched, and the commit.
        base: What the user has; it is left out.
        file: Where, in the run's directory.

    Raises:
        InfrastructureFault: The bundle could not be made or written.
    """
    for name, commit in refs.items():
        await git.run("update-ref", "--no-deref", name, commit)
    known = sorted({*base.direct.values(), base.head_commit()} - {None}, key=str)
    wanted = "".join(f"{name}\n" for name in refs) + "".join(f"^{commit}\n" for commit in known)
    made = await git.run(
        *("bundle", "create", "--quiet", "-", "--ignore-missing", "--stdin"),
        stdin=wanted.encode("utf-8", "surrogateescape"),
        timeout_s=600.0,
        output_limit_bytes=BUNDLE_LIMIT_BYTES,
    )
    await anyio.to_thread.run_sync(_write, file, made.stdout)
    fetch = f"git fetch {shlex.quote(str(file))} 'refs/ringfence/*:refs/ringfence/*'"
    return f"commits made inside are kept beside the run; to have them, run `{fetch}` in a clone of your own"


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
