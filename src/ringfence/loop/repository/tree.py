"""A commit's files as data: read from git's objects, never from a work tree."""

import os
from collections.abc import Mapping, Sequence

from ringfence.check.tree_entry import TreeEntry
from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.loop.repository.candidate import Change
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.objects import read_blobs, read_line

_MOST_FILE_BYTES = 1024**2
"""What is larger is no test and says nothing of how tests run; its place and mode are known."""
_MOST_BYTES = 512 * 1024**2
_GITLINK = 0o160000
_LISTING_BYTES = 512 * 1024**2


@frozen
class Tree:
    """Files by path; bytes of paths that are no UTF-8 are surrogate escapes."""

    files: Mapping[str, TreeEntry]

    def read(self, path: str) -> TreeEntry | None:
        """The file at a path, if there is one."""
        return self.files.get(path)

    def line_count(self, path: str) -> int | None:
        """How many lines a file has; None: there is none."""
        item = self.files.get(path)
        return None if item is None or not item.is_file else len(item.data.splitlines())

    def changed(self, changes: Sequence[Change]) -> "Tree":
        """The tree with changes made to it."""
        files = dict(self.files)
        for change in changes:
            path = os.fsdecode(change.path)
            if change.git_mode is None:
                files.pop(path, None)
            else:
                files[path] = TreeEntry(change.data, change.git_mode)
        return Tree(files)


async def load_tree(git: Git, commit: str, *, inside: str) -> Tree:
    """All files of a commit, those below a directory, by their paths in it.

    Raises:
        UsageError: They hold more than 512 MiB, those beyond 1 MiB not counted.
    """
    listed = await git.run(
        "ls-tree", "-r", "-z", "-l", f"{commit}:{inside}", output_limit_bytes=_LISTING_BYTES
    )
    lines = [line for line in listed.stdout.split(b"\0") if line]
    blobs = [read_line(line) for line in lines if not line.startswith(b"160000 ")]
    links = [line.partition(b"\t")[2] for line in lines if line.startswith(b"160000 ")]
    read = [blob for blob in blobs if blob.size <= _MOST_FILE_BYTES]
    total = sum(blob.size for blob in read)
    if total > _MOST_BYTES:
        raise UsageError(
            f"the repository's files hold {total} bytes; a loop works with {_MOST_BYTES} at most"
        )
    files = {os.fsdecode(blob.path): TreeEntry(b"", blob.git_mode) for blob in blobs}
    files |= {os.fsdecode(path): TreeEntry(b"", _GITLINK) for path in links}
    async for batch in read_blobs(git, read):
        files |= {os.fsdecode(blob.path): TreeEntry(data, blob.git_mode) for blob, data in batch}
    return Tree(files)
