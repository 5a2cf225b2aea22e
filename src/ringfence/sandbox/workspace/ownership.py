"""As which host user a sandbox runs and how it is shown its workspace: one table for all backends."""

import grp
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.errors import PolicyRefused
from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.protect.mounts import (
    covers_for,
    guard_git,
    overlays_for,
    refuse_unseen,
    shut_in,
)
from ringfence.sandbox.workspace.protect.roots_files import check_roots_files
from ringfence.sandbox.workspace.refusals import check_workspace
from ringfence.sandbox.workspace.run_as import owner_of, primary_group
from ringfence.sandbox.workspace.snapshot.survey import survey

RESERVED_ID = 87_463
"""Host uid and gid of a root caller's sandbox on root's own files.

Between 65536 and 99999 no distribution hands out ids: system and user ids end below 65536, the subordinate
ranges of shadow begin at 100000, systemd's ranges lie within 60000-65535 and above 524288.
"""

_NEEDED = ("anyio", "msgspec", "pydantic")
"""Some of what ringfence needs: where these were loaded from, the rest will be, too."""


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
        check_own_program(workspace)
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


def place(
    workspace: Path | None,
    mode: WorkspaceMode | None,
    *,
    unseen: str | None = None,
    private: PrivateGit | None = None,
    fixed: tuple[bytes, ...] = (),
) -> Placement:
    """Where a sandbox without a run stands: on the workspace itself, what the host trusts in it read-only.

    Args:
        workspace: The workspace, if there is one.
        mode: The mode that was asked for.
        unseen: Why this machine's directories cannot be mounted, if they cannot.
        private: What takes the place of the git directory; None: that is shown, read-only.
        fixed: Further files that may not be written, relative to the workspace.

    Raises:
        PolicyRefused: The workspace is one of those never shown, or needs a clone, which only a run makes.
        UsageError: The workspace is absent, no directory or unreadable.
    """
    if workspace is None:
        caller = Caller.current()
        own = decide(caller, caller.uid, caller.gid, asked="clone")
        if own.uid == RESERVED_ID:
            check_reserved(RESERVED_ID)
        return Placement(own.uid, own.gid, None, None)
    workspace = check_workspace(workspace, home=Path.home(), state=state_dir())
    decision = decide_for(workspace, mode, unseen=unseen)
    if decision.mode == "clone":
        advice = f", since {unseen}" if unseen else ", or 'bind'"
        raise PolicyRefused(
            f"workspace {str(workspace)!r} can only be shown to uid {decision.uid} as a clone, which belongs"
            f" to a run: use `ringfence run`, or mode 'read_only'{advice}",
            rule="clone-needs-run",
        )
    if unseen is not None:
        return Placement(
            decision.uid, decision.gid, workspace, workspace, workspace_read_only=True, carry="in"
        )
    found = owner_of(workspace).call_sync(lambda: survey(workspace, gathers=False))
    refuse_unseen(workspace, found.blindness)
    if decision.is_idmapped:
        check_roots_files(workspace)
    if decision.mode == "bind":
        guarded = (*sorted(found.git_entries), *shut_in(found.closed), *fixed, *check_own_program(workspace))
        reachable = [path for path in found.specials if private is None or not path.startswith(b".git/")]
        git = guard_git(workspace) if private is None else private.overlays
        overlays = git + overlays_for(workspace, git_entries=guarded, covered=reachable)
    else:
        overlays = covers_for(workspace, found.specials)
    return Placement(
        decision.uid,
        decision.gid,
        workspace,
        workspace,
        workspace_read_only=decision.mode == "read_only",
        overlays=overlays,
        is_idmapped=decision.is_idmapped,
    )
