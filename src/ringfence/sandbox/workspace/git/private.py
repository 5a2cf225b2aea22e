"""The git directory an agent gets in place of the user's.

It holds copies of the refs, the index and a handful of harmless settings; the user's objects are mounted into
it read-only and found through `alternates`. So the user's refs, index, hooks and configuration are out of
reach, and since a mount point cannot be renamed, `.git` cannot be swapped for another. No hooks, no remotes,
no includes.

The parts are copied file by file; git is not run on the user's directory.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.base import Overlay
from ringfence.sandbox.workspace.git.databases import copy_databases, readable_by_all
from ringfence.sandbox.workspace.git.history_pack import pack_history
from ringfence.sandbox.workspace.git.layout import (
    INDEX_LIMIT,
    GitLayout,
    find_git,
    read_config,
    read_small,
)
from ringfence.sandbox.workspace.git.refs import Refs, read_refs
from ringfence.sandbox.workspace.run_as import Actor, give

INSIDE_OF_FILE = Path("/run/ringfence-git")
"""Where the private directory is inside when `.git` is a file (linked work tree, a submodule by itself)."""
_POINTER = "pointer"
_NO_ALTERNATES = "no-alternates"
_COPIED_SETTINGS = (
    "core.filemode", "core.symlinks", "core.ignorecase", "core.autocrlf", "core.eol", "core.safecrlf",
    "core.precomposeunicode", "core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse",
)  # fmt: skip
_HARMLESS = re.compile(r"true|false|yes|no|on|off|0|1|input|lf|crlf|native|warn")
_KNOWN_EXTENSIONS = frozenset({"objectformat", "worktreeconfig", "partialclone", "noop", "preciousobjects"})
_EMPTY = "the agent sees an empty repository, your files are there"


@frozen
class Identity:
    """Who the agent's commits are by."""

    name: str = "agent"
    email: str = "agent@localhost"


@frozen
class PrivateGit:
    """What was made, and how to mount it."""

    overlays: tuple[Overlay, ...]
    refs: Refs
    object_format: str
    directory: Path
    """Where it is on the host."""
    inside: Path
    """Where it is inside."""
    notes: tuple[str, ...] = ()


async def make_private_git(
    workspace: Path,
    directory: Path,
    *,
    reader: Actor,
    owner: Actor,
    identity: Identity | None = None,
    inside: Path = INSIDE_OF_FILE,
    stands_alone: bool = False,
) -> PrivateGit | None:
    """Make a private git directory for the repository at `workspace`.

    Args:
        workspace: The workspace; its path inside is the same.
        directory: Where to make it: absent, outside of the workspace.
        reader: On whose behalf the user's files are read.
        owner: The sandbox's identity, which will own what is made.
        identity: Name and address of the agent's commits.
        inside: Where it is inside when `.git` is a file.
        stands_alone: Whether it holds all objects it needs, for where nothing can be mounted in it.

    Returns:
        None where the workspace is no git repository.

    Raises:
        InfrastructureFault: It could not be written.
    """
    layout = await reader.call(lambda: find_git(workspace))
    if layout is None:
        return None
    plan = await reader.call(lambda: _read(layout, identity or Identity()))
    databases = list(layout.databases) if plan.has_history else []
    shared = reader == owner or await reader.call(lambda: all(map(readable_by_all, databases)))
    if databases and not shared and reader.uid == 0 and layout.is_file:
        plan = _nothing(f"{str(layout.objects)!r} is root's alone and not copied; {_EMPTY}", identity)
        databases = []
    fixed = _fixed(directory)
    linked = [] if stands_alone else databases
    try:
        if stands_alone and databases:
            (directory / "objects/pack").mkdir(mode=0o700, parents=True)
            plan.refs = await pack_history(
                tuple(databases),
                plan.refs,
                plan.files,
                target=directory,
                reader=reader,
                object_format=plan.object_format,
            )
        await Actor.current().call(lambda: _write(directory, plan, len(linked)))
        if not shared and linked:
            await copy_databases(layout, _places(directory, linked), reader)
        await Actor.current().call(lambda: give(directory, owner))
        if not stands_alone:
            await Actor.current().call(lambda: _write_fixed(fixed, inside))
            await Actor.current().call(lambda: give(fixed, owner))
    except OSError as exc:
        raise InfrastructureFault(
            f"could not make {str(directory)!r}: {exc.strerror}; is the disk full?"
        ) from exc
    target = inside if layout.is_file else workspace / ".git"
    overlays = () if stands_alone else _overlays(layout, directory, target, linked if shared else [])
    notes = tuple(dict.fromkeys([*plan.notes, *plan.refs.notes]))
    place = workspace / ".git" if stands_alone else target
    return PrivateGit(overlays, plan.refs, plan.object_format, directory, place, notes)


def make_mount_point(clone: Path, private: PrivateGit, directory: Path) -> None:
    """Make in a clone what the private git directory, or the file that names it, is mounted on.

    One that stands alone is mounted nowhere: it becomes the clone's own.
    """
    mount_point = clone / ".git"
    if not private.overlays:
        directory.rename(mount_point)
        return
    if any(overlay.source.name == _POINTER for overlay in private.overlays):
        mount_point.touch()
    else:
        mount_point.mkdir()


