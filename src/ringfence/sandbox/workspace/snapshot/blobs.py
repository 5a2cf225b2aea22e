"""Files of a checkpoint as git lists and hands them out."""

from collections.abc import Iterable, Iterator

from ringfence.frozen import frozen

_BATCH_BYTES = 32 * 1024**2


@frozen
class Blob:
    """A file of a checkpoint, without its contents."""

    path: bytes
    git_mode: int
    id: str
    size: int


def read_line(line: bytes) -> Blob:
    """What a line of `git ls-tree -l` says."""
    head, _, path = line.partition(b"\t")
    mode, _, name, size = head.split()
    return Blob(path=path, git_mode=int(mode, 8), id=name.decode(), size=int(size))


def read_changes(output: bytes) -> list[tuple[bytes, int, str]]:
    """Path, mode and id of what `git diff-tree -r -z --raw --no-renames` says is there afterwards; mode 0: nothing."""
    fields = output.split(b"\0")
    found = []
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, name, _ = head.split(b" ")
        found.append((path, int(mode, 8), name.decode()))
    return found


def batches(blobs: Iterable[Blob]) -> Iterator[list[Blob]]:
    """Files in lists of about 32 MiB."""
    batch: list[Blob] = []
    size = 0
    for blob in blobs:
        if batch and size + blob.size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(blob)
        size += blob.size + 1000
    if batch:
        yield batch


def split_contents(batch: list[Blob], answer: bytes) -> list[tuple[Blob, bytes]]:
    """What `git cat-file --batch` answered, file by file."""
    contents, position = [], 0
    for blob in batch:
        start = answer.index(b"\n", position) + 1
        contents.append((blob, answer[start : start + blob.size]))
        position = start + blob.size + 1
    return contents
