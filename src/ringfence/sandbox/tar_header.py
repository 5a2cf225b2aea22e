"""Headers of tar streams that are hostile: what a header makes us keep in memory is bounded."""

import tarfile
from typing import Self

_EXTENSION_BYTES = 64 * 1024
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class BoundedHeader(tarfile.TarInfo):
    """A header whose extension, which is read into memory whole, is of a sane size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a block of 512 bytes."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _EXTENSIONS and header.size > _EXTENSION_BYTES):
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        return header
