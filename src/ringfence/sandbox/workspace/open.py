"""Opens a workspace in the same way for runs, sandboxes, checkpoints and inspection.

`open_workspace` resolves the path, refuses directories whose changes no snapshot could undo, decides by one table for
all backends as which user a sandbox works there and how the workspace is shown, locks it if sandboxes write to the
directory itself, and examines its git directory. `placement` then prepares the sandbox's view of it.
"""

import grp
import os
import pwd
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement, Traits
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.git.config import UserSettings, read_settings
from ringfence.sandbox.workspace.git.layout import GitLayout, examine_git
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.protect.repositories import expect_no_git, settle_git, why_untrusted
from ringfence.sandbox.workspace.run_as import Actor, owner_of
from ringfence.sandbox.workspace.snapshot.memo import named_note
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

RESERVED_ID = 87_463
"""Host uid and gid of a root caller's sandbox on root's own files.

Between 65536 and 99999 no distribution hands out ids: system and user ids end below 65536, the subordinate
ranges of shadow begin at 100000, systemd's ranges lie within 60000-65535 and above 524288.
"""

_MAX_SHOWN = 5


@frozen
class Workspace:
    """The workspace of one run or sandbox."""

    path: Path
    """The resolved path, which is the same inside."""
    state: Path
    """The state directory."""
    mode: WorkspaceMode
    """How it is shown."""
    owner: Actor
    """The user as which host code reads and writes its files."""
    placement: Placement
    """Its placement for a launch; `open_workspace` sets the workspace itself, without mounts."""
    traits: Traits = Traits()
    """Traits of the backend: whether it fences, and whether files are uploaded and downloaded."""
    layout: GitLayout | None = None
    """Its git directory, if that is used."""
    settings: UserSettings = UserSettings()
    """Settings of its owner's git configuration."""
    own_environment: tuple[bytes, ...] = ()
    """The virtual environment that ringfence runs from if it is in the workspace: read-only inside."""
    repositories: tuple[PrivateGit, ...] = ()
    """The private git directories whose commits are fetched: the workspace's own, then those of submodules."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""

    @property
    def sandbox_user(self) -> Actor:
        """The user as which the sandbox runs."""
        return Actor(self.placement.uid, self.placement.gid)

    @property
    def store(self) -> SnapshotStore:
        """Its snapshots."""
        return SnapshotStore(self.path, self.state, actor=self.owner, excludes=self.settings.excludes)

    @property
    def obeyed_files(self) -> list[bytes]:
        """Files in it that the user's git runs or reads, so that an agent may not write them."""
        return [os.fsencode(path) for path in self.settings.obeyed if path != "."]

    @property
    def obeyed_paths(self) -> list[bytes]:
        """`obeyed_files`, and paths where the user's git would run a file if it existed."""
        return [*self.obeyed_files, *map(os.fsencode, self.settings.obeyed_if_created)]


@asynccontextmanager
async def open_workspace(
    path: Path,
    mode: WorkspaceMode | None,
    *,
    state: Path,
    holder: str | None,
    traits: Traits,
) -> AsyncIterator[Workspace]:
    """Resolve a workspace, decide how to show it, lock it if sandboxes write to it, and examine its git directory.

    Args:
        path: As named by the user.
        mode: The requested mode; None: as the table of `choose_user_and_mode` says.
        state: The state directory.
        holder: Name of the lock's holder, shown to others: a run's id. None: the workspace is not locked.
        traits: Traits of the backend. Without a fence, commands work on the workspace itself, as the caller.

    Raises:
        UsageError: It is absent, not a directory, or unreadable.
        PolicyRefused: It may not be a workspace, or not in this mode; or another run holds it, or one above or in it
        (`workspace-busy`).
        InfrastructureFault: The lock cannot be created, or git did not respond.
    """
    resolved = await anyio.to_thread.run_sync(lambda: check_workspace(path, home=Path.home(), state=state))
    user, mode = _choose_for(resolved, mode, traits)
    own_environment = check_own_program(resolved) if traits.is_fence and mode == "bind" else ()
    owner = Actor.for_files(resolved)
    await owner.call(lambda: _check_reachable(resolved, owner))
    with _locked(resolved, mode, holder, state):
        found: GitLayout | str | None = why_untrusted(resolved, state)
        found = found or await owner.call(lambda: examine_git(resolved))
        layout = found if isinstance(found, GitLayout) else None
        settings = await read_settings(owner, resolved, layout)
        placement = Placement(
            user.uid,
            user.gid,
            resolved,
            resolved,
            workspace_read_only=mode == "read_only",
            is_idmapped=mode == "bind" and owner.uid == 0 != user.uid,
        )
        yield Workspace(
            path=resolved,
            state=state,
            mode=mode,
            owner=owner,
            placement=placement,
            traits=traits,
            layout=layout,
            settings=settings,
            own_environment=own_environment,
            notes=(*((found,) if isinstance(found, str) else ()), *_notes(mode, traits, settings)),
        )


