"""A claim: what was measured, beside the limit or the peer measured in the same run."""

import os
import platform
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.open import RESERVED_ID


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    claim: str
    promise: str
    measured: str
    beside: str
    """The peer or the limit, measured in the same run."""
    is_kept: bool


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def p50_p99(values: Sequence[float], unit: str = "ms", digits: int = 2) -> str:
    """Median and 99th percentile, for the table."""
    return (
        f"p50 {statistics.median(values):.{digits}f} {unit}, p99 {percentile(values, 0.99):.{digits}f} {unit}"
    )


def growth_mb() -> Callable[[], float]:
    """What the most memory that this process has held from now on is above what it holds now."""
    before = _status_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # else what was held before now would count as held already
    return lambda: _status_mb("VmHWM") - before


def _status_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def machine() -> str:
    """The machine and the date, for the table's head."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    who = "root" if os.getuid() == 0 else "an ordinary user"
    return (
        f"{os.cpu_count()} cores ({model}), {memory_gb:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, as {who}, {datetime.now(UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}"
    )


@asynccontextmanager
async def open_sandbox() -> AsyncIterator[Sandbox]:
    """A bubblewrap sandbox on an empty workspace."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        workspace = Path(name, "workspace")
        workspace.mkdir()
        if os.getuid() == 0:
            os.chown(workspace, RESERVED_ID, RESERVED_ID)
            Path(name).chmod(0o711)
        async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=workspace)) as sandbox:
            yield sandbox
