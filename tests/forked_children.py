"""The Python that a forked command starts is forked, too: the daemon of a fleet and its workers (see `tests.forked`).

A command that starts some has a copy of itself beside it, made before the command did anything, without threads and
with all imports. On request the copy clones itself with `CLONE_PARENT`, so that the new process is a child of the
command, which can wait for it and kill it as one that it started. The copy ends when the command does.

What the copy cannot do (another user, another program, a kernel without clone3(2)) is started as ever.
"""

import ctypes
import fcntl
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.process_shown import show

_FORKS_FIRST = "import os\nif os.fork(): os._exit(0)\n"
"""How a program begins that is nobody's child: the copy must be one of the process that goes on."""
_STARTING = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_REQUEST_BYTES = 1 << 17
_MAX_DESCRIPTORS = 64
_CLONE3 = 435  # on every architecture
_CLONE_PARENT = 0x8000
_CLONE_ARGUMENTS = 8
"""Fields of `struct clone_args`, 64 bits each, as in its first version; the first one holds the flags."""


def fork_children(words: list[str]) -> list[str]:
    """Have this process's children forked. Return what it is to do; in each child, what the child is to do."""
    while "up" in words:  # the commands that start a daemon, and the daemon, which starts workers
        if words[0] == "-c" and words[1].startswith(_FORKS_FIRST):
            if os.fork():
                os._exit(0)
            words = ["-c", words[1].removeprefix(_FORKS_FIRST), *words[2:]]
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            its.close()
            _ask_for_children(mine)
            break
        mine.close()
        words = _serve(its)
    return words


def _serve(channel: socket.socket) -> list[str]:
    """Fork as asked, until nobody asks any more; return in each fork, with the words that it is to do."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the command, in whose group this process is
    show([sys.executable, "-m", __name__], {})  # nobody is to take it for the command
    own = channel.fileno()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.closerange(3, own)
    os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, _MAX_DESCRIPTORS)
        if not message:
            os._exit(0)
        pid = _clone()
        if pid == 0:
            channel.close()
            request = json.loads(message)
            _become(request, descriptors)
            return list(request["words"])
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(pid).encode())


def _clone() -> int:
    """As `os.fork`, but the new process is a child of this one's parent; -1 if the kernel refuses."""
    arguments = (ctypes.c_uint64 * _CLONE_ARGUMENTS)(_CLONE_PARENT)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(
        _CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments))
    )
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return int(pid)


def _become(request: Mapping[str, Any], descriptors: list[int]) -> None:
    """Be a process of its own, with its descriptors at the numbers that they had in the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if request["has_session"]:
        os.setsid()
    above = max((*request["numbers"], *descriptors)) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(moved, request["numbers"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    show([sys.executable, "-P", *request["words"]], request["env"])


def _ask_for_children(channel: socket.socket) -> None:
    """Have each Python that `subprocess.Popen` would start forked by the copy at the other end."""
    command = os.getpid()
    lock = threading.Lock()
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute_child(self: Any, *given: Any) -> None:
        asked = _STARTING.bind(self, *given).arguments
        if os.getpid() != command or not _can_be_forked(asked):
            start(self, *given)
            return
        descriptors = [asked[stream] for stream in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [number if stream == -1 else stream for number, stream in enumerate(descriptors)]
        kept = sorted(asked["pass_fds"])
        request = {
            "words": list(map(os.fsdecode, asked["args"][2:])),
            "cwd": os.fsdecode(asked["cwd"] or Path.cwd()),
            "env": dict(os.environ if asked["env"] is None else asked["env"]),
            "has_session": asked["start_new_session"],
            "numbers": [0, 1, 2, *kept],
        }
        with lock:
            socket.send_fds(channel, [json.dumps(request).encode()], [*descriptors, *kept])
            pid = int(channel.recv(64))
        if pid == -1:
            start(self, *given)
            return
        self.pid = pid
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in ends))

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def _can_be_forked(asked: Mapping[str, Any]) -> bool:
    """Whether it is `python -P -c PROGRAM ...` or `python -P -m MODULE ...`, as this user."""
    words = asked["args"]
    is_python = isinstance(words, list | tuple) and list(words[:2]) == [sys.executable, "-P"]
    is_same_user = asked["uid"] is None and asked["gid"] is None and asked["gids"] is None
    return is_python and words[2] in ("-c", "-m") and is_same_user and asked["preexec_fn"] is None
