"""Limits that an engine cannot enforce are refused or reported as soft."""

import pytest
from tests.sandbox.docker.conftest import engine_facts

from ringfence.errors import PolicyRefused
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.container.hardened_container import ContainerLimits, plan_limits
from ringfence.sandbox.docker.client import EngineFacts


def plan(spec: SandboxSpec, facts: EngineFacts, *, is_gvisor: bool = False, key: int = 0) -> ContainerLimits:
    """The limits of a container on an engine."""
    return plan_limits(spec, facts.unset_limits, is_gvisor=is_gvisor, processors=facts.processors, key=key)


ROOTLESS_V1 = {"is_rootless": True, "cgroup_version": 1, "is_podman": True}


def test_rootless_engine_on_cgroup_version_1() -> None:
    """A rootless engine on cgroup version 1 claims to set limits and does not: they are reported as soft or none."""
    limits = plan(SandboxSpec(), engine_facts(**ROOTLESS_V1))
    assert limits.enforced == {"memory": "soft", "pids": "soft", "cpus": "none", "disk": "soft"}
    assert (limits.memory, limits.cpus, limits.pids) == (None, None, None)


@pytest.mark.parametrize("name", ["memory", "cpus", "pids"])
def test_limit_that_cannot_be_enforced_is_refused(name: str) -> None:
    """A limit that the spec names and the engine cannot enforce is refused, with the reason."""
    spec = SandboxSpec.model_validate({name: 100})
    with pytest.raises(PolicyRefused, match=rf"{name}=100.*version 1") as caught:
        plan(spec, engine_facts(**ROOTLESS_V1))
    assert caught.value.rule == "limits-enforced"


def test_soft_limits_can_be_accepted() -> None:
    """With `soft_limits` the watchdog enforces a limit that the engine cannot."""
    spec = SandboxSpec(memory=100, soft_limits=True)
    assert plan(spec, engine_facts(**ROOTLESS_V1)).enforced["memory"] == "soft"


def test_process_limit_in_gvisor() -> None:
    """The threads of gVisor itself count against the limit on processes, so only the watchdog can enforce it."""
    with pytest.raises(PolicyRefused, match="gVisor's own threads"):
        plan(SandboxSpec(pids=100), engine_facts(), is_gvisor=True)
    assert plan(SandboxSpec(), engine_facts(), is_gvisor=True).enforced["pids"] == "soft"


def test_rootless_engine_on_cgroup_version_2() -> None:
    """A rootless engine on cgroup version 2 enforces the limits that it claims to."""
    limits = plan(SandboxSpec(), engine_facts(is_rootless=True))
    assert set(limits.enforced.values()) == {"kernel", "soft"}


@pytest.mark.parametrize("key", range(12))
def test_processors_are_spread(key: int) -> None:
    """Sandboxes are spread over the processors, and only existing processors are named."""
    limits = plan(SandboxSpec(cpus=2), engine_facts(), key=key)
    assert limits.cpuset is not None
    named = {int(one) for one in limits.cpuset.split(",")}
    assert len(named) == 2
    assert named <= set(range(8))
