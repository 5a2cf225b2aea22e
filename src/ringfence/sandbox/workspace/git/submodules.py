"""Private git directories for the submodules of a workspace that is worked on in place.

A submodule's `.git` is a file that names a directory in the git directory above it, which inside is a private
one. So each submodule gets a private git directory too, and a file that names it in the place of its own.
Only a directory among the modules of the user's own repository is taken for one, and only if it names the
submodule in turn: what an agent has written could lead anywhere.
"""

import os
from collections.abc import Collection
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git
from ringfence.sandbox.workspace.git.private import Identity, PrivateGit, make_private_git
from ringfence.sandbox.workspace.run_as import Actor

MAX_SUBMODULES = 64
_INSIDE = Path("/run/ringfence-submodules")
_GIT = b"/.git"


@frozen
class Submodule:
    """One submodule, with the git directory that the agent gets for it."""

    place: str
    """Its path in the workspace."""
    layout: GitLayout
    private: PrivateGit

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told about it."""
        return tuple(f"submodule {self.place!r}: {note}" for note in self.private.notes)


async def make_submodules(
    above: GitLayout,
    entries: Collection[bytes],
    directory: Path,
    *,
    reader: Actor,
    owner: Actor,
    identity: Identity,
) -> tuple[tuple[Submodule, ...], tuple[str, ...]]:
    """Make a private git directory for each submodule, nested ones as well.

    Args:
        above: The workspace's own repository, which no agent could write.
        entries: Every `.git` in the workspace below its own.
        directory: Where to make them: absent, outside of the workspace.
        reader: On whose behalf the user's files are read.
        owner: The sandbox's identity, which will own what is made.
        identity: Name and address of the agent's commits.

    Returns:
        The submodules, and notes about what is left out.

    Raises:
        InfrastructureFault: They could not be written.
    """
    places = await reader.call(lambda: _places(above, entries))
    made: list[Submodule] = []
    for number, (place, layout) in enumerate(places[:MAX_SUBMODULES]):
        private = await make_private_git(
            layout.workspace,
            directory / str(number),
            reader=reader,
            owner=owner,
            identity=identity,
            inside=_INSIDE / str(number),
        )
        if private is not None:
            made.append(Submodule(place, layout, private))
    notes = []
    if len(places) > MAX_SUBMODULES:
        notes.append(
            f"of {len(places)} submodules, {MAX_SUBMODULES} have a git directory inside; git fails in the others, and"
            " with them `git status` of the whole; use mode 'clone'"
        )
    return tuple(made), tuple(notes)


def _places(above: GitLayout, entries: Collection[bytes]) -> list[tuple[str, GitLayout]]:
    modules = Path(os.path.realpath(above.directory)) / "modules"
    found = []
    for entry in sorted(entries):
        place = os.fsdecode(entry.removesuffix(_GIT))
        layout = find_git(above.workspace / place)
        if layout is not None and layout.is_file and layout.directory.is_relative_to(modules):
            found.append((place, layout))
    return found
