"""A client run by its runtime: a real process in a real sandbox, good or bad."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest
from tests.cases import slow_after
from tests.runtime.agent_cli.fake import SOURCE, FakeCli, asked

from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.verdict import Verdict
from ringfence.errors import (
    ConfigurationError,
    InfrastructureFault,
    LimitReached,
    SandboxDied,
)
from ringfence.events import (
    AnyEvent,
    ClientEnded,
    ClientStarted,
    Event,
    ModelReplied,
    Origin,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
)
from ringfence.grace import GRACES
from ringfence.job.outcome import outcome_of
from ringfence.job.state import JobState
from ringfence.runtime import Limits, Task
from ringfence.runtime.agent_cli.base import Launch, ModelMonitor, Program
from ringfence.runtime.agent_cli.process import END_SIGNALS, Bounds, CliProcess
from ringfence.runtime.agent_cli.runtime import CliRuntime
from ringfence.runtime.base import RuntimeResult
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox, SandboxSpec

pytestmark = pytest.mark.anyio

Step = list[Any]


class Bench:
    """Runs the fake client."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = lambda _: None

    async def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        self.on_event(event)

    async def run(
        self,
        *steps: Step,
        limits: Limits | None = None,
        options: Options | None = None,
        program: str = "python3",
        monitor: ModelMonitor | None = None,
        client: FakeCli | None = None,
    ) -> RuntimeResult:
        """Run to the end."""
        runtime = CliRuntime(
            client or FakeCli(), Program(program, "1"), monitor or Gateway([]), limits=limits
        )
        task = Task(prompt=asked(*steps), model="fake", options=options or Options())
        with anyio.fail_after(60):
            return await runtime.run(task, self.sandbox, self.emit)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def bench(sandbox: Sandbox) -> Bench:
    """A place to run clients."""
    return Bench(sandbox)


async def test_a_client_is_followed_to_its_end(bench: Bench) -> None:
    """Replies, calls and results are events with their line; the last word is the result."""
    result = await bench.run(
        ["reply", "m1", "I look.", ["c1", "Bash", {"command": "ls"}]],
        ["returned", "c1", "a.py"],
        ["reply", "m2", "All is well."],
        ["result", "All is well."],
    )
    assert (result.ended_by, result.final_text) == ("done", "All is well.")
    assert result.session_id == "s-1"
    [first, second] = bench.of(ModelReplied)
    assert (first.origin.line, second.origin.line) == (1, 3)
    assert bench.of(ToolCalled)[0].arguments == {"command": "ls"}
    assert bench.of(ToolReturned)[0].content == "a.py"


async def test_its_start_and_its_end_are_recorded_from_outside(bench: Bench) -> None:
    """What was sent, what was started, and how it ended whatever it says: these have no origin."""
    await bench.run(["reply", "m1", "x"], ["stderr", "warned\n"], ["result"])
    outside = [event for event in bench.events if not isinstance(event.origin, Origin)]
    assert [event.name for event in outside] == ["message.sent", "client.started", "client.ended"]
    [started], [ended] = bench.of(ClientStarted), bench.of(ClientEnded)
    assert (started.client, started.version, started.argv[0]) == ("claude", "1", "python3")
    assert (ended.exit_code, ended.ending, ended.stderr) == (0, "done", "warned\n")


async def test_what_a_client_says_it_used_is_not_believed(bench: Bench) -> None:
    """The gateway counts; the runtime's own result has none."""
    result = await bench.run(["reply", "m1", "x"], ["result"])
    assert (result.usage.total, result.cost_usd) == (0, None)


@pytest.mark.slow
async def test_a_prompt_of_a_megabyte_arrives(bench: Bench) -> None:
    """It goes by stdin, where nothing limits it."""
    text = "ä" * 1024 * 1024
    await bench.run(["digest", text], ["result"])
    noted = next(event for event in bench.of(TranscriptNoted) if event.kind == "digest")
    assert noted.record["sha256"] == hashlib.sha256(text.encode()).hexdigest()


async def test_files_of_a_client_are_there_before_it_starts(bench: Bench) -> None:
    """Its configuration, say; nobody else may read it."""
    await bench.run(["result"], client=FakeCli(**{"one.json": b"1", "two.json": b"22"}))
    for name, data in (("one.json", b"1"), ("two.json", b"22")):
        assert await bench.sandbox.read_file(f"{bench.sandbox.facts.home}/{name}") == data


async def test_a_program_that_is_not_there_is_a_wrong_configuration(bench: Bench) -> None:
    """And no fault of the agent's."""
    with pytest.raises(ConfigurationError, match="cannot be started inside"):
        await bench.run(["result"], program="/opt/none/claude")


@pytest.mark.slow
async def test_tool_calls_are_bounded(bench: Bench) -> None:
    """By what the client tells of them."""
    with pytest.raises(LimitReached) as caught:
        await bench.run(
            ["reply", "m1", "", ["c1", "Bash", {}], ["c2", "Bash", {}]],
            ["sleep", 3600],
            limits=Limits(tool_calls=1),
        )
    assert (caught.value.limit, caught.value.used) == ("tool_calls", 2)


