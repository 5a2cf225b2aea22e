"""Stages sources that only root can reach, for a sandbox that does not run as root.

A root caller's sandbox runs as another host uid, which cannot walk to a project in root's home or to root's
state directory, and bwrap walks to every source by path. So a short program runs as root in a separate mount
namespace: it enters the sandbox's control group, binds the sources into a directory that any user can walk through,
drops to the sandbox's uid for good and becomes bwrap. A descriptor of another namespace cannot be mounted, so the
program opens each source again, and continues only if it is the file that was opened before.

Its interpreter takes as long to start as all of the host's preparation, so it is started first and receives its
instructions over a socket.
"""

import marshal
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from ringfence.sandbox.idmap import PROGRAM

DIRECTORY = "/mnt"
"""Covered by an empty file system in that namespace only; exists on every Debian and Red Hat system."""
_FIRST_PASSED = 256
"""Number of the first descriptor passed to bwrap. Those that come over the socket get the lowest free ones."""

# Imports built-in modules only: `os` alone would take a tenth of the time to open a sandbox.
_PROGRAM = """
import _ctypes, _socket, marshal, posix, sys
def fail(text, *values):
    sys.stderr.write("ringfence: " + text % values + "\\n")
    posix._exit(1)
wire = _socket.socket(fileno=int(sys.argv[1]))
text, passed = b"", []
while True:
    data, ancillary, _, _ = wire.recvmsg(65536, 2048)
    for _, _, numbers in ancillary:
        passed += memoryview(numbers).cast("i")
    if not data:
        break
    text += data
wire.close()
if not text:
    posix._exit(1)
words = marshal.loads(text)
sources, directory, uid, gid = words["sources"], words["directory"], words["uid"], words["gid"]
if len(passed) != words["passed"]:
    fail("%d descriptors came for %d", len(passed), words["passed"])
for number, descriptor in enumerate(passed, words["first"]):
    posix.dup2(descriptor, number)
    posix.close(descriptor)
for entrance in words["entrances"]:
    try:
        descriptor = posix.open(entrance, posix.O_WRONLY | posix.O_CLOEXEC)
        posix.write(descriptor, b"0")
        posix.close(descriptor)
    except OSError as error:
        fail("could not enter control group %r: %s", entrance, error.strerror)
library = _ctypes.dlopen(None, 0)
calls = {name: _ctypes.dlsym(library, name) for name in ("unshare", "mount", "umount2")}
def call(name, *arguments):
    # The C half of ctypes takes bytes as pointers and returns the C int.
    if _ctypes.call_function(calls[name], arguments) != 0:
        fail("%s %r failed", name, arguments)
BIND, REC, PRIVATE, DETACH = 4096, 16384, 1 << 18, 2
call("unshare", 0x00020000)
call("mount", b"none", b"/", None, REC | PRIVATE, None)
# Nothing inside comes from there, and bwrap reads the list of all mounts for each of its own.
_ctypes.call_function(calls["umount2"], (b"/sys", DETACH))
held = []
for source, identity, _ in sources:
    try:
        held.append(posix.open(source, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC))
        status = posix.fstat(held[-1])
    except OSError:
        status = None
    if status is None or identity not in (None, (status.st_dev, status.st_ino)):
        fail("%r was replaced while the sandbox was started", source)
call("mount", b"ringfence", directory, b"tmpfs", 0, b"mode=0711,size=1m")
idmap = None
for number, descriptor in enumerate(held):
    place = b"%s/%d" % (directory, number)
    if posix.fstat(descriptor).st_mode & 0o170000 == 0o040000:
        posix.mkdir(place)
    else:
        posix.close(posix.open(place, posix.O_CREAT | posix.O_WRONLY, 0o600))
    if not sources[number][2]:
        call("mount", b"/proc/self/fd/%d" % descriptor, place, None, BIND | REC, None)
        continue
    try:
        idmap = idmap or IdMap(uid, gid)
        idmap.mount(descriptor, place)
    except OSError as error:
        fail("%r has no idmapped mount: %s", sources[number][0], error.strerror)
posix.setgroups([])
posix.setresgid(gid, gid, gid)
posix.setresuid(uid, uid, uid)
posix.execve(words["argv"][0], words["argv"], words["env"])
"""


class Staging:
    """Collects sources and descriptors, and gives each the path or the number under which bwrap finds it."""

    def __init__(self) -> None:
        self._sources: list[tuple[bytes, tuple[int, int] | None, bool]] = []
        self._passed: list[int] = []
        self._wire, self._program_end = socket.socketpair()

    def add(self, source: Path, status: os.stat_result | None = None, *, is_idmapped: bool = False) -> Path:
        """Path that stands for `source` once staged.

        Args:
            source: On the host.
            status: Of the file that must be there, which is kept open until the sandbox has started; None: any file.
            is_idmapped: Whether root's files belong to the sandbox's user there.
        """
        identity = None if status is None else (status.st_dev, status.st_ino)
        self._sources.append((bytes(source), identity, is_idmapped))
        return Path(DIRECTORY, str(len(self._sources) - 1))

    def pass_descriptor(self, descriptor: int) -> int:
        """Number that `descriptor` will have in bwrap; it stays the caller's to close."""
        assert (
            len(self._passed) < 200
        )  # the kernel lets no more than 253 go in one message (SCM_MAX_FD, unix(7))
        self._passed.append(descriptor)
        return _FIRST_PASSED + len(self._passed) - 1

    def program(self, interpreter: str) -> tuple[list[str], int]:
        """The command of the program that stages, and the descriptor that it must inherit."""
        number = self._program_end.fileno()
        return [interpreter, "-I", "-S", "-c", PROGRAM + _PROGRAM, str(number)], number

    async def go_on(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        *,
        uid: int,
        gid: int,
        entrances: tuple[Path, ...] = (),
    ) -> None:
        """Make the program enter control groups by their `entrances`, stage sources, drop to `uid` and become `argv`."""
        words = {
            "entrances": [bytes(entrance) for entrance in entrances],
            "sources": self._sources,
            "first": _FIRST_PASSED,
            "passed": len(self._passed),
            "directory": DIRECTORY.encode(),
            "uid": uid,
            "gid": gid,
            "argv": list(argv),
            "env": env,
        }
        self._program_end.close()
        await anyio.to_thread.run_sync(self._send, marshal.dumps(words, 2))

    def _send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it is gone; its stderr says why
            sent = socket.send_fds(self._wire, [data], self._passed)
            self._wire.sendall(data[sent:])
            self._wire.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket to the program, which exits if it has received no instructions."""
        self._wire.close()
        self._program_end.close()
