"""Whole runs whose agent is a client: outcome, record and work, whatever the client does."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cases import slow_after
from tests.runtime.agent_cli.fake import FakeCli, asked

from ringfence.egress.gateway.gateway import Gateway
from ringfence.errors import PolicyRefused
from ringfence.events import (
    AgentAnswered,
    ClientEnded,
    Event,
    JobEnded,
    ModelExchanged,
    TranscriptNoted,
    Usage,
)
from ringfence.job.agent import with_model_granted, work_of
from ringfence.job.outcome import RunResult
from ringfence.job.request import RunRequest
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.journal import read
from ringfence.runtime import Limits, Task
from ringfence.runtime.agent_cli.base import Program
from ringfence.runtime.agent_cli.runtime import CliRuntime
from ringfence.runtime.base import RuntimeResult
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox, SandboxSpec

pytestmark = pytest.mark.anyio

Step = list[Any]
OWNER = 12_345


@pytest.fixture
def place() -> Iterator[Path]:
    """A workspace that its owner can walk to, who is not root."""
    with tempfile.TemporaryDirectory(prefix="ringfence-job-") as name:
        outer = Path(name)
        outer.chmod(0o711)
        inner = outer / "project"
        inner.mkdir()
        (inner / "a.txt").write_text("one\n")
        if os.geteuid() == 0:
            for path in (inner, inner / "a.txt"):
                os.chown(path, OWNER, OWNER)
        yield inner


def test_a_client_on_the_bare_host_is_refused_with_what_to_do() -> None:
    """It was not asked for a way out, so none is spoken of."""
    with pytest.raises(
        PolicyRefused, match=r"an agent CLI does not run on the bare host, .*--sandbox bubblewrap"
    ):
        with_model_granted(SandboxSpec(backend="host"))


class Bench:
    """Makes runs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.job: JobRun | None = None
        self.on_event: Callable[[Event], None] = lambda _: None

    async def run(
        self,
        *steps: Step,
        limits: Limits | None = None,
        options: Options | None = None,
        work: Any = None,
        **more: Any,
    ) -> RunResult:
        """Run the fake client, or other work, to the end."""
        spec = SandboxSpec(backend="bubblewrap", workspace=self.place)
        runtime = CliRuntime(FakeCli(), Program("python3", "1"), Gateway([]), limits=limits)
        task = Task(prompt=asked(*steps), model="fake", options=options or Options())
        request = RunRequest(work or work_of(runtime, task), self.place, spec, **more)
        self.job = JobRun(request, view=self._view)
        with anyio.fail_after(90):
            return await self.job.run()

    async def _view(self, event: Event) -> None:
        self.on_event(event)


@pytest.fixture
def bench(place: Path) -> Bench:
    """A place to make runs."""
    return Bench(place)


def events_of(result: RunResult, kind: type[Event]) -> list[Any]:
    """What the record has of one kind."""
    return [record.event for record in read(result.run_dir) if isinstance(record.event, kind)]


DONE: tuple[Step, ...] = (
    ["write", "made.txt", "made\n"],
    ["reply", "m1", "I made it."],
    ["result", "I made it."],
)


async def test_done_is_unverified(bench: Bench) -> None:
    """Its own word is no check; its work is brought out, and what it said is in the record."""
    result = await bench.run(*DONE)
    assert (result.state, result.final_text) == (JobState.UNVERIFIED, "I made it.")
    assert result.work is not None
    assert result.work.files_changed == 1
    assert events_of(result, AgentAnswered)[0].final_text == "I made it."


@pytest.mark.parametrize(
    ("check", "state"),
    slow_after(1, [("test -f made.txt", JobState.SUCCEEDED), ("test -f other.txt", JobState.CHECK_RED)]),
    ids=["green", "red"],
)
async def test_a_check_decides(bench: Bench, check: str, state: JobState) -> None:
    """In a sandbox made after the client's has died."""
    assert (await bench.run(*DONE, verify=check)).state is state


@pytest.mark.slow
async def test_what_it_was_denied_is_told_and_the_check_decides(bench: Bench) -> None:
    """Done, but not permitted all: not a success by its word, and no failure either."""
    denials = {"permission_denials": [{"tool_name": "Bash"}, {"tool_name": "Bash"}]}
    last: Step = ["result", "I could not.", denials]
    result = await bench.run(["reply", "m1", "x"], last)
    assert result.state is JobState.UNVERIFIED
    assert "not permitted to use Bash" in result.reason
    assert events_of(result, AgentAnswered)[0].denied == ["Bash"]
    assert (await bench.run(*DONE[:2], last, verify="test -f made.txt")).state is JobState.SUCCEEDED


@pytest.mark.slow
async def test_an_answer_by_a_schema_is_given_on(bench: Bench) -> None:
    """To whoever called, and into the record."""
    options = Options(output_schema={"type": "object"})
    answer = {"files": 3}
    result = await bench.run(
        ["reply", "m1", "x"], ["result", "x", {"structured_output": answer}], options=options
    )
    assert (result.state, result.structured_output) == (JobState.UNVERIFIED, answer)