def _notes(mode: WorkspaceMode, traits: Traits, settings: UserSettings) -> Iterator[str]:
    """Notes for the user about a workspace in this mode."""
    if traits.unseen is not None and mode == "clone":
        yield (
            f"{traits.unseen}: your files are uploaded there and downloaded when the sandbox ends, protected ones "
            "as they were; if the engine or ringfence dies before, what was made inside is lost"
        )
    obeyed = "your git configuration leads into the workspace; ringfence does not follow it, your git does"
    yield from named_note(obeyed, settings.obeyed, most=_MAX_SHOWN)


@contextmanager
def _locked(path: Path, mode: WorkspaceMode, holder: str | None, state: Path) -> Iterator[None]:
    """Lock a workspace in mode `bind`; a sandbox that works on a clone, or only reads, needs no lock."""
    if holder is None or mode != "bind":
        yield
        return
    with held(path, by=holder, state=state):
        expect_no_git(path, holder, state)
        try:
            yield
        finally:
            settle_git(path, state)


# --- which directories may be a workspace


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
"""Directories that are refused themselves; a directory in one may be a workspace."""


@frozen
class Candidate:
    """A candidate for a workspace, and the paths it is compared with, all resolved."""

    workspace: Path
    homes: tuple[Path, ...]
    """Home directories of the caller and of the directory's owner."""
    state: Path


@frozen
class Refusal:
    """One kind of directory that may not be a workspace, and the reason."""

    rule: str
    applies: Callable[[Candidate], bool]
    because: str


def _in_system(candidate: Candidate) -> bool:
    workspace = candidate.workspace
    return str(workspace) in _SHARED or any(workspace.is_relative_to(name) for name in _SYSTEM)


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
"""Checked in this order."""


def check_workspace(workspace: Path, *, home: Path, state: Path) -> Path:
    """Return the path of a workspace with all links resolved.

    Raises:
        UsageError: It is absent, or not a directory.
        PolicyRefused: A row of `REFUSALS` applies, or root would follow another user's link.
    """
    try:
        resolved = workspace.resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        raise UsageError(f"workspace {str(workspace)!r} cannot be found: {why}; name a directory") from exc
    if os.geteuid() == 0:
        _refuse_foreign_links(workspace)
    if not resolved.is_dir():
        raise UsageError(
            f"workspace {str(workspace)!r} is no directory; name the directory the agent shall work in"
        )
    # Not strict: a state directory may not exist yet.
    candidate = Candidate(resolved, (home.resolve(), *_owner_home(resolved)), state.resolve())
    for refusal in REFUSALS:
        if refusal.applies(candidate):
            raise PolicyRefused(
                f"workspace {str(resolved)!r} is not allowed: {refusal.because};"
                " use a directory of the project's own",
                rule=refusal.rule,
            )
    return resolved


def _owner_home(path: Path) -> tuple[Path, ...]:
    try:
        return (Path(pwd.getpwuid(path.stat().st_uid).pw_dir).resolve(),)
    except KeyError:
        return ()


def _refuse_foreign_links(workspace: Path) -> None:
    """Refuse a path with another user's link in it: root could follow it to files that user may not read."""
    path = workspace.absolute()
    for part in (path, *path.parents):
        status = part.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid != 0:
            raise PolicyRefused(
                f"workspace {str(workspace)!r} is not allowed: {str(part)!r} is a link that does not belong to root; "
                "name the directory itself",
                rule="workspace-foreign-link",
            )


def _is_bare(path: Path) -> bool:
    return all(os.path.lexists(path / name) for name in ("HEAD", "objects", "refs", "config"))


