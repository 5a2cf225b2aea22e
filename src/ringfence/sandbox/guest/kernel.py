"""What the guest asks of the kernel that Python's standard library has no name for."""

from __future__ import annotations

import posix as os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_GET_DUMPABLE = 3
PR_SET_CHILD_SUBREAPER = 36
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_CAPBSET_DROP = 24
CLONE_NEWUSER, CLONE_NEWNS = 0x1000_0000, 0x2_0000
MS_RDONLY = 1
_CAPABILITIES_VERSION = 0x2008_0522  # _LINUX_CAPABILITY_VERSION_3: two sets of three words (capget(2))
_MOST_CAPABILITIES = 64


def _find() -> Callable[..., int]:
    try:
        # The C half of ctypes by itself: the package costs 10 ms and a megabyte in every sandbox.
        import _ctypes

        library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is the program itself
        address = _ctypes.dlsym(library, "prctl")
        return lambda *words: _ctypes.call_function(address, words)
    except (ImportError, AttributeError, OSError):
        pass
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).prctl
        return lambda *words: function(*words)
    except (ImportError, AttributeError, OSError):
        return lambda *_words: -1


_prctl = _find()


def become_undumpable() -> bool:
    """No process of the same uid may trace us, read our memory or open our descriptors. True if it holds."""
    _prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    return _prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """Orphans among our descendants become our children. True if it holds."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def filter_calls(program: bytes) -> None:
    """Put a system call filter (an array of `struct sock_filter`) on this process and all it will start.

    Raises:
        OSError: The kernel refuses.
    """
    import ctypes  # 10 ms and a megabyte: only where the engine puts no filter on us

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    whole = Program(len(program) // 8, program)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


def cover_guest(stream: list[int]) -> bool:
    """Cover /proc/1 with an empty file system, for all processes to come. True if none of them can open our descriptors.

    For kernels that let any process of the same uid open the descriptors of an undumpable one, as gVisor does: what is
    written there would be taken for ours. We are process 1 and have no other process yet. The mount namespace takes a
    user namespace, whose capabilities we give up again: without them nobody can take the cover away.

    Args:
        stream: The descriptors of the stream.
    """
    import ctypes

    if os.getpid() != 1:
        return False
    library = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if library.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0:
        _map_own_ids(uid, gid)
        library.mount(b"none", b"/proc/1", b"tmpfs", ctypes.c_ulong(MS_RDONLY), b"size=4k,mode=555")
        for number in range(_MOST_CAPABILITIES):
            library.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
        if library.capset(header, none) != 0:
            raise OSError(ctypes.get_errno(), "capset")
    return (os.getuid(), os.getgid()) == (uid, gid) and _is_covered(stream)


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
            pass  # where it matters, the ids are not those that were


def _is_covered(stream: list[int]) -> bool:
    """Have a process of its own try to open what is ours."""
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
