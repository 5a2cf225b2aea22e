"""Which directories may be a workspace, in which mode, and as which host user a sandbox works there.

Refused is what no snapshot could undo. As whom, and how, is one table for all backends.
"""

import grp
import os
import pwd
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.run_as import Actor

RESERVED_ID = 87_463
"""Host uid and gid of a root caller's sandbox on root's own files.

Between 65536 and 99999 no distribution hands out ids: system and user ids end below 65536, the subordinate
ranges of shadow begin at 100000, systemd's ranges lie within 60000-65535 and above 524288.
"""

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


def choose_user_and_mode(
    caller: Actor, owner: Actor, *, asked: WorkspaceMode | None, unseen: str | None = None
) -> tuple[Actor, WorkspaceMode]:
    """Choose as which user of the host a sandbox runs, and how the workspace is shown to it.

    ========  ==================  =========================  ==================================
    caller    workspace of        runs as                    mode, unless another is asked for
    ========  ==================  =========================  ==================================
    a user    the caller          the caller                 `bind`
    a user    somebody else       the caller                 `clone`; `bind` is refused
    root      a user              that user                  `bind`
    root      root                the reserved id            `clone`; `bind` by an idmapped mount
    ========  ==================  =========================  ==================================

    Where the engine does not see this machine's files, it is `clone` for all, and `bind` is refused. Group 0 is never
    used: the reserved id takes its place.

    Args:
        caller: Who runs ringfence.
        owner: Owner of the workspace, with its primary group.
        asked: The mode that was asked for, if any.
        unseen: Why this machine's directories cannot be mounted, if they cannot.

    Raises:
        PolicyRefused: `bind` was asked for and is not to be had; or the reserved id is somebody's.
    """
    user, binds = caller, caller.uid == owner.uid
    if caller.uid == 0 != owner.uid:
        user, binds = owner, True
    elif caller.uid == 0:
        user, binds = Actor(RESERVED_ID, RESERVED_ID), asked == "bind"
    if unseen is not None and asked == "bind":
        raise PolicyRefused(
            f"workspace mode 'bind' is refused: {unseen}; use mode 'clone' or 'read_only', which are carried there, an "
            "engine on a Unix socket of this machine, or --sandbox bubblewrap",
            rule="workspace-on-engine",
        )
    if asked == "bind" and not binds:
        raise PolicyRefused(
            f"workspace mode 'bind' is refused: it belongs to uid {owner.uid}, not to you (uid {caller.uid}); use mode"
            " 'clone', or chown the workspace",
            rule="bind-owner",
        )
    user = Actor(user.uid, user.gid or RESERVED_ID)
    if RESERVED_ID in (user.uid, user.gid):
        check_reserved(RESERVED_ID)
    return user, asked or ("bind" if binds and unseen is None else "clone")


def choose_on_host(asked: WorkspaceMode | None) -> tuple[Actor, WorkspaceMode]:
    """User and mode of the bare host: the workspace itself, as the caller.

    Raises:
        PolicyRefused: Another mode was asked for.
    """
    if asked not in (None, "bind"):
        raise PolicyRefused(
            f"workspace mode {asked!r} is refused: the host backend has no fence to show another workspace with;"
            " use --sandbox bubblewrap, or leave the mode out",
            rule="host-mode",
        )
    return Actor.current(), "bind"


def user_without_workspace() -> Actor:
    """As whom a sandbox runs that has no workspace.

    Raises:
        PolicyRefused: The reserved id is somebody's.
    """
    return choose_user_and_mode(Actor.current(), Actor.current(), asked="clone")[0]


def check_reserved(reserved: int) -> None:
    """Make sure that the reserved id is nobody's.

    Raises:
        PolicyRefused: It is 0, or the user or group database names it.
    """
    taken = "root's" if reserved == 0 else ""
    with suppress(KeyError):
        taken = taken or f"the uid of {pwd.getpwuid(reserved).pw_name!r}"
    with suppress(KeyError):
        taken = taken or f"the gid of {grp.getgrgid(reserved).gr_name!r}"
    if taken:
        raise PolicyRefused(
            f"the reserved id {reserved} is {taken}; sandboxes of root need an id that nobody has",
            rule="reserved-id",
        )
