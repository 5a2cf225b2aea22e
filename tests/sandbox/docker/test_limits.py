"""What an engine cannot keep is refused, or said."""

import pytest
from tests.sandbox.docker.conftest import engine_facts

from ringfence.errors import PolicyRefused
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.container.hardened import ContainerLimits, plan_limits
from ringfence.sandbox.docker.client import EngineFacts


def plan(spec: SandboxSpec, facts: EngineFacts, *, is_gvisor: bool = False, key: int = 0) -> ContainerLimits:
    """The limits of a container on an engine."""
    return plan_limits(spec, facts.unset_limits, is_gvisor=is_gvisor, processors=facts.processors, key=key)


ROOTLESS_V1 = {"is_rootless": True, "cgroup_version": 1, "is_podman": True}


def test_rootless_on_version_1_is_not_believed() -> None:
    """A rootless engine on version 1 says that it sets limits, and does not: they are soft, and said to be."""
    limits = plan(SandboxSpec(), engine_facts(**ROOTLESS_V1))
    assert limits.enforced == {"memory": "soft", "pids": "soft", "cpus": "none", "disk": "soft"}
    assert (limits.memory, limits.cpus, limits.pids) == (None, None, None)


@pytest.mark.parametrize("name", ["memory", "cpus", "pids"])
def test_asked_and_not_kept(name: str) -> None:
    """A limit that was asked for and cannot be kept is refused, with the reason."""
    spec = SandboxSpec.model_validate({name: 100})
    with pytest.raises(PolicyRefused, match=rf"{name}=100.*version 1") as caught:
        plan(spec, engine_facts(**ROOTLESS_V1))
    assert caught.value.rule == "limits-enforced"


def test_soft_by_wish() -> None:
    """Who accepts a watchdog gets one."""
    spec = SandboxSpec(memory=100, soft_limits=True)
    assert plan(spec, engine_facts(**ROOTLESS_V1)).enforced["memory"] == "soft"


def test_gvisor_counts_its_own_threads() -> None:
    """In gVisor the limit on processes is the watchdog's."""
    with pytest.raises(PolicyRefused, match="gVisor's own threads"):
        plan(SandboxSpec(pids=100), engine_facts(), is_gvisor=True)
    assert plan(SandboxSpec(), engine_facts(), is_gvisor=True).enforced["pids"] == "soft"


def test_rootless_on_version_2() -> None:
    """A rootless engine on version 2 keeps what it says."""
    limits = plan(SandboxSpec(), engine_facts(is_rootless=True))
    assert set(limits.enforced.values()) == {"kernel", "soft"}


@pytest.mark.parametrize("key", range(12))
def test_processors_are_spread(key: int) -> None:
    """Sandboxes take turns on the processors, and none is named that is not there."""
    limits = plan(SandboxSpec(cpus=2), engine_facts(), key=key)
    assert limits.cpuset is not None
    named = {int(one) for one in limits.cpuset.split(",")}
    assert len(named) == 2
    assert named <= set(range(8))
