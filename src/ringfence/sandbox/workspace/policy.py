"""Which directories may be a workspace, in which mode, and as which host user a sandbox works there.

Refused is what no snapshot could undo. As whom, and how, is one table for all backends. What ringfence itself runs from
is never writable inside: a virtual environment in the workspace is mounted read-only.
"""

import grp
import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.run_as import primary_group

RESERVED_ID = 87_463
"""Host uid and gid of a root caller's sandbox on root's own files.

Between 65536 and 99999 no distribution hands out ids: system and user ids end below 65536, the subordinate
ranges of shadow begin at 100000, systemd's ranges lie within 60000-65535 and above 524288.
"""

_NEEDED = ("anyio", "msgspec", "pydantic")
"""Some of what ringfence needs: where these were loaded from, the rest will be, too."""
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


@frozen
class Caller:
    """Who runs ringfence."""

    uid: int
    gid: int

    @classmethod
    def current(cls) -> "Caller":
        """Of this process."""
        return cls(os.geteuid(), os.getegid())


@frozen
class Decision:
    """As whom, and how."""

    uid: int
    gid: int
    mode: WorkspaceMode
    is_idmapped: bool = False
    """Whether root's files are shown as the sandbox's own."""
    own_environment: tuple[bytes, ...] = ()
    """The virtual environment that ringfence runs from, where it lies in the workspace: read-only inside."""


def decide(
    caller: Caller,
    owner_uid: int,
    owner_gid: int,
    *,
    asked: WorkspaceMode | None,
    reserved: int = RESERVED_ID,
    unseen: str | None = None,
) -> Decision:
    """Choose the identity and the mode of a sandbox.

    ========  ==================  =========================  ==================================
    caller    workspace of        runs as                    mode, unless another is asked for
    ========  ==================  =========================  ==================================
    a user    the caller          the caller                 `bind`
    a user    somebody else       the caller                 `clone`; `bind` is refused
    root      a user              that user                  `bind`
    root      root                the reserved id            `clone`; `bind` by an idmapped mount
    ========  ==================  =========================  ==================================

    Where the engine does not see this machine's files, it is `clone` for all, and `bind` is refused.

    Args:
        caller: Who runs ringfence.
        owner_uid: Owner of the workspace.
        owner_gid: The owner's primary group. 0 is never lent: the reserved id takes its place.
        asked: The mode that was asked for, if any.
        reserved: The reserved id.
        unseen: Why this machine's directories cannot be mounted, if they cannot.

    Raises:
        PolicyRefused: `bind` was asked for and is not to be had.
    """
    if caller.uid != 0:
        uid, gid, binds = caller.uid, caller.gid, caller.uid == owner_uid
        reason = f"it belongs to uid {owner_uid}, not to you (uid {caller.uid})"
    elif owner_uid != 0:
        uid, gid, binds, reason = owner_uid, owner_gid or reserved, True, ""
    else:
        uid, gid, binds = reserved, reserved, False
        reason = ""
    if unseen is not None and asked == "bind":
        raise PolicyRefused(
            f"workspace mode 'bind' is refused: {unseen}; use mode 'clone' or 'read_only', which are carried there, an "
            "engine on a Unix socket of this machine, or --sandbox bubblewrap",
            rule="workspace-on-engine",
        )
    if caller.uid == 0 == owner_uid and asked == "bind":
        return Decision(uid, gid, "bind", is_idmapped=True)
    binds = binds and unseen is None
    if asked == "bind" and not binds:
        raise PolicyRefused(
            f"workspace mode 'bind' is refused: {reason}; use mode 'clone', or chown the workspace",
            rule="bind-owner",
        )
    return Decision(uid, gid or reserved, asked or ("bind" if binds else "clone"))


def decide_for(
    workspace: Path, asked: WorkspaceMode | None, *, reserved: int = RESERVED_ID, unseen: str | None = None
) -> Decision:
    """Choose identity and mode for a workspace on this machine.

    Raises:
        PolicyRefused: As `decide`; or the reserved id is somebody's.
    """
    status = workspace.stat()
    decision = decide(
        Caller.current(),
        status.st_uid,
        primary_group(status.st_uid, status.st_gid),
        asked=asked,
        reserved=reserved,
        unseen=unseen,
    )
    if reserved in {decision.uid, decision.gid}:
        check_reserved(reserved)
    if decision.mode == "bind":
        return replace(decision, own_environment=check_own_program(workspace))
    return decision