@dataclass
class _Plan:
    files: dict[str, bytes]
    refs: Refs
    object_format: str
    has_history: bool
    notes: list[str]


def _read(layout: GitLayout, identity: Identity) -> _Plan:
    if layout.refused is not None:
        return _nothing(layout.refused, identity)
    config = read_config(read_small(layout.common, b"config") or b"")
    extensions = {
        key.partition(".")[2]: value for key, value in config.items() if key.startswith("extensions.")
    }
    object_format = extensions.get("objectformat", "sha1").lower()
    notes = []
    unknown = {key for key, value in extensions.items() if key not in _KNOWN_EXTENSIONS and value != "files"}
    if unknown or object_format not in {"sha1", "sha256"}:
        named = ", ".join(sorted(unknown)) or object_format
        return _nothing(f"the repository uses {named}, which ringfence cannot copy: {_EMPTY}", identity)
    if "partialclone" in extensions:
        notes.append("the repository is a partial clone: objects you have not fetched are missing inside")
    if "worktreeconfig" in extensions:
        config |= read_config(read_small(layout.directory, b"config.worktree") or b"")
    refs = read_refs(layout, 64 if object_format == "sha256" else 40)
    files = {"config": _config(config, object_format, identity)}
    files |= _copies(layout)
    return _Plan(files, refs, object_format, has_history=True, notes=notes + list(refs.notes))


def _nothing(note: str, identity: Identity | None) -> _Plan:
    """An empty repository, and why."""
    empty = Refs(b"ref: refs/heads/main\n", {}, {})
    files = {"config": _config({}, "sha1", identity or Identity())}
    return _Plan(files, empty, "sha1", has_history=False, notes=[note])


def _copies(layout: GitLayout) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    wanted = [(layout.common, "info/exclude"), (layout.common, "shallow")]
    wanted += [(layout.directory, "info/sparse-checkout")]
    shared = sorted(path.name for path in layout.directory.glob("sharedindex.*"))[:4]
    wanted += [(layout.directory, name) for name in ("index", *shared)]
    for folder, name in wanted:
        data = read_small(folder, os.fsencode(name), INDEX_LIMIT)
        if data is not None:
            files[name] = data
    return files


def _config(config: dict[str, str], object_format: str, identity: Identity) -> bytes:
    lines = ["[core]", f"\trepositoryformatversion = {0 if object_format == 'sha1' else 1}", "\tbare = false"]
    # Owner and change time of a file differ inside, and are no reason to read it again.
    lines += ["\tcheckStat = minimal", "\ttrustctime = false", "\tlogallrefupdates = true"]
    for key in _COPIED_SETTINGS:
        section, _, name = key.partition(".")
        if section == "core" and _HARMLESS.fullmatch(config.get(key, "")):
            lines.append(f"\t{name} = {config[key]}")
    if object_format != "sha1":
        lines += ["[extensions]", f"\tobjectformat = {object_format}"]
    if config.get("index.sparse") == "true":
        lines += ["[index]", "\tsparse = true"]
    lines += ["[user]", f"\tname = {_quoted(identity.name)}", f"\temail = {_quoted(identity.email)}"]
    lines += ["[gc]", "\tauto = 0", "[maintenance]", "\tauto = false"]
    return ("\n".join(lines) + "\n").encode()


def _quoted(text: str) -> str:
    plain = "".join(letter for letter in text if letter.isprintable())[:200]
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write(directory: Path, plan: _Plan, databases: int) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for name, data in plan.files.items():
        (directory / name).write_bytes(data)
    (directory / "HEAD").write_bytes(plan.refs.head)
    (directory / "packed-refs").write_bytes(plan.refs.packed())
    for name, target in plan.refs.symbolic.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"ref: {target}\n")
    for number in range(databases):
        (directory / f"base-objects-{number}").mkdir()
    lines = "".join(f"../base-objects-{number}\n" for number in range(databases))
    if lines:
        (directory / "objects" / "info" / "alternates").write_text(lines)


def _fixed(directory: Path) -> Path:
    """Where files that are mounted lie: not in the git directory, where an agent could remove them."""
    return directory.with_name(f"{directory.name}-fixed")


def _write_fixed(fixed: Path, inside: Path) -> None:
    fixed.mkdir(mode=0o700)
    (fixed / _POINTER).write_text(f"gitdir: {inside}\n")
    (fixed / _NO_ALTERNATES).write_bytes(b"")


def _places(directory: Path, databases: list[Path]) -> dict[Path, Path]:
    return {database: directory / f"base-objects-{number}" for number, database in enumerate(databases)}


def _overlays(
    layout: GitLayout, directory: Path, target: Path, databases: Iterable[Path]
) -> tuple[Overlay, ...]:
    overlays = [Overlay(directory, target, read_only=False)]
    if layout.is_file:
        overlays.append(Overlay(_fixed(directory) / _POINTER, layout.workspace / ".git", read_only=True))
    for number, database in enumerate(databases):
        place = target / f"base-objects-{number}"
        overlays.append(Overlay(database, place, read_only=True))
        if (database / "info" / "alternates").is_file():
            # All databases are in our own list; theirs names paths that do not exist inside.
            hidden = _fixed(directory) / _NO_ALTERNATES
            overlays.append(Overlay(hidden, place / "info" / "alternates", read_only=True))
    return tuple(overlays)
