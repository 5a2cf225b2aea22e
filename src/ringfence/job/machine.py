"""Describes what this machine can run: its system, bubblewrap, limits, and available sandbox backends."""

import os
import platform
from typing import Any

from ringfence.sandbox.bubblewrap.bwrap import find_bwrap
from ringfence.sandbox.bubblewrap.limits import find_plan
from ringfence.sandbox.registry import backend_names, get_backend


def machine_name() -> str:
    """Return the system, the version of Python, and whether the user is root."""
    user = "root" if os.getuid() == 0 else "user"
    return f"{platform.platform()}, Python {platform.python_version()}, {user}"


async def describe_machine() -> dict[str, Any]:
    """Return the state of the machine as data for JSON. No sandbox is opened."""
    limits, bwrap = await find_plan(), find_bwrap()
    backends = []
    for name in backend_names():
        backend = get_backend(name)
        if backend.traits.is_fence:
            lacking = await backend.unavailable()
            backends.append(
                {"name": name, "usable": lacking is None, "reason": None if lacking is None else str(lacking)}
            )
    return {
        "machine": machine_name(),
        "bwrap": f"{'.'.join(map(str, bwrap.version))} ({bwrap.origin})" if bwrap else None,
        "limits": {"by": limits.kind, "reason": limits.reason},
        "backends": backends,
    }
