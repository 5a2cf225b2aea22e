"""Makes the git directory that an agent gets in place of the user's.

It holds copies of the refs, the index and a handful of harmless settings; the user's objects are mounted into
it read-only and found through `alternates`. So the user's refs, index, hooks and configuration are out of
reach, and since a mount point cannot be renamed, `.git` cannot be swapped for another. It has no hooks, remotes or
includes. If the objects cannot be mounted, or cannot be read inside, git packs the needed ones.

The other parts are copied file by file; git is not run on the user's directory.

In a workspace that is worked on in place, each submodule gets such a directory, too: its `.git` is a file that names a
directory in the git directory above it, which inside is a private one.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.base import BindMount
from ringfence.sandbox.workspace.git.command import Git, write_git_dir
from ringfence.sandbox.workspace.git.layout import (
    INDEX_LIMIT,
    GitLayout,
    find_git,
    parse_format,
    read_effective_config,
    read_small,
)
from ringfence.sandbox.workspace.git.packs import copy_history, quarantine
from ringfence.sandbox.workspace.git.refs import Refs, read_refs
from ringfence.sandbox.workspace.run_as import Actor, give
from ringfence.sandbox.workspace.tree import Tree

MAX_SUBMODULES = 64
_INSIDE_OF_FILE = Path("/run/ringfence-git")
"""Path of the private directory inside when `.git` is a file (linked work tree, a submodule by itself)."""
_INSIDE_OF_SUBMODULES = Path("/run/ringfence-submodules")
_POINTER = "pointer"
_NO_ALTERNATES = "no-alternates"
_COPIED_SETTINGS = (
    "core.filemode", "core.symlinks", "core.ignorecase", "core.autocrlf", "core.eol", "core.safecrlf",
    "core.precomposeunicode", "core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse",
)  # fmt: skip
_HARMLESS = re.compile(r"true|false|yes|no|on|off|0|1|input|lf|crlf|native|warn")
_EMPTY = "the agent sees an empty repository, your files are there"
_MAX_PACK_FILES = 200_000
_SUBMODULE = b"160000"
"""Mode of a submodule in an index, whose commit is in another repository."""


@frozen
class Identity:
    """The author of the agent's commits."""

    name: str = "agent"
    email: str = "agent@localhost"


