"""Every way to end with every agent's program: state, exit code and reason, in the result and in the record."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.endings.rows import RUNTIMES, Expected, Row, read_rows
from tests.real_clients.clients import clients_in
from tests.real_clients.conftest import own

from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.errors import RingfenceError
from ringfence.events import Event, JobEnded, ToolCalled
from ringfence.job.agent import check_agent, with_agent_cli
from ringfence.job.model_access import ModelAccess
from ringfence.job.request import AgentRequest, RunRequest
from ringfence.job.run import JobRun
from ringfence.job.state import EXIT_CODES, JobState
from ringfence.journal import read
from ringfence.runtime import Limits
from ringfence.runtime.options import Options
from ringfence.runtime.registry import provider_of, runs_agent_cli
from ringfence.sandbox import SandboxSpec

pytestmark = pytest.mark.anyio

PRICE = {"input": 1, "output": 10}
_DEADLINE_S = 120.0
ROWS = read_rows()
CASES = [
    pytest.param(
        row,
        runtime,
        id=f"{row.happens.rstrip('.')}-{runtime}",
        marks=pytest.mark.full("tried with other programs") if row.is_full(runtime) else (),
    )
    for row in ROWS
    for runtime in RUNTIMES
    if isinstance(row.expected(runtime), Expected)
]


@pytest.fixture
def programs() -> dict[str, Path]:
    """The real clients. Skips without them; fails where they must be there."""
    named = os.environ.get("TEST_CLIENTS")
    found = clients_in(Path(named)) if named else {}
    lacking = "TEST_CLIENTS names no directory with claude and codex; `scripts/clients.sh` makes one"
    if not found and os.environ.get("TEST_REQUIRES_CLIENTS"):
        pytest.fail(lacking)
    if not found:
        pytest.skip(lacking)
    return {name: client.program for name, client in found.items() if client.program is not None}


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory of an ordinary user."""
    place = Path(tempfile.mkdtemp(prefix="ringfence-endings-"))
    (place / "note.txt").write_text("one\n")
    own(place)
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize(("row", "runtime"), CASES)
async def test_a_run_ends_as_the_table_says(
    row: Row,
    runtime: str,
    request: pytest.FixtureRequest,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run ends in the state of its row, with that exit code and reason, and its record says the same."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = request.getfixturevalue("programs") if runtime != "api" else {}
    expected = row.expected(runtime)
    assert isinstance(expected, Expected)
    with anyio.fail_after(_DEADLINE_S):
        state, code, reason = await _ended(row, runtime, found, workspace, tmp_path)
    wanted = EXIT_CODES[JobState(expected.state)] if expected.exit_code is None else expected.exit_code
    assert (str(state), code, expected.reason in reason) == (expected.state, wanted, True), reason


async def _ended(
    row: Row, runtime: str, programs: dict[str, Path], workspace: Path, tmp_path: Path
) -> tuple[str, int, str]:
    script = tmp_path / "script.yaml"
    price = {"price": PRICE} if row.request.get("price", True) else {}
    script.write_text(json.dumps({"turns": row.model, **price}))
    program = programs.get("codex" if runtime == "codex-cli" else "claude")
    options = Options(
        cli_path=str(program) if program is not None else None,
        output_schema=row.request.get("schema"),
        idle_timeout_s=row.request.get("idle_s"),
        force=os.environ.get("TEST_REQUIRES_CLIENTS") == "any" and runtime != "api",
    )
    agent = AgentRequest(
        prompt="Do it.",
        model=f"scripted:{script}",
        limits=Limits(**{"wall_clock_s": 100.0, **row.request.get("limits", {})}),
        runtime=runtime,
        options=options,
    )
    access = ModelAccess(
        agent.model,
        tokens=agent.limits.tokens,
        cost_usd=agent.limits.cost_usd,
        turns=agent.limits.turns,
        policy=ModelPolicy(tuple(row.request.get("models", ()))),
        provider=provider_of(runtime),
        agent_is_inside=runs_agent_cli(runtime),
    )
    try:
        return await _run(row, agent, access, workspace)
    except RingfenceError as exc:
        states = {code: state for state, code in EXIT_CODES.items() if state is not JobState.INTERRUPTED}
        return states[exc.exit_code], exc.exit_code, str(exc)


async def _run(row: Row, agent: AgentRequest, access: ModelAccess, workspace: Path) -> tuple[str, int, str]:
    spec = SandboxSpec(workspace=workspace)
    await check_agent(agent, access)
    if access.agent_is_inside:
        agent, spec = await with_agent_cli(agent, spec)
    verify = row.request.get("verify")
    request = RunRequest(
        work=agent,
        workspace=workspace,
        spec=spec,
        wall_clock_s=agent.limits.wall_clock_s,
        verify=verify,
        model_access=access,
    )
    job: JobRun

    async def view(event: Event) -> None:
        if isinstance(event, ToolCalled) and row.request.get("cancel"):
            job.cancel()

    job = JobRun(request, view=view)
    result = await job.run()
    [ended] = [record.event for record in read(result.run_dir) if isinstance(record.event, JobEnded)]
    assert (ended.state, ended.exit_code, ended.reason) == (result.state, result.exit_code, result.reason)
    return result.state, result.exit_code, result.reason
