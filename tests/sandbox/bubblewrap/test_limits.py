"""A limit that was asked for is enforced by the kernel, or refused, or watched with the asker's leave."""

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox import Placement, SandboxSpec
from ringfence.sandbox.base import Launch
from ringfence.sandbox.bubblewrap.limits import plan_limits
from ringfence.sandbox.cgroup import CgroupPlan

NOTHING = CgroupPlan("none", "no groups here", {"memory": False, "cpus": False, "pids": False})
MEMORY = CgroupPlan("v1", "memory only", {"memory": True, "cpus": False, "pids": False})
ALL = CgroupPlan("v2", "all", {"memory": True, "cpus": True, "pids": True})


def launch(spec: SandboxSpec) -> Launch:
    """Of a spec."""
    return Launch("id", spec, Placement(1500, 1500, None, None), ())


@pytest.mark.parametrize("name", ["memory", "cpus"])
async def test_refused(name: str) -> None:
    """What was asked for and can only be soft is refused, with what to do."""
    spec = SandboxSpec.model_validate({name: 100_000_000 if name == "memory" else 1})
    with pytest.raises(
        PolicyRefused, match=rf"limit {name}=.*--soft-limits.*ringfence help budgets-and-limits"
    ) as info:
        await plan_limits(launch(spec), NOTHING)
    assert info.value.rule == "limits-enforced"


async def test_soft_by_leave() -> None:
    """With leave it is watched, and said to be."""
    limits = await plan_limits(launch(SandboxSpec(memory="100m", cpus=1, soft_limits=True)), NOTHING)
    assert (limits.enforced["memory"], limits.enforced["cpus"]) == ("soft", "none")


async def test_defaults_are_not_asked_for() -> None:
    """A limit nobody asked for does not keep a sandbox from opening."""
    limits = await plan_limits(launch(SandboxSpec()), NOTHING)
    assert limits.enforced["memory"] == "soft"


async def test_partly() -> None:
    """Each limit is judged by itself."""
    spec = SandboxSpec(memory="100m")
    assert (await plan_limits(launch(spec), MEMORY)).enforced["memory"] == "kernel"


async def test_all() -> None:
    """Where the kernel can, it does; disk is soft everywhere."""
    spec = SandboxSpec(memory="100m", cpus=1, pids=50)
    assert (await plan_limits(launch(spec), ALL)).enforced == {
        "memory": "kernel",
        "cpus": "kernel",
        "pids": "kernel",
        "disk": "soft",
    }
