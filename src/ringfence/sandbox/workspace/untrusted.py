"""A `.git` that a run made in a workspace without one: an agent's work, which later runs leave alone.

Kept outside of the workspace, by device and inode. A copy is another file, so who looked at it and wants it
copies it.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from ringfence.config.paths import make_private_dir


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    device: int
    inode: int
    run: str


def distrust(workspace: Path, run: str, state: Path) -> None:
    """Remember the workspace's `.git` as one that `run` made."""
    try:
        status = os.lstat(workspace / ".git")
    except OSError:
        return
    file = _file(workspace, state)
    make_private_dir(file.parent)
    partial = file.with_suffix(f".{os.getpid()}.new")
    partial.write_bytes(msgspec.json.encode(_Mark(status.st_dev, status.st_ino, run)))
    partial.replace(file)


def why_untrusted(workspace: Path, state: Path) -> str | None:
    """What to tell the user about a `.git` that a run made; None where it is another, or none."""
    try:
        mark = msgspec.json.decode(_file(workspace, state).read_bytes(), type=_Mark)
        status = os.lstat(workspace / ".git")
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as exc:
        return (
            f"the git repository is not used: {str(_file(workspace, state))!r} cannot be read ({exc}); look at"
            " the repository, then remove that file"
        )
    if (mark.device, mark.inode) != (status.st_dev, status.st_ino):
        return None
    return (
        f"the git repository is not used: it was made by run {mark.run!r}; to use it, look at it, hooks and config"
        " above all, and copy it: `cp -a .git .git.new && rm -r .git && mv .git.new .git`"
    )


def _file(workspace: Path, state: Path) -> Path:
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()
    return state / "untrusted-git" / f"{name}.json"
