"""Creates the git directory of a loop's repository: a copy of the history of the commit that the loop starts from."""

import os
from pathlib import Path

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.loop.repository.inspection import Inspection
from ringfence.loop.repository.repository_directory import (
    BRANCH,
    RepositoryDirectory,
    RepositoryOrigin,
    encode_path,
    write_origin,
)
from ringfence.loop.repository.source import SourceView, open_source
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import write_clean_git_dir, write_git_dir
from ringfence.sandbox.workspace.git.packs import copy_history
from ringfence.sandbox.workspace.git.refs import Refs

_MAX_TAGS = 10_000


async def create_git_dir(found: Inspection, directory: RepositoryDirectory, *, loop: str) -> None:
    """Create the bare repository with the base, its history and its tags.

    It is created under a temporary name, and renamed when it is complete.

    Raises:
        InfrastructureFault: Git failed, or the disk is full.
    """
    new = directory.git_dir.with_name("loop.git.new")
    source = found.source
    origin = RepositoryOrigin(
        loop=loop,
        source=encode_path(source.root),
        inside=encode_path(source.inside),
        base=found.base,
        branch=found.branch,
        object_format=source.object_format,
    )
    try:
        await anyio.to_thread.run_sync(_create_empty, new, source.object_format)
        async with open_source(source) as view:
            tags = await _tags(view, found.base)
            await copy_history(view.git, [found.base, *tags.values()], new)
            shallow = view.git.directory / "shallow"
            if view.is_shallow:
                (new / "shallow").write_bytes(await source.actor.call(shallow.read_bytes))
        refs = Refs(f"ref: {BRANCH}\n".encode(), {BRANCH: found.base, **tags}, {})
        write_git_dir(new, refs.files())
        write_origin(new, origin)
        new.rename(directory.git_dir)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(new)!r}: {exc.strerror}; {next_step(exc)}") from exc


def _create_empty(new: Path, object_format: str) -> None:
    if os.path.lexists(new):
        remove_tree(new)
    make_private_dir(new)
    write_clean_git_dir(new, object_format=object_format)


async def _tags(view: SourceView, base: str) -> dict[str, str]:
    """Return the tags in the history of the base, for tools that compute a version from them."""
    if not any(name.startswith("refs/tags/") for name in view.refs.direct):
        return {}
    form = "--format=%(objectname) %(refname)"
    listed = await view.git.run(
        "for-each-ref", f"--merged={base}", f"--count={_MAX_TAGS}", form, "refs/tags", accept=(0, 1, 128)
    )
    # As bytes: a tag's name may contain what ends a line only in text.
    lines = map(os.fsdecode, listed.stdout.splitlines()) if listed.ok else ()
    return {name: target for target, _, name in (line.partition(" ") for line in lines)}
