"""A repository that stands on its own: what HEAD leads to and what is staged, in one pack.

For an engine that cannot be shown the user's object databases. Git is run on a directory of ours that leans on them,
never on the user's own.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ringfence.sandbox.workspace.git.command import LARGE, Git, write_clean_git_dir
from ringfence.sandbox.workspace.git.packs import copy_history
from ringfence.sandbox.workspace.git.refs import Refs
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.scratch import scratch_directory

_FOLDER = "160000"
"""Mode of a submodule in an index: its commit is in another repository."""
_COPIED = ("index", "shallow")


async def pack_history(
    databases: tuple[Path, ...],
    refs: Refs,
    files: Mapping[str, bytes],
    *,
    target: Path,
    reader: Actor,
    object_format: str,
) -> Refs:
    """Put the objects that HEAD and the index lead to into a git directory.

    Args:
        databases: The user's object databases.
        refs: The user's refs.
        files: Copies of files of the user's git directory, by name.
        target: The git directory, of the caller.
        reader: On whose behalf the databases are read.
        object_format: `sha1` or `sha256`.

    Returns:
        The refs that the git directory can have: HEAD's own, and those that HEAD leads to.

    Raises:
        InfrastructureFault: Git failed, or the disk is full.
    """
    async with scratch_directory(reader) as scratch:
        git = Git(scratch / "git", actor=reader, bounds=LARGE)

        def make() -> None:
            write_clean_git_dir(git.directory, object_format=object_format)
            lines = b"".join(os.fsencode(database) + b"\n" for database in databases)
            (git.directory / "objects/info/alternates").write_bytes(lines)
            (git.directory / "packed-refs").write_bytes(refs.packed())
            for name in (name for name in files if name in _COPIED or name.startswith("sharedindex.")):
                (git.directory / name).write_bytes(files[name])

        await reader.call(make)
        kept = await _reached(git, refs)
        tips = {*kept.direct.values(), *await _staged(git), kept.head_commit()} - {None}
        if tips:
            await copy_history(git, sorted(map(str, tips)), target)
        return kept


async def _reached(git: Git, refs: Refs) -> Refs:
    """Those of the refs that HEAD leads to: others would need objects that are not carried."""
    commit = refs.head_commit()
    names: set[str] = set()
    if commit is not None:
        listed = await git.run(
            "for-each-ref", f"--merged={commit}", "--format=%(refname)", accept=(0, 1, 128)
        )
        names = set(os.fsdecode(listed.stdout).splitlines()) if listed.ok else set()
    own = os.fsdecode(refs.head.strip()).removeprefix("ref:").strip()
    direct = {name: tip for name, tip in refs.direct.items() if name in names or name == own}
    symbolic = {name: to for name, to in refs.symbolic.items() if to in direct}
    left = len(refs.direct) - len(direct)
    note = f"{left} branches and tags that HEAD does not lead to were not carried to the engine"
    return replace(refs, direct=direct, symbolic=symbolic, notes=(*refs.notes, *((note,) if left else ())))


async def _staged(git: Git) -> set[str]:
    """Objects that the index names and the user has."""
    listed = await git.run("ls-files", "--stage", "-z", accept=(0, 128))
    rows = (row.split(b"\t")[0].split() for row in listed.stdout.split(b"\0") if row) if listed.ok else ()
    named = {words[1].decode() for words in rows if words[0] != _FOLDER.encode()}
    if not named:
        return set()
    asked = "".join(f"{one}\n" for one in sorted(named)).encode()
    found = await git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)
    answers = (line.split() for line in found.stdout.decode().splitlines())
    return {words[0] for words in answers if len(words) == 2 and words[1] in ("blob", "tree")}