@frozen
class PrivateGit:
    """A private git directory, and where to mount it."""

    mounts: tuple[BindMount, ...]
    layout: GitLayout
    """The user's repository that it was made from."""
    refs: Refs
    """The refs that it was made with."""
    directory: Path
    """Its path on the host."""
    inside: Path
    """Its path inside."""
    place: str = ""
    """The path of a submodule in the workspace."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""


async def make_private_git(
    layout: GitLayout,
    directory: Path,
    *,
    reader: Actor,
    owner: Actor,
    identity: Identity,
    inside: Path = _INSIDE_OF_FILE,
    stands_alone: bool = False,
) -> PrivateGit:
    """Make a private git directory for a repository of the user.

    Args:
        layout: The repository; its workspace has the same path inside.
        directory: Its path, absent and outside of the workspace.
        reader: The user as which the user's files are read.
        owner: The sandbox's identity, which will own the directory.
        identity: Name and address for the agent's commits.
        inside: Its path inside when `.git` is a file.
        stands_alone: Whether nothing can be mounted in it, so that it holds all objects reachable from HEAD.

    Raises:
        InfrastructureFault: It could not be written.
    """
    plan = await reader.call(lambda: _read(layout, identity))
    databases = layout.databases if plan.has_history else ()
    is_readable = reader == owner or await reader.call(lambda: all(map(_is_public, databases)))
    mounted = databases if is_readable and not stands_alone else ()
    if not is_readable and not stands_alone and reader.uid == 0 and layout.is_linked:
        plan = _nothing(f"{str(layout.objects)!r} is root's alone and not copied; {_EMPTY}", identity)
    try:
        await Actor.current().call(lambda: directory.mkdir(mode=0o700, parents=True, exist_ok=True))
        if plan.has_history and not mounted:
            plan.refs = await _copy_objects(layout, plan, directory, reader, is_whole=not stands_alone)
        await Actor.current().call(lambda: _write(directory, plan, len(mounted), inside))
        for made in (directory, _fixed(directory)):
            await Actor.current().call(partial(give, made, owner))
    except OSError as exc:
        raise InfrastructureFault(
            f"could not make {str(directory)!r}: {exc.strerror}; is the disk full?"
        ) from exc
    target = inside if layout.is_linked and not stands_alone else layout.workspace / ".git"
    mounts = () if stands_alone else _mounts(layout, directory, target, mounted)
    return PrivateGit(mounts, layout, plan.refs, directory, target, notes=(*plan.notes, *plan.refs.notes))


def make_mount_point(clone: Path, private: PrivateGit, directory: Path) -> None:
    """Create the mount point in a clone for the private git directory, or for the file that names it.

    A directory that stands alone is not mounted: it becomes the clone's own.
    """
    mount_point = clone / ".git"
    if not private.mounts:
        directory.rename(mount_point)
    elif private.layout.is_linked:
        mount_point.touch()
    else:
        mount_point.mkdir()


async def make_submodules(
    above: GitLayout,
    entries: Collection[bytes],
    directory: Path,
    *,
    reader: Actor,
    owner: Actor,
    identity: Identity,
) -> tuple[tuple[PrivateGit, ...], tuple[str, ...]]:
    """Make a private git directory for each submodule, including nested ones.

    Args:
        above: The workspace's own repository, which no agent could write.
        entries: Every `.git` in the workspace below its own.
        directory: Path for them, absent and outside of the workspace.
        reader: The user as which the user's files are read.
        owner: The sandbox's identity, which will own the directories.
        identity: Name and address for the agent's commits.

    Returns:
        The directories that were made, and a note about submodules that have none.

    Raises:
        InfrastructureFault: They could not be written.
    """
    found = await reader.call(lambda: _find_submodules(above, entries))
    made: list[PrivateGit] = []
    for number, (place, layout) in enumerate(found[:MAX_SUBMODULES]):
        private = await make_private_git(
            layout,
            directory / str(number),
            reader=reader,
            owner=owner,
            identity=identity,
            inside=_INSIDE_OF_SUBMODULES / str(number),
        )
        notes = tuple(f"submodule {place!r}: {note}" for note in private.notes)
        made.append(replace(private, place=place, notes=notes))
    if len(found) <= MAX_SUBMODULES:
        return tuple(made), ()
    note = (
        f"of {len(found)} submodules, {MAX_SUBMODULES} have a git directory inside; git fails in the others, and"
        " with them `git status` of the whole; use mode 'clone'"
    )
    return tuple(made), (note,)


def _find_submodules(above: GitLayout, entries: Collection[bytes]) -> list[tuple[str, GitLayout]]:
    """Accept only directories among the modules of the user's own repository that name the submodule in turn.

    A path that an agent has written could lead anywhere.
    """
    modules = Path(os.path.realpath(above.directory)) / "modules"
    places = [os.fsdecode(entry.removesuffix(b"/.git")) for entry in sorted(entries)]
    layouts = ((place, find_git(above.workspace / place)) for place in places)
    return [
        (place, layout)
        for place, layout in layouts
        if layout is not None and layout.is_linked and layout.directory.is_relative_to(modules)
    ]


@dataclass
class _Plan:
    files: dict[str, bytes]
    refs: Refs
    has_history: bool
    notes: list[str]


def _read(layout: GitLayout, identity: Identity) -> _Plan:
    if layout.refused is not None:
        return _nothing(f"{_EMPTY}, and no commits come out: {layout.refused}", identity)
    config = read_effective_config(layout)
    object_format, unknown = parse_format(config)
    if unknown:
        return _nothing(f"the repository uses {unknown}, which ringfence cannot copy: {_EMPTY}", identity)
    notes = []
    if "extensions.partialclone" in config:
        notes.append("the repository is a partial clone: objects you have not fetched are missing inside")
    refs = read_refs(layout, object_format)
    files = {"config": _config(config, object_format, identity), **_copies(layout)}
    return _Plan(files, refs, has_history=True, notes=notes)


def _nothing(note: str, identity: Identity) -> _Plan:
    """Make an empty repository, and note the reason."""
    files = {"config": _config({}, "sha1", identity)}
    return _Plan(files, Refs(b"ref: refs/heads/main\n", {}, {}), has_history=False, notes=[note])


def _copies(layout: GitLayout) -> dict[str, bytes]:
    shared = sorted(path.name for path in layout.directory.glob("sharedindex.*"))[:4]
    wanted = [(layout.common, name) for name in ("info/exclude", "shallow")]
    wanted += [(layout.directory, name) for name in ("info/sparse-checkout", "index", *shared)]
    found = {name: read_small(folder, os.fsencode(name), INDEX_LIMIT) for folder, name in wanted}
    return {name: data for name, data in found.items() if data is not None}


def _config(config: dict[str, str], object_format: str, identity: Identity) -> bytes:
    lines = ["[core]", f"\trepositoryformatversion = {0 if object_format == 'sha1' else 1}", "\tbare = false"]
    # Owner and change time of a file differ inside, and must not make git read it again.
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


def _is_public(objects: Path) -> bool:
    """Whether any uid can read the objects. The directories above do not matter, as mounts bypass them."""
    with Tree(objects) as tree:
        for folder, names in tree.walk(_MAX_PACK_FILES):
            here = tree.lstat(folder) if folder else objects.stat()
            packs = [tree.lstat(folder + b"/" + os.fsencode(name)) for name in names if folder == b"pack"]
            if here is None or not here.st_mode & stat.S_IXOTH:
                return False
            if not all(status.st_mode & stat.S_IROTH for status in (here, *packs) if status is not None):
                return False
    return True


async def _copy_objects(
    layout: GitLayout, plan: _Plan, target: Path, reader: Actor, *, is_whole: bool
) -> Refs:
    """Copy the objects reachable from the refs and the index to a git directory, with a git run as the reader.

    Returns:
        The refs that the directory can have: all, or HEAD and those reachable from HEAD.
    """
    index = {
        name: data for name, data in plan.files.items() if name == "index" or name.startswith("sharedindex.")
    }
    async with quarantine(layout, plan.refs, reader, index=index) as git:
        refs = plan.refs if is_whole else await _reached(git, plan.refs)
        staged = await git.run("ls-files", "--stage", "-z", accept=(0, 128))
        rows = (row.partition(b"\t")[0].split() for row in staged.stdout.split(b"\0") if row)
        names = sorted({*refs.commits(), *(words[1].decode() for words in rows if words[0] != _SUBMODULE)})
        asked = "".join(f"{name}\n" for name in names).encode()
        answer = await git.run("cat-file", "--batch-check=%(objectname)", stdin=asked)
        there = [line for line in answer.stdout.decode().splitlines() if " " not in line]
        if there:
            await copy_history(git, there, target)
        return refs


async def _reached(git: Git, refs: Refs) -> Refs:
    """The refs reachable from HEAD: others would need objects that are not uploaded."""
    names = {os.fsdecode(refs.head.strip()).removeprefix("ref:").strip()}
    if commit := refs.head_commit():
        listed = await git.run(
            "for-each-ref", f"--merged={commit}", "--format=%(refname)", accept=(0, 1, 128)
        )
        # As bytes: a name may contain what ends a line only in text.
        names |= set(map(os.fsdecode, listed.stdout.splitlines())) if listed.ok else set()
    direct = {name: tip for name, tip in refs.direct.items() if name in names}
    symbolic = {name: to for name, to in refs.symbolic.items() if to in direct}
    left = len(refs.direct) - len(direct)
    note = f"{left} branches and tags that HEAD does not lead to were not uploaded to the engine"
    return replace(refs, direct=direct, symbolic=symbolic, notes=(*refs.notes, *((note,) if left else ())))


def _write(directory: Path, plan: _Plan, databases: int, inside: Path) -> None:
    places = [f"base-objects-{number}" for number in range(databases)]
    for name in ("hooks", *places):
        (directory / name).mkdir()
    files = {**plan.files, **plan.refs.files()}
    if places:
        files["objects/info/alternates"] = "".join(f"../{place}\n" for place in places).encode()
    write_git_dir(directory, files)
    fixed = _fixed(directory)
    fixed.mkdir(mode=0o700)
    (fixed / _POINTER).write_text(f"gitdir: {inside}\n")
    (fixed / _NO_ALTERNATES).write_bytes(b"")


def _fixed(directory: Path) -> Path:
    """The directory for files that are mounted, outside the git directory, where an agent could remove them."""
    return directory.with_name(f"{directory.name}-fixed")


def _mounts(
    layout: GitLayout, directory: Path, target: Path, databases: Iterable[Path]
) -> tuple[BindMount, ...]:
    mounts = [BindMount(directory, target, read_only=False)]
    if layout.is_linked:
        mounts.append(BindMount(_fixed(directory) / _POINTER, layout.workspace / ".git", read_only=True))
    for number, database in enumerate(databases):
        place = target / f"base-objects-{number}"
        mounts.append(BindMount(database, place, read_only=True))
        if (database / "info" / "alternates").is_file():
            # All databases are in our own list; the user's lists name paths that do not exist inside.
            hidden = _fixed(directory) / _NO_ALTERNATES
            mounts.append(BindMount(hidden, place / "info" / "alternates", read_only=True))
    return tuple(mounts)
