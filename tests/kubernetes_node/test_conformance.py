"""The promises of every sandbox and the escape suite, in pods of a real node."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.config.units import ByteCount
from ringfence.sandbox import SandboxSpec
from ringfence.testing.attack import ATTACKS, open_beside, run_attacks
from ringfence.testing.conformance import CHECKS, Check, OpenSandbox

pytestmark = [pytest.mark.kubernetes_node, pytest.mark.timeout(400)]
GAPS: dict[object, str] = {}
ESCAPE_GAPS: dict[str, str] = {
    "interfaces": "a pod always has an interface; the policy denies all connections, and a probe looks whether it does",
    "one-writer": "two sandboxes work on two private copies, as the pod does not see the workspace",
    "unbounded-places": "before Kubernetes 1.22 a volume in memory is bounded by the pod's memory only",
}
LIMITS = {"memory": ByteCount(512 * 1024**2), "tmp": ByteCount(128 * 1024**2), "soft_limits": True}


@pytest.mark.parametrize(
    "check", CHECKS, ids=lambda check: f"{check.__module__.rpartition('.')[2]}-{check.__name__}"
)
async def test_conforms(check: Check, opener: Callable[[str], OpenSandbox]) -> None:
    """The backend keeps the promise in the check's docstring."""
    if check in GAPS:
        pytest.skip(GAPS[check])
    await check(opener("kubernetes"))


@pytest.mark.parametrize("group", dict.fromkeys(attack.group for attack in ATTACKS))
async def test_fence_holds(group: str, scratch: Path, images: Callable[[str], str | None]) -> None:
    """Every promise holds except the named gaps, and each gap still exists: one that closes is noticed."""
    spec = SandboxSpec(backend="kubernetes", image=images("kubernetes"), workspace=scratch, **LIMITS)
    names = [attack.name for attack in ATTACKS if attack.group == group]
    results = await run_attacks(lambda: open_beside(spec), scratch, names)
    broken = {result.name: result.detail for result in results if not result.held}
    assert broken.keys() == ESCAPE_GAPS.keys() & set(names), broken
