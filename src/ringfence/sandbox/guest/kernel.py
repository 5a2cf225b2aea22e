"""Calls kernel features that Python's standard library has no function for, through the C half of ctypes.

The ctypes package itself would cost 10 ms and a megabyte of memory in every sandbox.
"""

from __future__ import annotations

import _struct as struct
import posix as os

try:
    import _ctypes
except ImportError:  # a Python built without it: nothing here works, and HELLO says so
    _ctypes = None  # type: ignore[assignment]

PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, CLONE_NEWUSER = 0x2_0000, 0x1000_0000
MS_RDONLY = 1
_CAPABILITIES_VERSION = 0x2008_0522  # _LINUX_CAPABILITY_VERSION_3: two sets of three words (capget(2))
_MAX_CAPABILITIES = 64

if _ctypes is not None:

    class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "i"

    class _Pointer(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "z"

    class _Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = _Int


def _call(name: str, *arguments: object) -> int:
    """Call a function of the C library; -1 if it fails or cannot be called."""
    if _ctypes is None:
        return -1
    address = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type]  # None: this program
    result: int = _Function(address)(*arguments)
    return result


def become_undumpable() -> bool:
    """Keep processes of the same uid from tracing us and opening our memory and descriptors. True if it worked."""
    _call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    return _call("prctl", PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """Become the parent of every orphan among our descendants. True if it worked."""
    return _call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def install_filter(program: bytes) -> bool:
    """Install a system call filter on this process and all its descendants. True if the kernel took it.

    Args:
        program: An array of `struct sock_filter`.
    """
    if _ctypes is None or _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    pointer = _Pointer(program)
    # The kernel's `struct sock_fprog`. A `_ctypes.Structure` would import ctypes from Python 3.14 on.
    argument = struct.pack("H6x", len(program) // 8) + bytes(pointer)
    return _call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, argument, 0, 0) == 0


def mask_guest(stream: tuple[int, int]) -> bool:
    """Mount an empty file system over /proc/1. True if no other process can open our descriptors.

    Some kernels let any process of the same uid open the descriptors of an undumpable process; gVisor does. A command
    could then write frames in our name. We are process 1 and have started nothing yet. Mounting takes a user
    namespace; its capabilities are dropped again, so that no process can unmount the mask.

    Args:
        stream: The descriptors of the stream.
    """
    if os.getpid() != 1:
        return False
    uid, gid = os.getuid(), os.getgid()
    if _call("unshare", CLONE_NEWUSER | CLONE_NEWNS) == 0:
        _map_own_ids(uid, gid)
        _call("mount", b"none", b"/proc/1", b"tmpfs", MS_RDONLY, b"size=4k,mode=555")
        for number in range(_MAX_CAPABILITIES):
            _call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)
        if _call("capset", struct.pack("Ii", _CAPABILITIES_VERSION, 0), bytes(24)) != 0:
            return False
    return (os.getuid(), os.getgid()) == (uid, gid) and _is_masked(stream)


def _map_own_ids(uid: int, gid: int) -> None:
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", "%d %d 1" % (uid, uid)),
        ("gid_map", "%d %d 1" % (gid, gid)),
    ):
        try:
            with open("/proc/self/" + name, "w") as file:
                file.write(line)
        except OSError:
            pass  # the caller compares the ids


def _is_masked(stream: tuple[int, int]) -> bool:
    """Try to open our descriptors from a child process."""
    child = os.fork()
    if child == 0:
        for path in ("/proc/1/fd", *["/proc/1/fd/%d" % number for number in stream]):
            for flags in (os.O_RDONLY, os.O_WRONLY):
                try:
                    os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
                    os._exit(1)
                except OSError:
                    continue
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
