"""Where the standby listens: a directory of ours in the state directory, which nobody else may even enter.

Paths are texts here: `pathlib` takes longer to import than all that a command does before its fork.
"""

import _socket
import os
import stat

SOCKET = "socket"
LOCK = "lock"
LOG = "log"


def standby_dir() -> str:
    """The directory of the standby of this state directory, as `ringfence.config.paths.state_dir` has it."""
    named = os.environ.get("RINGFENCE_STATE_DIR")
    if not named:
        base = os.environ.get("XDG_STATE_HOME", "")
        base = base if base.startswith("/") else os.path.expanduser("~/.local/state")  # noqa: PTH111
        named = f"{base}/ringfence"
    return os.path.join(os.path.abspath(named), "standby")  # noqa: PTH100, PTH118


def connect(directory: str, timeout_s: float) -> _socket.socket | None:
    """A connection to the standby, if one listens in a directory that is ours alone, and is a process of ours.

    Args:
        directory: As `standby_dir` says.
        timeout_s: For this, and whatever is sent or received by it.
    """
    try:
        held = hold(directory)
    except OSError:
        return None
    try:
        return _connected(f"/proc/self/fd/{held}/{SOCKET}", timeout_s)
    finally:
        os.close(held)


def hold(directory: str) -> int:
    """A descriptor of a directory, by which it stays the same whatever becomes of its path.

    Raises:
        PermissionError: It is not ours alone.
        OSError: It cannot be opened.
    """
    held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(held)
    if status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077:
        return held
    os.close(held)
    raise PermissionError(
        f"the directory {directory!r} is not yours alone; remove it, or set its mode to 0700"
    )


def peer(connection: _socket.socket) -> tuple[int, int]:
    """Process and user at the other end, by the kernel's word (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    pid, uid = (int.from_bytes(raw[at : at + 4], "little", signed=True) for at in (0, 4))
    return pid, uid


def _connected(path: str, timeout_s: float) -> _socket.socket | None:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
        if peer(connection)[1] == os.geteuid():
            return connection
    except OSError:  # nobody listens, or does not come to it
        pass
    connection.close()
    return None