async def test_silence_ends_a_client(bench: Bench) -> None:
    """Where a bound on it is asked for."""
    with pytest.raises(InfrastructureFault, match=r"printed nothing for 0\.2 s"):
        await bench.run(
            ["reply", "m1", "x"],
            ["heed", "SIGINT", "x"],
            ["sleep", 3600],
            options=Options(idle_timeout_s=0.2),
        )


# --- bringing it down


async def cancelled(bench: Bench, *steps: Step) -> None:
    """Run the steps, and cancel once they have said `ready`."""
    with anyio.CancelScope() as scope:
        bench.on_event = lambda event: (
            scope.cancel() if isinstance(event, TranscriptNoted) and event.kind == "ready" else None
        )
        await bench.run(*steps)
    assert scope.cancelled_caught


def words(bench: Bench) -> list[str]:
    """What was noted."""
    return [event.kind for event in bench.of(TranscriptNoted)]


async def test_a_cancelled_client_is_asked_first_and_its_last_words_are_kept(bench: Bench) -> None:
    """It gets an interrupt, as from a terminal, and is read to its end."""
    await cancelled(
        bench, ["heed", "SIGINT", "bye"], ["line", {"type": "ready"}], ["sleep", 3600], ["result", "never"]
    )
    assert words(bench) == ["ready", "result.error_during_execution"]
    [ended] = bench.of(ClientEnded)
    assert (ended.ending, ended.signals, ended.exit_code) == ("interrupted", ["SIGINT"], 0)
    assert bench.of(TranscriptNoted)[-1].record["result"] == "bye"


@pytest.mark.slow
async def test_a_client_that_ignores_an_interrupt_is_told_to_end(bench: Bench) -> None:
    """The second rung of the ladder."""
    await cancelled(
        bench,
        ["ignore", "SIGINT"],
        ["heed", "SIGTERM", "told"],
        ["line", {"type": "ready"}],
        ["sleep", 3600],
    )
    assert bench.of(TranscriptNoted)[-1].record["result"] == "told"


@pytest.mark.slow
async def test_a_client_that_ignores_all_is_killed_with_what_it_started(bench: Bench) -> None:
    """The last rung: nothing of it is left."""
    file = f"{bench.sandbox.facts.home}/pid"
    await cancelled(
        bench,
        ["daemon", file],
        ["ignore", "SIGINT", "SIGTERM"],
        ["line", {"type": "ready"}],
        ["sleep", 3600],
        ["sleep", 3600],
    )
    assert not await is_alive(bench, file)


async def is_alive(bench: Bench, file: str) -> bool:
    """Whether the process whose number is in a file still runs."""
    found = await bench.sandbox.run(["sh", "-c", f"kill -0 $(cat {file})"])
    return found.exit_code == 0


@pytest.mark.slow
async def test_somebody_in_a_hurry_takes_the_time_to_end_away(bench: Bench) -> None:
    """What stops all cancels the grace too; the tree is killed by leaving."""
    scopes: set[anyio.CancelScope] = set()
    GRACES.set(scopes)
    began = anyio.current_time()

    def hurry(event: Event) -> None:
        if isinstance(event, TranscriptNoted) and event.kind == "ready":
            for scope in (whole, *scopes):
                scope.cancel()

    bench.on_event = hurry
    with anyio.CancelScope() as whole:
        await bench.run(["ignore", "SIGINT", "SIGTERM"], ["line", {"type": "ready"}], ["sleep", 3600])
    assert whole.cancelled_caught
    assert scopes == set()
    assert anyio.current_time() - began < sum(grace_s for _, grace_s in END_SIGNALS)


@dataclass
class SpentGateway:
    """A model gateway that has no more to give."""

    stopped: LimitReached
    turns: int = 2
    last: Verdict | None = None

    async def wait_stopped(self) -> LimitReached:
        """At once."""
        return self.stopped


async def test_a_run_that_is_to_end_waits_a_moment_for_the_client(bench: Bench) -> None:
    """A limit is reached: the client was refused, tells of it and ends, before anybody has to end it."""
    gateway = SpentGateway(LimitReached("tokens", allowed=1, used=2))
    with pytest.raises(LimitReached) as caught:
        await bench.run(["reply", "m1", "x"], ["result", "I was refused."], monitor=gateway)
    assert caught.value is gateway.stopped
    assert words(bench)[-1] == "result.success"
    [ended] = bench.of(ClientEnded)
    assert (ended.ending, ended.reason, ended.turns) == ("limit", str(gateway.stopped), 2)


# --- hostile output


async def test_a_daemon_that_holds_the_output_does_not_hold_the_run(bench: Bench) -> None:
    """The client's end is the end; what it left behind dies with the sandbox."""
    file = f"{bench.sandbox.facts.home}/pid"
    result = await bench.run(["daemon", file], ["result", "done"])
    assert result.ended_by == "done"
    assert await is_alive(bench, file)


