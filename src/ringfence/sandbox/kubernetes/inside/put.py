"""Unpacks a tar file from stdin: `put DIRECTORY SIZE`. Prints `done`.

Stdin is not ended, as older clusters cannot do that. The file is ringfence's own. Memory does not grow with the number
of files.
"""

import io
import os
import sys
import tarfile
from collections.abc import Iterator


class Part(io.RawIOBase):
    """The next bytes of stdin that belong to the file."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        """It can be read."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes."""
        data = os.read(0, min(size, self.left)) if self.left else b""
        self.left -= len(data)
        return data


def members(tar: tarfile.TarFile) -> "Iterator[tarfile.TarInfo]":
    """Yield each entry; `tarfile` would keep them all."""
    while (member := tar.next()) is not None:
        yield member
        tar.members = []  # type: ignore[attr-defined]  # typeshed lacks it


if hasattr(tarfile, "fully_trusted_filter"):  # since 3.14 another one is the default, which refuses links
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.fully_trusted_filter)
source = Part(int(sys.argv[2]))
with tarfile.open(
    fileobj=source, mode="r|", bufsize=1 << 20, encoding="utf-8", errors="surrogateescape"
) as tar:
    tar.extractall(sys.argv[1], members(tar), numeric_owner=True)  # noqa: S202 -- ringfence's own
while source.read(1 << 20):
    pass
if source.left:
    sys.exit("the stream ended early")
sys.stdout.write("done")
