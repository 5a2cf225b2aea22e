"""Runs inside a sandbox, on any Python from 3.9 on: tries to get out, and prints what came of it as JSON."""

import ctypes
import errno
import fcntl
import json
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 20
SECRETS = ("/etc/shadow", "/proc/kcore", "/dev/mem", "/proc/kmsg", "/dev/kmsg")
FOLDERS = ("/", "/usr", "/etc", "/bin", "/sys", "/sys/fs/cgroup", "/proc", "/opt")
TRIGGERS = ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern")
ENGINES = ("/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")
SOCKETS = {
    "raw": (socket.AF_INET, socket.SOCK_RAW, 1),
    "packet": (17, socket.SOCK_RAW, 3),
    "vsock": (40, socket.SOCK_STREAM, 0),
    "alg": (38, socket.SOCK_SEQPACKET, 0),
    "audit": (16, socket.SOCK_RAW, 9),
    "netfilter": (16, socket.SOCK_RAW, 12),
    "sctp": (socket.AF_INET, socket.SOCK_STREAM, 132),
}
TYPE_INTO_TERMINAL = 0x5412
NEW_USER_NAMESPACE = 0x10000000
NO_RANDOM_ADDRESSES = 0x0040000
CALLS: dict[str, tuple[Any, ...]] = {
    "mount": (b"none", b"/tmp", b"tmpfs", 0, None),
    "umount2": (b"/proc", 2),
    "unshare": (NEW_USER_NAMESPACE,),
    "chroot": (b"/tmp",),
    "ptrace": (0, 0, 0, 0),
    "sethostname": (b"x", 1),
    "personality": (NO_RANDOM_ADDRESSES,),
    "process_vm_readv": (os.getpid(), None, 0, None, 0, 0),
}

found: dict[str, Any] = {}
libc = ctypes.CDLL(None, use_errno=True)


def attempt(name: str, act: Callable[[], object]) -> None:
    """Try something, and note what came of it."""
    try:
        found[name] = repr(act())
    except OSError:
        found[name] = "refused"


def read(path: str) -> bytes:
    """The beginning of a file."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(file, READ_BYTES)
    finally:
        os.close(file)


def look(path: str) -> object:
    """What is at a path: names, or contents."""
    return os.listdir(path) if Path(path).is_dir() else read(path)  # noqa: PTH208  # names alone


def is_opened_for_writing(path: str) -> bool:
    """Whether a file opens for writing."""
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def is_made_in(folder: str) -> bool:
    """Whether a file can be made in a directory."""
    try:
        Path(folder, "made-by-attempt").write_text("x")
    except OSError:
        return False
    return True


def connect(family: int, address: Any) -> str:
    """Call a server."""
    with socket.socket(family, socket.SOCK_STREAM) as caller:
        caller.settimeout(3)
        caller.connect(address)
    return "connected"


def call(name: str, *words: Any) -> None:
    """Call the kernel, and note the error."""
    ctypes.set_errno(0)
    answer = getattr(libc, name)(*words)
    found[f"call {name}"] = "allowed" if answer >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")


def try_files(paths: dict[str, str]) -> None:
    """Files of the host, and of the kernel."""
    for name, path in paths.items():
        attempt(f"path {name}", lambda path=path: look(path))  # type: ignore[misc]
    for path in SECRETS:
        attempt(f"read {path}", lambda path=path: len(read(path)))  # type: ignore[misc]
    settings = [str(path) for path in Path("/proc/sys/kernel").iterdir() if path.is_file()]
    found["opened sysctls"] = [path for path in settings if is_opened_for_writing(path)]
    found["triggers"] = [path for path in TRIGGERS if is_opened_for_writing(path)]
    found["made"] = [folder for folder in FOLDERS if is_made_in(folder)]
    found["devices"] = sorted(path.name for path in Path("/dev").iterdir())
    attempt("device", lambda: os.mknod("/tmp/device", stat.S_IFBLK | 0o600, os.makedev(8, 0)))


def try_processes() -> None:
    """Other processes, and rights of this one."""
    lines = dict(line.split(":", 1) for line in read("/proc/self/status").decode().splitlines())
    found["status"] = {name: value.split() for name, value in lines.items()}
    found["processes"] = []
    found["environments"] = ""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found["processes"].append(read(f"{entry}/cmdline").decode(errors="replace"))
                found["environments"] += read(f"{entry}/environ").decode(errors="replace")
            except OSError:
                continue
    attempt("setuid", lambda: os.setuid(0))
    attempt("setgid", lambda: os.setgid(0))
    attempt("type", lambda: fcntl.ioctl(0, TYPE_INTO_TERMINAL, b"x"))


def try_network(port: int, abstract: str) -> None:
    """Whatever is beyond the loopback interface."""
    found["interfaces"] = [
        line.split(":")[0].strip() for line in read("/proc/net/dev").decode().splitlines()[2:]
    ]
    found["routes"] = len(read("/proc/net/route").decode().splitlines()) - 1
    attempt("connect web", lambda: connect(socket.AF_INET, ("1.1.1.1", 443)))
    attempt("connect host", lambda: connect(socket.AF_INET, ("127.0.0.1", port)))
    attempt("connect abstract", lambda: connect(socket.AF_UNIX, abstract))
    attempt("connect metadata", lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
    attempt("resolve", lambda: socket.getaddrinfo("example.com", 80))
    for name, words in SOCKETS.items():
        attempt(f"socket {name}", lambda words=words: socket.socket(*words).close())  # type: ignore[misc]
    found["engines"] = [path for path in ENGINES if os.path.exists(path)]  # noqa: PTH110  # closed directories count as absent


def main() -> None:
    """Try all of it; where nothing stands in the way of root, it would do harm."""
    if 0 in (os.getuid(), os.geteuid()):
        sys.exit("this runs as root, and so nothing is tried")
    facts = json.loads(sys.argv[1])
    try_files(facts["paths"])
    try_processes()
    try_network(facts["port"], facts["abstract"])
    for name, words in CALLS.items():
        call(name, *words)
    attempt("kill the first process", lambda: os.kill(1, 9))
    found["after that"] = "alive"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
