"""The prctl calls that Python's standard library has no name for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_GET_DUMPABLE = 3
PR_SET_CHILD_SUBREAPER = 36
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


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