async def test_what_is_no_json_is_noted(bench: Bench) -> None:
    """And no error; the end is judged by what could be read."""
    result = await bench.run(["raw", "\x00\xff warning!\n[1]\n\n"], ["result", "done"])
    assert result.ended_by == "done"
    assert words(bench)[:2] == ["no_json", "no_json"]


async def test_half_a_line_and_death_is_no_last_word(bench: Bench) -> None:
    """The run is a fault in between, told with who killed it."""
    with pytest.raises(InfrastructureFault, match="ended by SIGKILL, which ringfence did not send"):
        await bench.run(["reply", "m1", "x"], ["raw", '{"type": "resu'], ["die", "SIGKILL"])
    assert words(bench) == ["no_json"]


@pytest.mark.slow
async def test_half_a_line_and_a_good_exit_code_is_no_last_word(bench: Bench) -> None:
    """An exit code of 0 says nothing."""
    with pytest.raises(InfrastructureFault, match="ended with 0 and without a last message"):
        await bench.run(["raw", '{"type": "resu'], ["exit", 0])


@pytest.mark.slow
async def test_the_end_of_stderr_is_told(bench: Bench) -> None:
    """It has the reason where the program says nothing else; what came long before is passed over."""
    with pytest.raises(ConfigurationError, match=r"unknown flag; check --cli-arg"):
        await bench.run(["stderr", "\n" * 20_000 + "unknown flag"], ["exit", 2])


async def test_a_line_without_an_end_takes_no_memory(bench: Bench) -> None:
    """Beyond 16 MiB only its size is kept; what follows is read on."""
    result = await bench.run(["flood", "x", 300], ["raw", "\n"], ["result", "done"])
    assert result.ended_by == "done"
    [damaged] = bench.of(TranscriptDamaged)
    assert damaged.size_bytes == 300 * 65536


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "limit"),
    slow_after(
        1,
        [
            (Bounds(anyio.sleep_forever, output_bytes=1024 * 1024), "output_bytes"),
            (Bounds(anyio.sleep_forever, output_lines=50), "output_lines"),
        ],
    ),
    ids=["bytes", "lines"],
)
async def test_a_flood_ends_the_client(bench: Bench, bounds: Bounds, limit: str) -> None:
    """What comes after the bound is not recorded."""
    steps = asked(["flood", '{"type": "x"}\n', 100], ["sleep", 3600])
    launch = Launch(argv=("python3", "-I", "-c", SOURCE), stdin=steps.encode())
    drive = CliProcess(ClaudeCli().output(), launch, bounds, bench.emit)
    with anyio.fail_after(60):
        await drive.run(bench.sandbox)
    assert drive.exit is not None
    assert drive.exit.limit is not None
    assert drive.exit.limit.limit == limit
    assert len(bench.events) < 200_000


@pytest.mark.slow
async def test_memory_is_a_limit_and_no_fault(anyio_backend: str) -> None:
    """A client that takes more than the sandbox has is ended by that, and the outcome says so."""
    async with Sandbox.open(
        SandboxSpec(backend="bubblewrap", memory=200 * 1024**2, soft_limits=True)
    ) as small:
        with pytest.raises((LimitReached, SandboxDied)) as caught:
            await Bench(small).run(["eat", 1000], ["result"])
    assert outcome_of(caught.value).state is JobState.LIMIT


async def test_what_is_told_from_outside_can_be_read_again(bench: Bench) -> None:
    """The journal's reader knows the events."""
    await bench.run(["reply", "m1", "x"], ["result"])
    for event in bench.events:
        assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event


async def test_a_client_that_does_not_read_its_prompt_ends_all_the_same(bench: Bench) -> None:
    """What it leaves unread is lost, and holds nothing up."""
    last = '{"type": "result", "subtype": "success", "is_error": false, "result": "done"}'
    launch = Launch(argv=("echo", last), stdin=b"x" * 4 * 1024**2)
    drive = CliProcess(ClaudeCli().output(), launch, Bounds(anyio.sleep_forever), bench.emit)
    with anyio.fail_after(60):
        await drive.run(bench.sandbox)
    assert drive.exit is not None
    assert drive.exit.code == 0
    assert words(bench) == ["result.success"]


async def test_what_cannot_be_recorded_ends_the_client(bench: Bench) -> None:
    """Written before told: a client whose doings nobody can write down does nothing more."""
    file = f"{bench.sandbox.facts.home}/pid"

    def full(event: Event) -> None:
        if isinstance(event, ModelReplied):
            raise InfrastructureFault("the disk is full")

    bench.on_event = full
    with pytest.raises(InfrastructureFault, match="the disk is full"):
        await bench.run(["daemon", file], ["reply", "m1", "x", ["c1", "Bash", {}]], ["sleep", 3600])
    assert not await is_alive(bench, file)
