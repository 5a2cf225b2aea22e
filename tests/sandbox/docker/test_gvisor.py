"""Versions of gVisor in which the guest cannot protect itself."""

import pytest

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.docker.client import open_engine

pytestmark = pytest.mark.docker

OLD = "runsc-debian12"
"""As `scripts/engines.sh` calls it."""


async def test_old_gvisor_is_refused(image: str) -> None:
    """Where commands can open the guest's descriptors, the sandbox does not start; the error says what to install."""
    async with await open_engine() as engine:
        if OLD not in engine.facts.runtimes:
            pytest.skip(f"the engine has no runtime {OLD!r}; scripts/engines.sh sets it up on Debian 12")
    spec = SandboxSpec(backend="gvisor", runtime=OLD, image=image, soft_limits=True)
    with pytest.raises(SandboxStartFailed, match=r"/proc/1/fd.*install gVisor") as caught:
        async with Sandbox.open(spec):
            pass
    assert caught.value.exit_code == 125
