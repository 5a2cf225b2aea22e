"""Which of a user's wishes hold for each sandbox of a run."""

import pytest

from ringfence.config.engine_access import EngineAccess
from ringfence.job.sandboxes import _spec_for
from ringfence.sandbox import SandboxSpec

ASKED = SandboxSpec(
    forward=("redis:6379",),
    engine_access=EngineAccess(label="a", allow=("restart",)),
    setup=("make",),
    env={"A": "1"},
)


def test_an_agent_has_what_was_granted():
    """Forwards, acts, and the variable by which clients find the engine."""
    spec = _spec_for(ASKED, "agent", with_proxy=False)
    assert (spec.forward, spec.engine_access) == (ASKED.forward, ASKED.engine_access)
    assert spec.env == {"A": "1", "DOCKER_HOST": "unix:///tmp/.ringfence/engine.sock"}


def test_a_check_only_looks():
    """It can call services and look at containers, and do nothing with them."""
    spec = _spec_for(ASKED, "verify", with_proxy=False)
    assert spec.forward == ASKED.forward
    assert spec.engine_access == EngineAccess(label="a")


def test_nothing_leads_out_of_an_export():
    """Git in there obeys what an agent wrote."""
    spec = _spec_for(ASKED, "export", with_proxy=False)
    assert (spec.forward, spec.engine_access, spec.setup) == ((), None, ())


@pytest.mark.parametrize("purpose", ["agent", "verify"])
def test_without_an_engine_nothing_is_added(purpose: str):
    """No variable points to what is not there."""
    env = _spec_for(SandboxSpec(env={"A": "1"}), purpose, with_proxy=False).env  # type: ignore[arg-type]
    assert (env["A"], env.get("DOCKER_HOST")) == ("1", None)


def test_a_standing_sandbox_has_a_proxy_from_the_start():
    """What is allowed later is found by what was started before."""
    assert _spec_for(SandboxSpec(), "standing", with_proxy=True).env["HTTPS_PROXY"] == "http://127.0.0.1:3128"