@pytest.mark.slow
async def test_no_answer_by_the_schema_is_a_failure(bench: Bench) -> None:
    """It reports that it is done, and did not give what was asked for."""
    options = Options(output_schema={"type": "object"})
    result = await bench.run(["reply", "m1", "x"], ["result", "x"], options=options, verify="true")
    assert result.state is JobState.FAILED
    assert "output schema" in result.reason


@pytest.mark.slow
async def test_another_answer_than_the_schemas_is_a_failure(bench: Bench) -> None:
    """Not each model is held to it by its maker; the reason says what is wrong with it."""
    options = Options(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    result = await bench.run(
        ["reply", "m1", "x"], ["result", "x", {"structured_output": {"n": "no"}}], options=options
    )
    assert result.state is JobState.FAILED
    assert "$.n: 'no' is not of type 'integer'" in result.reason


@pytest.mark.slow
async def test_a_limit_is_a_limit(bench: Bench) -> None:
    """With what was made before."""
    result = await bench.run(
        DONE[0],
        ["reply", "m1", "", ["c1", "Bash", {}]],
        ["sleep", 3600],
        limits=Limits(tool_calls=0),
        verify="false",
    )
    assert (result.state, result.exit_code) == (JobState.LIMIT, 5)
    assert result.work is not None
    assert result.work.files_changed == 1


@pytest.mark.slow
async def test_the_time_limit_brings_the_client_down_in_order(bench: Bench) -> None:
    """Timed out, whatever its last word, which is kept."""
    result = await bench.run(
        DONE[0], ["heed", "SIGINT", "bye"], ["line", {"type": "ready"}], ["sleep", 3600], wall_clock_s=6.0
    )
    assert result.state is JobState.TIMED_OUT
    [ended] = events_of(result, ClientEnded)
    assert (ended.signals[:1], ended.ending) == (["SIGINT"], "interrupted")


@pytest.mark.slow
async def test_one_interrupt_ends_the_client_and_keeps_the_work(bench: Bench) -> None:
    """Cancelled by the user, in order."""

    def stop(event: Event) -> None:
        if isinstance(event, TranscriptNoted) and event.kind == "ready" and bench.job is not None:
            bench.job.cancel()

    bench.on_event = stop
    result = await bench.run(DONE[0], ["heed", "SIGINT", "bye"], ["line", {"type": "ready"}], ["sleep", 3600])
    assert (result.state, result.exit_code) == (JobState.CANCELLED, 130)
    assert result.work is not None
    assert result.work.files_changed == 1
    assert events_of(result, ClientEnded)[0].signals == ["SIGINT"]


@pytest.mark.slow
async def test_two_interrupts_do_not_wait_for_a_stubborn_client(bench: Bench) -> None:
    """The time that it has to end is taken away."""

    def stop(event: Event) -> None:
        if isinstance(event, TranscriptNoted) and event.kind == "ready" and bench.job is not None:
            bench.job.cancel()
            bench.job.cancel()

    bench.on_event = stop
    result = await bench.run(["ignore", "SIGINT", "SIGTERM"], ["line", {"type": "ready"}], ["sleep", 3600])
    assert result.state is JobState.CANCELLED
    assert "at once" in result.reason


@pytest.mark.slow
async def test_what_it_claims_to_have_used_is_not_counted(bench: Bench) -> None:
    """The record's end has tool calls by its word; turns, tokens and cost by the gateway's exchanges."""
    steps: tuple[Step, ...] = (
        ["reply", "m1", "", ["c1", "Bash", {}]],
        ["returned", "c1", "x"],
        ["reply", "m2", "x"],
        ["result"],
    )
    result = await bench.run(*steps)
    [ended] = events_of(result, JobEnded)
    assert (ended.turns, ended.tool_calls, ended.usage, ended.cost_usd) == (0, 1, Usage(), 0.0)
    assert events_of(result, ModelExchanged) == []


async def test_a_plain_function_is_an_agent(bench: Bench) -> None:
    """It has the sandbox and the record, and what it returns is its answer."""

    async def agent(task: Task, sandbox: Sandbox, emit: Any) -> str:
        done = await sandbox.run(["sh", "-c", f"echo {task.prompt} > made.txt; cat a.txt"])
        return done.stdout

    result = await bench.run(
        work=work_of(agent, Task(prompt="hello", model="")), verify="grep hello made.txt"
    )
    assert (result.state, result.final_text) == (JobState.SUCCEEDED, "one\n")


@pytest.mark.slow
async def test_a_function_may_say_how_it_ended(bench: Bench) -> None:
    """An agent of one's own has the same ends as any other."""

    async def agent(task: Task, sandbox: Sandbox, emit: Any) -> RuntimeResult:
        return RuntimeResult("refused", "no", (), Usage(), 0, None)

    result = await bench.run(work=work_of(agent, Task(prompt="x", model="")))
    assert (result.state, result.final_text) == (JobState.FAILED, "no")
