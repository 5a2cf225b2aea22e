"""Reading tar streams that are hostile: what their headers make us keep in memory is bounded, from file to file.

The standard library reads extensions whole, follows chains of headers and of sparse maps as long as they go on, keeps
every header it saw, and believes a negative size.
"""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, Protocol, Self, cast

_EXTENSION_BYTES = 64 * 1024
_HEADERS_BYTES = 512 * 1024
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class Readable(Protocol):
    """What a stream comes from."""

    def read(self, count: int, /) -> bytes:
        """The next bytes; none at the end."""


class BoundedHeader(tarfile.TarInfo):
    """A header whose extension, which is read into memory whole, is of a sane size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a block of 512 bytes."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _EXTENSIONS and header.size > _EXTENSION_BYTES):
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        return header


class BoundedTar:
    """A tar stream, read once from its beginning. Made by `bounded_tar`."""

    def __init__(self, tar: tarfile.TarFile, reader: "_Reader") -> None:
        self._tar = tar
        self._reader = reader

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Each header in turn. Its `size` is not negative, and not bounded either.

        Raises:
            tarfile.TarError, EOFError, ValueError: The stream is damaged, or its headers go on without end.
        """
        while (member := self._next()) is not None:
            if member.size < 0:  # an extension can say so
                raise tarfile.ReadError(f"a file of {member.size} bytes")
            # Up to where the next header is expected, and then so much of headers.
            self._reader.limit = self._tar.offset + _HEADERS_BYTES
            yield member

    def _next(self) -> tarfile.TarInfo | None:
        # It keeps all headers: a million would be a gigabyte.
        self._tar.members = []  # type: ignore[attr-defined]  # typeshed lacks it
        self._tar.pax_headers = {}
        with _no_chains():
            return self._tar.next()

    def contents(self, member: tarfile.TarInfo) -> IO[bytes]:
        """What is in the regular file that `members` gave last."""
        opened = self._tar.extractfile(member)
        assert opened is not None
        return opened


@contextmanager
def bounded_tar(
    file: Readable, *, encoding: str | None = None, bufsize: int = 64 * 1024
) -> Iterator[BoundedTar]:
    """Read a tar stream that is hostile.

    Args:
        file: Where it comes from.
        encoding: Of its names; None is the file system's. What cannot be decoded is escaped (`surrogateescape`).
        bufsize: Bytes that are asked for at once.

    Raises:
        tarfile.TarError: It is no archive.
    """
    reader = _Reader(file)
    with _no_chains():
        tar = tarfile.open(  # noqa: SIM115 -- closed below
            mode="r|",
            fileobj=cast("BinaryIO", reader),
            tarinfo=BoundedHeader,
            encoding=encoding,
            errors="surrogateescape",
            bufsize=bufsize,
        )
    with tar:
        yield BoundedTar(tar, reader)


@contextmanager
def _no_chains() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        # The library calls itself for each header that extends the next one.
        raise tarfile.ReadError("it holds a chain of headers without a file") from None


class _Reader:
    def __init__(self, file: Readable) -> None:
        self.limit = _HEADERS_BYTES
        self._file = file
        self._given = 0

    def read(self, count: int) -> bytes:
        if self._given > self.limit:
            raise tarfile.ReadError("it holds headers without end")
        data = self._file.read(count)
        self._given += len(data)
        return data
