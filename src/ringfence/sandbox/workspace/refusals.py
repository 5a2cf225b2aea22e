"""Directories that are never a workspace: what an agent could do to them, no checkpoint undoes."""

import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen

_SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
_SHARED = ("/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var")  # noqa: S108
"""Refused themselves; a directory in one may be a workspace."""


@frozen
class Ground:
    """What a refusal is judged by; all paths are resolved."""

    workspace: Path
    homes: tuple[Path, ...]
    """The caller's, and that of the workspace's owner."""
    state: Path


@frozen
class Refusal:
    """One row of the table."""

    rule: str
    holds: Callable[[Ground], bool]
    because: str


def _in_system(ground: Ground) -> bool:
    return str(ground.workspace) in _SHARED or any(ground.workspace.is_relative_to(name) for name in _SYSTEM)


REFUSALS = (
    Refusal("workspace-root", lambda g: g.workspace == Path("/"), "it is the whole file system"),
    Refusal("workspace-system", _in_system, "it belongs to the system"),
    Refusal("workspace-home", lambda g: g.workspace in g.homes, "it is a home, with somebody's keys in it"),
    Refusal(
        "workspace-above-home",
        lambda g: any(home.is_relative_to(g.workspace) for home in g.homes),
        "a home lies in it, with somebody's keys",
    ),
    Refusal(
        "workspace-in-state",
        lambda g: g.workspace.is_relative_to(g.state),
        "it lies in the state directory, where ringfence keeps its records",
    ),
    Refusal(
        "workspace-above-state",
        lambda g: g.state.is_relative_to(g.workspace),
        "the state directory lies in it, and an agent could edit its own record",
    ),
    Refusal(
        "workspace-git-dir",
        lambda g: ".git" in g.workspace.parts or _is_bare(g.workspace),
        "it is a git directory, whose hooks and configuration run on your machine",
    ),
)
"""Asked in this order."""


def check_workspace(workspace: Path, *, home: Path, state: Path) -> Path:
    """The workspace with all links resolved, if it may be one.

    Raises:
        UsageError: It is absent, no directory, or may not be read.
        PolicyRefused: A row of `REFUSALS` holds.
    """
    try:
        resolved = workspace.resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        raise UsageError(
            f"workspace {str(workspace)!r} cannot be found: {_reason(exc)}; name a directory"
        ) from exc
    if os.geteuid() == 0:
        _refuse_foreign_links(workspace)
    if not resolved.is_dir():
        raise UsageError(
            f"workspace {str(workspace)!r} is no directory; name the directory the agent shall work in"
        )
    ground = Ground(resolved, (_resolved(home), *_owner_home(resolved)), _resolved(state))
    for refusal in REFUSALS:
        if refusal.holds(ground):
            raise PolicyRefused(
                f"workspace {str(resolved)!r} is refused: {refusal.because};"
                " use a directory of the project's own",
                rule=refusal.rule,
            )
    if not os.access(resolved, os.R_OK | os.X_OK):
        raise UsageError(
            f"workspace {str(resolved)!r} cannot be read; check its permissions (ls -ld {resolved})"
        )
    return resolved


def _owner_home(path: Path) -> tuple[Path, ...]:
    try:
        return (_resolved(Path(pwd.getpwuid(path.stat().st_uid).pw_dir)),)
    except KeyError:
        return ()


def _refuse_foreign_links(workspace: Path) -> None:
    """Root sees everything: a link on the way, made by somebody else, would show it what that one may not see."""
    path = workspace.absolute()
    for part in (path, *path.parents):
        status = part.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid != 0:
            raise PolicyRefused(
                f"workspace {str(workspace)!r} is refused: {str(part)!r} is a link that does not belong to root; name "
                "the directory itself",
                rule="workspace-foreign-link",
            )


def _is_bare(path: Path) -> bool:
    return all(os.path.lexists(path / name) for name in ("HEAD", "objects", "refs", "config"))


def _resolved(path: Path) -> Path:
    # Not strict: a state directory may not have been made yet.
    return path.resolve()


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_reachable(workspace: Path) -> None:
    """Refuse a workspace that its owner cannot list; run it as the owner.

    Raises:
        UsageError: It cannot be opened.
    """
    try:
        os.close(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as exc:
        raise UsageError(
            f"workspace {str(workspace)!r} cannot be reached by its owner, as whom it is worked on:"
            f" {exc.strerror}; let that user enter the directories above it (chmod o+x), or move it"
        ) from exc
