"""Builds, on demand, the patch of changes that are in a run's commits but not in its workspace."""

from dataclasses import replace
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.commits import quarantine
from ringfence.sandbox.workspace.git.committed import merge_bases
from ringfence.sandbox.workspace.git.layout import find_git
from ringfence.sandbox.workspace.git.refs import Refs
from ringfence.sandbox.workspace.work import WorkRecord

_PATCH_BYTES = 256 * 1024**2
_MOST_PATHS = 500
_OPTIONS = (
    "-r",
    "-p",
    "--binary",
    "--full-index",
    "--no-renames",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
)


async def commit_patch(record: WorkRecord, ref: str) -> bytes | None:
    """Return the patch of the files that only this ref's commits change; None if it cannot be built.

    The commits may be gone, in a submodule, or in a bundle beside the record; or there are too many files.
    """
    tip = record.refs.get(ref)
    paths = [file.path for file in record.committed if file.ref == ref and not file.is_earlier]
    layout = await record.actor.call(lambda: find_git(Path(record.workspace)))
    if tip is None or layout is None or not 0 < len(paths) <= _MOST_PATHS:
        return None
    object_format = "sha256" if len(tip) == 64 else "sha1"
    try:
        async with quarantine(layout, Refs(b"", {}, {}), record.actor, object_format) as git:
            literally = replace(git, environment={**git.environment, "GIT_LITERAL_PATHSPECS": "1"})
            base = (await merge_bases(git, record.base_commit, tip))[0]
            made = await literally.run(
                "diff-tree", *_OPTIONS, base, tip, "--", *paths, output_limit_bytes=_PATCH_BYTES
            )
    except InfrastructureFault:
        return None  # the caller lists the files instead
    return made.stdout
