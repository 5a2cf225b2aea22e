"""What an engine cannot keep is refused, or said."""

import pytest
from tests.sandbox.docker.conftest import engine_facts

from ringfence.errors import PolicyRefused
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.docker.limits import plan_limits

ROOTLESS_V1 = {"is_rootless": True, "cgroup_version": 1, "is_podman": True}


def test_rootless_on_version_1_is_not_believed() -> None:
    """A rootless engine on version 1 says that it sets limits, and does not: they are soft, and said to be."""
    limits = plan_limits(SandboxSpec(), engine_facts(**ROOTLESS_V1), is_gvisor=False, key=0)
    assert limits.enforced == {"memory": "soft", "pids": "soft", "cpus": "none", "disk": "soft"}
    assert (limits.memory, limits.cpus, limits.pids) == (None, None, None)


@pytest.mark.parametrize("name", ["memory", "cpus", "pids"])
def test_asked_and_not_kept(name: str) -> None:
    """A limit that was asked for and cannot be kept is refused, with the reason."""
    spec = SandboxSpec.model_validate({name: 100})
    with pytest.raises(PolicyRefused, match=rf"{name}=100.*version 1") as caught:
        plan_limits(spec, engine_facts(**ROOTLESS_V1), is_gvisor=False, key=0)
    assert caught.value.rule == "limits-enforced"


def test_soft_by_wish() -> None:
    """Who accepts a watchdog gets one."""
    spec = SandboxSpec(memory=100, soft_limits=True)
    assert plan_limits(spec, engine_facts(**ROOTLESS_V1), is_gvisor=False, key=0).enforced["memory"] == "soft"


def test_gvisor_counts_its_own_threads() -> None:
    """In gVisor the limit on processes is the watchdog's."""
    with pytest.raises(PolicyRefused, match="gVisor's own threads"):
        plan_limits(SandboxSpec(pids=100), engine_facts(), is_gvisor=True, key=0)
    assert plan_limits(SandboxSpec(), engine_facts(), is_gvisor=True, key=0).enforced["pids"] == "soft"


def test_rootless_on_version_2() -> None:
    """A rootless engine on version 2 keeps what it says."""
    limits = plan_limits(SandboxSpec(), engine_facts(is_rootless=True), is_gvisor=False, key=0)
    assert set(limits.enforced.values()) == {"kernel", "soft"}


@pytest.mark.parametrize("key", range(12))
def test_processors_are_spread(key: int) -> None:
    """Sandboxes take turns on the processors, and none is named that is not there."""
    limits = plan_limits(SandboxSpec(cpus=2), engine_facts(), is_gvisor=False, key=key)
    assert limits.cpuset is not None
    named = {int(one) for one in limits.cpuset.split(",")}
    assert len(named) == 2
    assert named <= set(range(8))
