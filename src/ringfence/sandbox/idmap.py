"""Makes an idmapped mount of root's workspace, on which root's files belong to a sandbox that is not root.

Files made inside belong to root on disk, while no process inside is root. Ids other than 0 are unchanged, except the
sandbox's own, which is unmapped on disk. Needs Linux 5.12 and a file system that supports it (mount_setattr(2)).
"""

import ctypes
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.errors import SandboxStartFailed
from ringfence.process import run_process
from ringfence.sandbox.base import Launch

ADVICE = (
    "it takes Linux 5.12 or newer and a file system that takes part (ext4, xfs, btrfs, tmpfs; not NFS or a container's "
    "own root); use mode 'clone'"
)
PROGRAM = '''
import _socket, posix, sys
class IdMap:
    """Makes mounts on which root's files belong to another user."""
    def __init__(self, uid, gid):
        import ctypes  # only here: it takes as long as all else
        self.library, self.errno = ctypes.CDLL(None, use_errno=True), ctypes.get_errno
        self.size = ctypes.c_size_t
        ours, childs = _socket.socketpair()
        child = posix.fork()
        if child == 0:
            ours.close()
            if self.library.unshare(0x10000000) == 0:  # CLONE_NEWUSER
                childs.send(b"!")
                childs.recv(1)  # until the namespace is held by a descriptor, or nobody wants it any more
            posix._exit(0)
        childs.close()
        try:
            if not ours.recv(1):
                raise OSError(1, "user namespaces are not allowed")
            for kind, number in (("uid", uid), ("gid", gid)):
                rows = ((0, number, 1), (1, 1, number - 1), (number + 1, number + 1, 0xFFFFFFFE - number))
                with open("/proc/%d/%s_map" % (child, kind), "w") as file:
                    file.write("".join("%d %d %d\\n" % row for row in rows))
            self.namespace = posix.open("/proc/%d/ns/user" % child, posix.O_RDONLY | posix.O_CLOEXEC)
        finally:
            ours.close()
            posix.waitpid(child, 0)
    def call(self, number, *arguments):
        done = self.library.syscall(number, *arguments)
        if done < 0:
            raise OSError(self.errno(), posix.strerror(self.errno()))
        return done
    def mount(self, source, place):
        """Mount what a descriptor is open on, without the mounts below it."""
        # open_tree: OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
        tree = self.call(428, source, b"", 1 | posix.O_CLOEXEC | 0x1000)
        # MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV; MS_PRIVATE
        words = (0x100000 | 2 | 4, 0, 1 << 18, self.namespace)
        attributes = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
        self.call(442, tree, b"", 0x1000, attributes, self.size(32))  # mount_setattr: AT_EMPTY_PATH
        self.call(429, tree, b"", -100, place, 4)  # move_mount: MOVE_MOUNT_F_EMPTY_PATH
        posix.close(tree)
'''
"""Code for a single-threaded program that runs as root; these system calls have the same numbers on all machines."""
_ON_HOST = f"""{PROGRAM}
source, device, inode, place, uid, gid = sys.argv[1:]
held = posix.open(source, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC)
status = posix.fstat(held)
if (status.st_dev, status.st_ino) != (int(device), int(inode)):
    sys.exit("it was replaced")
try:
    idmap = IdMap(int(uid), int(gid))
    if idmap.library.mount(b"ringfence", place.encode(), b"tmpfs", 2 | 4 | 8, b"mode=0700,size=64k") != 0:
        sys.exit("nothing can be mounted on %r" % place)
    posix.mkdir(place + "/workspace", 0o700)
    idmap.mount(held, (place + "/workspace").encode())
except OSError as error:
    sys.exit(error.strerror)
"""
ON_HOST = Path("/run/ringfence-mounts")
"""Where mounts for an engine are made: not in a directory that may be removed with all its contents."""
_MADE_WITHIN_S = 30.0
_DETACH, _NO_FOLLOW = 2, 8


@asynccontextmanager
async def mounted_on_host(launch: Launch) -> AsyncIterator[Launch]:
    """The launch with the workspace's sources below an idmapped mount, if its placement asks for one.

    The mount exists until the context is left; mounts that an engine made from it stay. It lies in a separate file
    system, so that an engine in another mount namespace finds no path instead of an empty directory.

    Raises:
        SandboxStartFailed: The kernel or the file system does not support it.
    """
    placement = launch.placement
    source = placement.workspace_source
    if not placement.is_idmapped or source is None:
        yield launch
        return
    place = ON_HOST / launch.sandbox_id
    try:
        place.mkdir(mode=0o700, parents=True)
    except OSError as exc:
        raise SandboxStartFailed(refusal(source, f"{str(place)!r}: {exc.strerror}")) from exc
    try:
        status = source.lstat()
        words = (source, status.st_dev, status.st_ino, place, placement.uid, placement.gid)
        made = await run_process(
            [sys.executable, "-I", "-S", "-c", _ON_HOST, *map(str, words)], timeout_s=_MADE_WITHIN_S
        )
        if not made.ok:
            raise SandboxStartFailed(refusal(source, made.stderr.decode(errors="replace").strip()))
        shown = place / "workspace"
        mounts = tuple(
            replace(mount, source=shown / mount.source.relative_to(source))
            if mount.source.is_relative_to(source)
            else mount
            for mount in placement.mounts
        )
        yield replace(launch, placement=replace(placement, workspace_source=shown, mounts=mounts))
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(unmount, launch.sandbox_id)


def refusal(source: Path, why: str) -> str:
    """Why root's workspace itself cannot be shown, and what can be done."""
    return f"cannot show {str(source)!r} by an idmapped mount: {why}; {ADVICE}"


def unmount(sandbox_id: str) -> bool:
    """Remove the mount of a sandbox from the host, if there is one, but never the mounted files."""
    place = ON_HOST / sandbox_id
    with suppress(OSError):
        if sandbox_id in os.listdir(ON_HOST):  # noqa: PTH208 -- a listing never contains `..`
            library = ctypes.CDLL(None)
            for path in (place / "workspace", place):
                library.umount2(os.fsencode(path), _DETACH | _NO_FOLLOW)
            place.rmdir()
            return True
    return False
