"""Unpacks one tar file from stdin, prints `done`, and waits until the pod ends: `receive DIRECTORY`.

Before the file comes its size: eight bytes, the most significant first. Stdin is not ended, as older clusters cannot do
that. If nothing comes at all, there is no workspace. The file is ringfence's own. Memory does not grow with the number
of files.
"""

import io
import os
import signal
import sys
import tarfile
from collections.abc import Iterator

SIZE_BYTES = 8


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


def unpack(directory: str, size: int) -> None:
    """Unpack a file of `size` bytes."""
    source = Part(size)
    with tarfile.open(
        fileobj=source, mode="r|", bufsize=1 << 20, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        tar.extractall(directory, members(tar), numeric_owner=True)  # noqa: S202 -- ringfence's own
    while source.read(1 << 20):
        pass
    if source.left:
        sys.exit("the stream ended early")


# As the first process of its container it would not end by this signal otherwise.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if hasattr(tarfile, "fully_trusted_filter"):  # since 3.14 another one is the default, which refuses links
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.fully_trusted_filter)
announced = Part(SIZE_BYTES)
header = b"".join(iter(lambda: announced.read(SIZE_BYTES), b""))
if header:
    unpack(sys.argv[1], int.from_bytes(header, "big"))
    os.write(1, b"done")
while True:
    signal.pause()
