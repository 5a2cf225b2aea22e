"""The stream that `git fast-import` reads: one tree after another, each a few changes to the one before."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.scan import Content

_MAX_PACKS = 100
_FEW = 200
"""Objects: of two hundred files, or fewer, with the directories above them."""
_MANY = 200
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


async def import_changes(
    git: Git, refs: Sequence[str], *, base_tree: str, deleted: Iterable[bytes], written: Sequence[Content]
) -> tuple[str, str]:
    """Commit the tree `base_tree` (empty: none) with these changes on all `refs`, without a parent.

    Returns:
        The commit's id and its tree's id.
    """
    deleted = [*deleted]
    parts = [
        b"feature done\n",
        b"commit %s\nmark :1\n" % refs[0].encode(),
        b"committer ringfence <ringfence@localhost> %d +0000\n" % int(time.time()),
        # Named in it: two checkpoints of one state in one second are two, each with a memo of its own.
        b"data %d\n%s\n" % (len(refs[0]), refs[0].encode()),
        b'M 040000 %s ""\n' % base_tree.encode() if base_tree not in {"", EMPTY_TREE} else b"deleteall\n",
    ]
    parts += [b"D %s\n" % quoted(path) for path in deleted]
    for content in written:
        parts.append(
            b"M %o inline %s\ndata %d\n" % (content.git_mode, quoted(content.path), len(content.data))
        )
        parts += [content.data, b"\n"]
    parts += [b"reset %s\nfrom :1\n\n" % ref.encode() for ref in refs[1:]]
    parts.append(b'get-mark :1\nls :1 ""\ndone\n')
    # A commit on the same tree is one object, for which no pack is made.
    is_alone = not deleted and not written
    unpack_limit = _FEW if is_alone else await anyio.to_thread.run_sync(_unpack_limit, git.directory)
    # A file is next to never like the one before it; to see that takes as long as all the rest. Trees are.
    depth = ("--depth=0",) if len(written) > _MANY else ()
    command = ("fast-import", "--quiet", "--force", *depth)
    packing = replace(git, options=(*git.options, f"fastimport.unpackLimit={unpack_limit}"))
    result = await packing.run(*command, stdin=b"".join(parts), timeout_s=600.0)
    lines = result.stdout.decode("ascii", "replace").splitlines()
    # An empty tree is told as "missing".
    if len(lines) != 2:
        raise InfrastructureFault(f"git fast-import answered {result.stdout[:200]!r}; is the disk full?")
    tree = lines[1].split()[2] if lines[1].startswith("040000 tree ") else EMPTY_TREE
    return lines[0], tree


def _unpack_limit(store: Path) -> int:
    """How many objects are kept one by one; beyond, as a pack, which takes a tenth of the time.

    Git opens each pack, so there are to be no thousands of them; `gc` makes them one.
    """
    packs = sum(path.suffix == ".pack" for path in (store / "objects" / "pack").iterdir())
    return 1 if packs < _MAX_PACKS else _FEW


def quoted(path: bytes) -> bytes:
    """A path as fast-import reads any path."""
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