def _check_reachable(workspace: Path, owner: Actor) -> None:
    """Refuse a workspace that its owner cannot list and enter. Call it as the owner.

    Raises:
        UsageError: It cannot be opened.
    """
    try:
        os.close(os.open(f"{workspace}/.", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as exc:
        problem = f"cannot be read: {exc.strerror}; check its permissions (ls -ld {workspace})"
        if owner.switches:
            problem = (
                f"cannot be reached by its owner, as whom it is worked on: {exc.strerror}; let that user enter the "
                "directories above it (chmod o+x), or move it"
            )
        raise UsageError(f"workspace {str(workspace)!r} {problem}") from exc


# --- the directories that ringfence itself runs from

_NEEDED = ("anyio", "msgspec", "pydantic")
"""Some dependencies of ringfence; the others are loaded from the same directories."""


def check_own_program(workspace: Path) -> tuple[bytes, ...]:
    """Check that the program that runs ringfence is not in the workspace, where an agent could change it.

    The virtual environment that ringfence runs from may be there, as it can be mounted read-only. So may the directory
    of the user's script, which is moved to the end of `sys.path`, so that no file that an agent puts there can replace a
    module that is imported later.

    Returns:
        Paths that must be read-only inside, relative to the workspace.

    Raises:
        PolicyRefused: Ringfence, its interpreter or a module path is elsewhere in the workspace.
    """
    resolved = os.path.realpath(workspace)
    own = _own_paths()
    lies_inside = {path: _lies_in(path, resolved) for path in {*own, *sys.path}}
    environment = _environment_in(resolved)
    is_read_only = {path: environment is not None and _lies_in(path, environment) for path in lies_inside}
    inside = [path for path in own if lies_inside[path] and not is_read_only[path]]
    if inside:
        raise PolicyRefused(
            f"ringfence itself runs from {inside[0]!r}, in the workspace, where an agent could change it; use "
            "mode 'clone' or 'read_only' (--mode clone, SandboxSpec(mode='clone')), or install "
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


def _own_paths() -> list[str]:
    """Paths of the interpreter, of ringfence and of its dependencies, without the directory of the user's script."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    named = {"", sys.path[0] if sys.path else "", str(Path(main).parent) if main else ""}
    needed = (sys.modules[name].__file__ for name in _NEEDED if name in sys.modules)
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable, str(Path(__file__).parents[2])}
    own |= {path for path in sys.path if path not in named}
    return sorted(filter(None, {*own, *needed}))


def _lies_in(path: str, workspace: str) -> bool:
    try:
        place = str(Path(path).absolute())
    except FileNotFoundError:  # relative to a directory that is gone, where nothing is found
        return False
    # Each path on the way matters: a venv's python in the workspace can be a link that leads out of it, and
    # `project/sub/../../venv` passes through a directory in which an agent can put a link.
    inner = workspace.rstrip("/") + "/"
    passed = (*_paths_on_the_way(place), os.path.realpath(place))
    return any(each.startswith(inner) for each in passed) or os.path.normpath(place) == inner.rstrip("/")


def _paths_on_the_way(path: str) -> Iterator[str]:
    """Yield each path that resolving a path passes through, with `..` applied."""
    place = "/"
    for part in path.split("/"):
        if part not in ("", "."):
            place = os.path.normpath(os.path.join(place, part))  # noqa: PTH118 -- applies `..` to the text
            yield place


# --- user and mode of a sandbox


def _choose_for(workspace: Path, asked: WorkspaceMode | None, traits: Traits) -> tuple[Actor, WorkspaceMode]:
    """Choose the user of a sandbox and the mode; without a fence, these are the caller and `bind`."""
    if traits.is_fence:
        return choose_user_and_mode(Actor.current(), owner_of(workspace), asked=asked, unseen=traits.unseen)
    if asked not in (None, "bind"):
        raise PolicyRefused(
            f"workspace mode {asked!r} is not allowed: the host backend has no fence to show another workspace with;"
            " use --sandbox bubblewrap, or leave the mode out",
            rule="host-mode",
        )
    return Actor.current(), "bind"


def choose_user_and_mode(
    caller: Actor, owner: Actor, *, asked: WorkspaceMode | None, unseen: str | None = None
) -> tuple[Actor, WorkspaceMode]:
    """Choose the host user as which a sandbox runs, and how the workspace is shown to it.

    ========  ==================  =========================  ==================================
    caller    workspace of        runs as                    mode, unless another is requested
    ========  ==================  =========================  ==================================
    a user    the caller          the caller                 `bind`
    a user    another user        the caller                 `clone`; `bind` is refused
    root      a user              that user                  `bind`
    root      root                the reserved id            `clone`; `bind` by an idmapped mount
    ========  ==================  =========================  ==================================

    If the engine does not see this machine's files, the mode is `clone` for all, and `bind` is refused. Group 0 is never
    used: the reserved id takes its place.

    Args:
        caller: Who runs ringfence.
        owner: Owner of the workspace, with its primary group.
        asked: The requested mode, if any.
        unseen: Why this machine's directories cannot be mounted, if they cannot.

    Raises:
        PolicyRefused: `bind` was requested and is not possible; or a user or group has the reserved id.
    """
    user, binds = caller, caller.uid == owner.uid
    if caller.uid == 0 != owner.uid:
        user, binds = owner, True
    elif caller.uid == 0:
        user, binds = Actor(RESERVED_ID, RESERVED_ID), asked == "bind"
    if unseen is not None and asked == "bind":
        raise PolicyRefused(
            f"workspace mode 'bind' is not allowed: {unseen}; use mode 'clone' or 'read_only', which are uploaded "
            "there, an engine on a Unix socket of this machine, or --sandbox bubblewrap",
            rule="workspace-on-engine",
        )
    if asked == "bind" and not binds:
        raise PolicyRefused(
            f"workspace mode 'bind' is not allowed: it belongs to uid {owner.uid}, not to you (uid {caller.uid}); use "
            "mode 'clone', or chown the workspace",
            rule="bind-owner",
        )
    user = Actor(user.uid, user.gid or RESERVED_ID)
    if RESERVED_ID in (user.uid, user.gid):
        check_reserved(RESERVED_ID)
    return user, asked or ("bind" if binds and unseen is None else "clone")


def user_without_workspace() -> Actor:
    """Choose the user of a sandbox that has no workspace.

    Raises:
        PolicyRefused: A user or group has the reserved id.
    """
    return choose_user_and_mode(Actor.current(), Actor.current(), asked="clone")[0]


def check_reserved(reserved: int) -> None:
    """Check that no user or group has the reserved id.

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
