"""Unpacks a tar file from stdin: `put DIRECTORY SIZE`. Prints `done`.

Stdin is not ended, as older clusters cannot do that. The file is ringfence's own.
"""

import io
import os
import sys
import tarfile


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


source = Part(int(sys.argv[2]))
with tarfile.open(
    fileobj=source, mode="r|", bufsize=1 << 20, encoding="utf-8", errors="surrogateescape"
) as tar:
    tar.extractall(sys.argv[1], numeric_owner=True)  # noqa: S202 -- ringfence's own
while source.read(1 << 20):
    pass
sys.stdout.write("done")
