"""Sources that only root can reach, for a sandbox that does not run as root.

A root caller's sandbox runs as another host uid, which cannot walk to a project in root's home or to root's
state directory, and bwrap walks to every source by path. So a short program, as root, in a mount namespace of its
own, binds the sources into a directory anyone can walk through, then drops to the sandbox's uid for good and
becomes bwrap. Before that it goes into the sandbox's control group. A descriptor of another namespace cannot be
mounted, so it opens each source again, and goes on only if that is what was opened before.
"""

import marshal
import os
from pathlib import Path

DIRECTORY = "/mnt"
"""Covered by an empty file system in that namespace only; every Debian and Red Hat has it."""

_PROGRAM = """
import marshal, os, sys
import _ctypes
words = marshal.loads(bytes.fromhex(sys.argv[1]))
sources, directory, uid, gid = words["sources"], words["directory"], words["uid"], words["gid"]
for entrance in words["entrances"]:
    try:
        descriptor = os.open(entrance, os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, b"0")
        os.close(descriptor)
    except OSError as error:
        sys.stderr.write("ringfence: could not enter control group %r: %s\\n" % (entrance, error.strerror))
        os._exit(1)
library = _ctypes.dlopen(None, 0)
calls = {name: _ctypes.dlsym(library, name) for name in ("unshare", "mount")}
def call(name, *arguments):
    # The C half of ctypes takes bytes as pointers and returns the C int.
    if _ctypes.call_function(calls[name], arguments) != 0:
        sys.stderr.write("ringfence: %s %r failed\\n" % (name, arguments))
        os._exit(1)
BIND, REC, PRIVATE = 4096, 16384, 1 << 18
call("unshare", 0x00020000)
call("mount", b"none", b"/", None, REC | PRIVATE, None)
held = []
for source, identity in sources:
    try:
        held.append(os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
        status = os.fstat(held[-1])
    except OSError:
        status = None
    if status is None or identity not in (None, (status.st_dev, status.st_ino)):
        sys.stderr.write("ringfence: %r was replaced while the sandbox was started\\n" % source)
        os._exit(1)
call("mount", b"ringfence", directory, b"tmpfs", 0, b"mode=0711,size=1m")
for number, descriptor in enumerate(held):
    place = os.path.join(directory, b"%d" % number)
    if os.path.isdir("/proc/self/fd/%d" % descriptor):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    call("mount", b"/proc/self/fd/%d" % descriptor, place, None, BIND | REC, None)
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
os.execve(words["argv"][0], words["argv"], words["env"])
"""


class Staging:
    """Collects sources and gives each the path under which the sandbox's uid finds it."""

    def __init__(self) -> None:
        self._sources: list[tuple[bytes, tuple[int, int] | None]] = []

    def add(self, source: Path, status: os.stat_result | None = None) -> Path:
        """Path that stands for `source` once staged.

        Args:
            source: On the host.
            status: Of what has to be there, which is kept open until the sandbox has started; None: any.
        """
        identity = None if status is None else (status.st_dev, status.st_ino)
        self._sources.append((bytes(source), identity))
        return Path(DIRECTORY, str(len(self._sources) - 1))

    def command(
        self,
        interpreter: str,
        argv: list[str],
        env: dict[str, str],
        *,
        uid: int,
        gid: int,
        entrances: tuple[Path, ...] = (),
    ) -> list[str]:
        """The command that goes into control groups by their `entrances`, stages, drops to `uid` and becomes `argv`."""
        words = {
            "entrances": [bytes(entrance) for entrance in entrances],
            "sources": self._sources,
            "directory": DIRECTORY.encode(),
            "uid": uid,
            "gid": gid,
            "argv": argv,
            "env": env,
        }
        return [interpreter, "-I", "-S", "-c", _PROGRAM, marshal.dumps(words, 2).hex()]
