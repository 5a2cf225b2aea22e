"""What a run's gateway is made of."""

import pickle
from pathlib import Path

import anyio
import pytest

from ringfence.config import load
from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.errors import ConfigurationError, PolicyRefused
from ringfence.events import Event, ModelExchanged, ModelReplied, Usage
from ringfence.job.agent import check_agent
from ringfence.job.model_access import ModelAccess
from ringfence.job.recorder import Recorder
from ringfence.job.request import AgentRequest, CustomWork, RunRequest
from ringfence.journal import Journal
from ringfence.model.prices import Price
from ringfence.sandbox import SandboxSpec
from ringfence.secret import Credential, Redactor

KEY = Credential("api_key", "sk-ant-the-key-of-the-test")


def test_access_without_credentials_goes_to_another_process():
    """The supervisor of a standing sandbox gets all of it, and leases credentials itself."""
    access = ModelAccess(
        "m",
        tokens=5,
        prices={"m": Price(input=1, output=2, long_prompt_above=3, long_prompt=Price(input=4, output=5))},
        policy=ModelPolicy(("m*",), frozenset({"web_search"})),
    )
    assert pickle.loads(pickle.dumps(access)) == access


async def test_there_is_one_gateway_for_a_run():
    """What is used inside and outside counts together; it is closed when its context is left."""
    access = ModelAccess("m", credentials=[KEY], base_urls={"anthropic": "http://127.0.0.1:1"})
    gateway = access.gateway
    assert access.gateway is gateway

    async def ignore(event: Event) -> None:
        """Nothing is requested."""

    async with gateway.opened(ignore):
        assert gateway.origin("anthropic") == "http://127.0.0.1:1"
    assert not gateway._upstreams


async def test_a_model_that_may_not_be_asked_starts_no_run():
    """It would be refused at its first request."""
    access = ModelAccess("claude-opus-5", policy=ModelPolicy(("claude-haiku-*",)))
    with pytest.raises(PolicyRefused, match=r"egress\.models"):
        await check_agent(AgentRequest(prompt="x", model="claude-opus-5"), access)


@pytest.mark.parametrize("ended_by", ["closed", "limit", "upstream"], ids=["whole", "cut", "broken off"])
async def test_what_is_asked_inside_counts_as_the_runs(tmp_path: Path, ended_by: str):
    """What is asked through the gateway counts, be it inside or of the agent's own loop, and once."""
    journal = Journal.create(tmp_path / "run", "run")
    recorder = Recorder(journal, Redactor(), None)
    for sandbox_id in ("s", ""):
        await recorder.emit(
            ModelExchanged(
                sandbox_id=sandbox_id, exchange=1, status=200, ended_by=ended_by, model="m",
                usage=Usage(input_tokens=10, output_tokens=5), is_estimated=False, cost_usd=0.5, first_byte_ms=1,
                duration_ms=2, answer_bytes=3,
            )
        )  # fmt: skip
    await recorder.emit(
        ModelReplied(
            model="m", message_id="1", content=[], stop_reason="end_turn", usage=Usage(input_tokens=10),
            cost_usd=0.4, duration_ms=2, request_digest="",
        )
    )  # fmt: skip
    await anyio.to_thread.run_sync(journal.close)
    assert recorder.used.known == (30, 1.0)


@pytest.mark.parametrize(
    ("user", "project", "is_tighter"),
    [
        ("models: [a, b]", "models: [a]", True),
        ("models: [a]", "models: [a, b]", False),
        ("models: [a]", "models: []", False),
        ("models: []", "models: [a]", True),
        ("provider_tools: [web_search]", "provider_tools: []", True),
        ("provider_tools: []", "provider_tools: [web_search]", False),
    ],
)
def test_a_projects_file_can_only_allow_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, project: str, is_tighter: bool
):
    """Until it is trusted."""
    home, workspace = tmp_path / "config", tmp_path / "workspace"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    (home / "ringfence").mkdir(parents=True)
    workspace.mkdir()
    (home / "ringfence" / "ringfence.yaml").write_text(f"egress: {{{user}}}\n")
    (workspace / "ringfence.yaml").write_text(f"egress: {{{project}}}\n")
    if is_tighter:
        load(workspace, environ={})
    else:
        with pytest.raises(ConfigurationError, match="trust"):
            load(workspace, environ={})


def test_a_request_shows_no_secret():
    """Whoever prints one for an error shows nothing that it takes out of everything else."""
    assert KEY.value not in repr(RunRequest(CustomWork("fix"), Path(), SandboxSpec(), secrets=[KEY.value]))
