"""What an agent is told before it begins."""

from ringfence.config.egress import Egress
from ringfence.config.forward import Forward
from ringfence.job.agent import system_of
from ringfence.sandbox import SandboxSpec


def test_an_agent_is_told_what_it_may_reach() -> None:
    """Services, presets in words, hosts and what is denied; then what the user adds."""
    egress = Egress.model_validate({"allow": ["packages", "*.example.com:8443"], "deny": ["pypi.org"]})
    forward = Forward.model_validate("db:5432=10.0.0.5:5432")
    said = system_of("coder", "Be brief.", SandboxSpec(egress=egress, forward=(forward,)))
    assert (
        "no network but what was granted: db:5432; the public servers of package managers (pip, npm, apt, Maven, cargo "
        "and others); *.example.com:8443; never pypi.org. "
    ) in said
    assert said.endswith("\n\nBe brief.")


def test_an_agent_without_a_way_out_is_told_so() -> None:
    """It does not try what cannot work."""
    assert "There is no network. Downloads" in system_of("operator", None, SandboxSpec())
