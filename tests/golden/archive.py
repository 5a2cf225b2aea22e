"""Packs a directory into a file for git and unpacks it again, with modes, links, times and stale sockets."""

import gzip
import os
import socket
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_SOCKETS = ".sockets"
"""Member that lists the paths of Unix sockets, since an archive cannot hold them."""


def pack(directory: Path, archive: Path, *, excluded: Sequence[str] = ()) -> None:
    """Write the content of a directory to a `.tar.gz`; the bytes do not depend on the owner of the files.

    Args:
        directory: Its content becomes the archive's.
        archive: The file to write.
        excluded: Glob patterns of paths that are not packed, relative to the directory.
    """
    dropped = {path for pattern in excluded for path in directory.glob(pattern)}
    kept = [path for path in _walk(directory) if dropped.isdisjoint([path, *path.parents])]
    sockets = [path for path in kept if stat.S_ISSOCK(path.lstat().st_mode)]
    listing = directory / _SOCKETS
    listing.write_text("".join(f"{path.relative_to(directory)}\n" for path in sockets))
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in [*kept, *([listing] if sockets else [])]:
            if path not in sockets:
                tar.add(path, str(path.relative_to(directory)), recursive=False, filter=_normalize)
    listing.unlink()


def unpack(archive: Path, directory: Path) -> None:
    """Create a directory with the content of an archive; all files belong to the caller."""
    directory.mkdir()
    directory.chmod(0o755)
    command = ("tar", "--extract", "--gzip", "--same-permissions", "--no-same-owner")
    subprocess.run([*command, "--file", archive, "--directory", directory], check=True)
    listing = directory / _SOCKETS
    if listing.exists():
        for line in listing.read_text().splitlines():
            _create_stale_socket(directory / line)
        listing.unlink()


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _normalize(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    return member


def _create_stale_socket(path: Path) -> None:
    """Create a socket without a listener, as a killed process leaves it.

    The path may exceed the 108 bytes that an address holds, so the socket is bound through a descriptor.
    """
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
