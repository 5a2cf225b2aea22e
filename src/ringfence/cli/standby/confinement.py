"""What confines a process and cannot be handed over: it must be the same for a command and for the standby.

It is read from /proc, of the very process that asks: what that says of itself does not count. A program that was
confined, by a filter or a namespace, must not get a fork that is not.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

_STATUS = (
    "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
    "Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "THP_enabled", "Cpus_allowed",
    "Mems_allowed",
)  # fmt: skip
"""Lines of proc_pid_status(5)."""
_TEXTS = (
    "cgroup",
    "attr/current",
    "oom_score_adj",
    "personality",
    "loginuid",
    "sessionid",
    "coredump_filter",
)
_NICE, _REALTIME, _POLICY = 16, 37, 38
"""Fields of proc_pid_stat(5), counted after the name."""
_LIMITS = sorted(number for name, number in vars(resource).items() if name.startswith("RLIMIT_"))


def confinement(pid: int | str) -> dict[str, object]:
    """Of a process, by what it is called.

    Raises:
        OSError: It cannot be looked at.
    """
    folder = Path("/proc", str(pid))
    told = status_of(pid)
    found: dict[str, object] = {name: told.get(name) for name in _STATUS}
    found |= {
        f"{name} namespace": os.readlink(folder / "ns" / name)  # noqa: PTH115 -- quick
        for name in os.listdir(folder / "ns")  # noqa: PTH208
    }
    found |= {name: _text(folder / name) for name in _TEXTS}
    root, program = os.stat(f"{folder}/root/"), os.stat(f"{folder}/exe")  # noqa: PTH116 -- quick
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    return {
        **found,
        "root directory": (root.st_dev, root.st_ino),
        "interpreter": (program.st_dev, program.st_ino),
        "scheduling": (fields[_NICE], fields[_REALTIME], fields[_POLICY]),
        # The C library has taken the size of threads' stacks from it when it was started.
        "stack limit": resource.prlimit(_number(pid), resource.RLIMIT_STACK),
    }


def status_of(pid: int | str) -> dict[str, str]:
    """The lines of its status."""
    lines = Path("/proc", str(pid), "status").read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def differing(ours: dict[str, object], theirs: dict[str, object]) -> str | None:
    """Why the one must not do the other's work; None if it may."""
    for name in (*ours, *(name for name in theirs if name not in ours)):
        if ours.get(name) != theirs.get(name):
            return f"{name} is not the standby's"
    if theirs.get("NoNewPrivs") != "0":
        # So are programs that confined themselves by means that /proc does not show (Landlock, what a filter says).
        return "no_new_privs is set, and what else confines such a process cannot be compared"
    return None


def take_limits(pid: int) -> None:
    """Have the resource limits of a process.

    Raises:
        OSError, ValueError: One cannot be set.
    """
    for number, wanted in limits_of(pid):
        if wanted != resource.getrlimit(number):
            resource.setrlimit(number, wanted)


def limits_of(pid: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Its resource limits, soft and hard."""
    for number in _LIMITS:
        yield number, resource.prlimit(pid, number)


def _number(pid: int | str) -> int:
    return os.getpid() if pid == "self" else int(pid)


def _text(file: Path) -> object:
    try:
        return file.read_bytes()
    except OSError as exc:  # the kernel has none, or shows it to nobody
        return exc.errno
