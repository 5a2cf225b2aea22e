"""What an agent is told before it begins."""

from ringfence.config.egress import Egress
from ringfence.config.forward import Forward
from ringfence.job.agent import system_of, task_of
from ringfence.job.request import AgentRequest
from ringfence.runtime.limits import Limits
from ringfence.runtime.options import Options
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


def told_to(spec: SandboxSpec, **options: str) -> str | None:
    """What is added to a client's own system prompt."""
    request = AgentRequest("x", "m", Limits(), runtime="claude-cli", options=Options.model_validate(options))
    return task_of(request, "m", spec).options.system_append


def test_a_client_is_told_of_its_sandbox() -> None:
    """What it may reach, but for its own model; then what the user adds."""
    egress = Egress.model_validate({"allow": ["model", "*.example.com:8443"]})
    said = told_to(SandboxSpec(egress=egress), system_append="Be brief.") or ""
    assert "no network but what was granted: *.example.com:8443. " in said
    assert said.endswith("\n\nBe brief.")
    assert "There is no network. Downloads" in (told_to(SandboxSpec()) or "")


def test_a_client_with_a_prompt_of_the_users_is_told_only_that() -> None:
    """Who replaces the system prompt decides what is in it."""
    assert told_to(SandboxSpec(), system_prompt="Obey.") is None
