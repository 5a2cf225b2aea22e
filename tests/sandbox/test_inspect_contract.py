"""The contract checks that inspect_ai ships for any sandbox (PyPI 0.3.285), run on ours through its provider.

They are not part of the usual set-up (48 more packages): `uv sync --group contracts` brings them.
"""

from collections.abc import AsyncIterator, Callable

import pytest

pytest.importorskip("inspect_ai", reason="not installed: uv sync --group contracts")

from inspect_ai.util._sandbox.self_check import *  # noqa: F403 -- this is how its checks are collected

from ringfence.integrations.inspect_provider import RingfenceSandboxEnvironment
from ringfence.testing.conformance import OpenSandbox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_FULL = pytest.mark.full("a peer's checks, tried in bubblewrap; our own are tried in each engine")
BACKENDS = (
    "bubblewrap",
    *(pytest.param(name, marks=[pytest.mark.docker, _FULL]) for name in ("docker", "podman", "gvisor")),
)
GAPS: dict[str, str] = {
    "test_exec_as_user": "one user per sandbox: nothing inside is, or becomes, another user",
}


@pytest.fixture(params=BACKENDS)
async def sandbox_env(
    request: pytest.FixtureRequest, opener: Callable[[str], OpenSandbox]
) -> AsyncIterator[RingfenceSandboxEnvironment]:
    """An open sandbox; checks that are known to fail, each with its reason."""
    reason = GAPS.get(request.node.originalname)
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    async with opener(request.param)() as sandbox:
        yield RingfenceSandboxEnvironment(sandbox)
