"""The kernel's own account of the sandbox, where its control group can be seen inside: in containers."""

from __future__ import annotations

import posix as os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_ROOT = "/sys/fs/cgroup"
_ROWS = (
    # (what, divisor, (file, key of its line) in version 2 and in version 1)
    ("memory", 1, (("memory.current", None), ("memory/memory.usage_in_bytes", None))),
    ("cpu_s", 1e6, (("cpu.stat", b"usage_usec"),)),
    ("cpu_s", 1e9, (("cpuacct/cpuacct.usage", None),)),
    ("pids", 1, (("pids.current", None), ("pids/pids.current", None))),
    ("oom_kills", 1, (("memory.events", b"oom_kill"), ("memory/memory.oom_control", b"oom_kill"))),
)


def kernels() -> dict[str, object]:
    """`memory` (bytes), `cpu_s`, `pids`, `oom_kills`: those that the kernel tells of. Never on a bare host."""
    found: dict[str, object] = {}
    if os.getpid() != 1:
        return found  # what is seen is the machine's
    for what, divisor, places in _ROWS:
        for name, key in places:
            count = _count("%s/%s" % (_ROOT, name), key)
            if count is not None:
                found[what] = count if divisor == 1 else count / divisor
    return found


def _count(path: str, key: Optional[bytes]) -> Optional[int]:
    """The number in a file, or in its line that starts with `key`."""
    try:
        with open(path, "rb") as file:
            for line in file.read(4096).splitlines():
                words = line.split()
                if key is None or words[0] == key:
                    return int(words[-1])
    except (OSError, ValueError, IndexError):
        return None
    return None