def decide_on_host(mode: WorkspaceMode | None) -> Decision:
    """The decision for the bare host: the workspace itself, as the caller.

    Raises:
        PolicyRefused: Another mode was asked for.
    """
    if mode not in (None, "bind"):
        raise PolicyRefused(
            f"workspace mode {mode!r} is refused: the host backend has no fence to show another workspace with;"
            " use --sandbox bubblewrap, or leave the mode out",
            rule="host-mode",
        )
    return Decision(os.geteuid(), os.getegid(), "bind")


def decide_without_workspace() -> Decision:
    """The decision for a sandbox that has no workspace.

    Raises:
        PolicyRefused: The reserved id is somebody's.
    """
    caller = Caller.current()
    decision = decide(caller, caller.uid, caller.gid, asked="clone")
    if decision.uid == RESERVED_ID:
        check_reserved(RESERVED_ID)
    return decision


def check_own_program(workspace: Path) -> tuple[bytes, ...]:
    """See that what runs now on the host does not lie where an agent is about to write.

    The virtual environment that ringfence runs from may lie there, as it can be mounted read-only. So may the directory
    of the script that runs: it is the user's own. From now on it is searched last, so that nothing an agent puts there
    can take the place of a module that is imported later.

    Returns:
        What has to be read-only inside, relative to the workspace.

    Raises:
        PolicyRefused: Ringfence, its interpreter or a module path lies elsewhere in the workspace.
    """
    resolved = os.path.realpath(workspace)
    own = _own_places()
    lies_inside = {path: _lies_in(path, resolved) for path in {*own, *sys.path}}
    environment = _environment_in(resolved)
    is_read_only = {path: environment is not None and _lies_in(path, environment) for path in lies_inside}
    inside = [path for path in own if lies_inside[path] and not is_read_only[path]]
    if inside:
        raise PolicyRefused(
            f"ringfence itself runs from {inside[0]!r}, in the workspace, where an agent could change it; use mode "
            "'clone' (--mode clone; from Python: in a run) or 'read_only' (SandboxSpec(mode='read_only')), or install "
            "ringfence outside of the project",
            rule="workspace-runs-ringfence",
        )
    sys.path.sort(key=lambda path: lies_inside[path] and not is_read_only[path])
    return () if environment is None else (os.fsencode(os.path.relpath(environment, resolved)),)


def _environment_in(workspace: str) -> str | None:
    """The virtual environment of this interpreter, if it is a directory below the workspace that no link leads to."""
    prefix = os.path.normpath(sys.prefix)
    is_environment = sys.prefix != sys.base_prefix and os.path.isfile(f"{prefix}/pyvenv.cfg")  # noqa: PTH113 -- a text
    is_below = prefix.startswith(workspace.rstrip("/") + "/")
    return prefix if is_environment and is_below and os.path.realpath(prefix) == prefix else None


def _own_places() -> list[str]:
    """Where the interpreter, ringfence and what it needs lie; not where a script or a module lies that was named."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    named = {"", sys.path[0] if sys.path else "", str(Path(main).parent) if main else ""}
    needed = (sys.modules[name].__file__ for name in _NEEDED if name in sys.modules)
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable, str(Path(__file__).parents[2])}
    own |= {path for path in sys.path if path not in named}
    return sorted(filter(None, {*own, *needed}))


def _lies_in(path: str, workspace: str) -> bool:
    try:
        place = str(Path(path).absolute())
    except FileNotFoundError:  # relative to a directory that is gone: nothing is found there
        return False
    # All ways: a venv's python is a link that leads out of the workspace, and lies in it all the same; and who goes
    # through a directory in it and back (`project/sub/../../venv`) goes where an agent may put a link.
    inner = workspace.rstrip("/") + "/"
    ways = (*_passed(place), os.path.realpath(place))
    return any(way.startswith(inner) for way in ways) or os.path.normpath(place) == inner.rstrip("/")


def _passed(path: str) -> Iterator[str]:
    """Each place that a path goes through, `..` taken back: what lies above the workspace is no part of it."""
    place = "/"
    for part in path.split("/"):
        if part not in ("", "."):
            place = os.path.normpath(os.path.join(place, part))  # noqa: PTH118 -- `..` of a text is wanted
            yield place


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
