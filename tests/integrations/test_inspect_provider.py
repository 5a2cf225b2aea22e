"""The provider of inspect_ai: whole evaluations by its own command, and what its contract checks do not look at.

Those checks are in tests/sandbox/test_inspect_contract.py. inspect_ai is not part of the usual set-up: `uv sync --group
contracts` brings it.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.integrations.test_evaluation_sandbox import running, until

pytest.importorskip("inspect_ai", reason="not installed: uv sync --group contracts")

from inspect_ai.log import read_eval_log
from inspect_ai.util import OutputLimitExceededError, SandboxUnavailableError
from inspect_ai.util._sandbox.limits import override_max_exec_output_size

from ringfence.errors import UsageError
from ringfence.integrations.inspect_provider import RingfenceConfig, RingfenceSandboxEnvironment

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXAMPLES = Path(__file__).parents[2] / "examples" / "evaluation"
INSPECT = Path(sys.executable).with_name("inspect")
MARKER = "86398.25"
SLEEPING = f"""
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

@solver
def sleep():
    async def solve(state, generate):
        await sandbox().exec(["sleep", "{MARKER}"])
        return state
    return solve

@task
def sleeping():
    return Task(dataset=[Sample(input="-")], solver=sleep())
"""


@asynccontextmanager
async def sample(
    config: RingfenceConfig | None = None,
) -> AsyncIterator[dict[str, RingfenceSandboxEnvironment]]:
    """The sandboxes of a sample."""
    environments = await RingfenceSandboxEnvironment.sample_init("task", config, {})
    try:
        yield environments
    finally:
        await RingfenceSandboxEnvironment.sample_cleanup("task", config, environments, False)


def open_files() -> int:
    """How many files this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


def evaluate(task: str) -> list[str]:
    """The command that evaluates a task."""
    words = ["eval", task, "--sandbox", "ringfence", "--model", "mockllm/model", "--display", "plain"]
    return [str(INSPECT), *words, "--log-dir", "logs"]


def test_an_evaluation_runs_and_scores(tmp_path: Path):
    """`inspect eval --sandbox ringfence` gives the model's tool calls and the scorer the same sandbox."""
    for name in ("inspect_task.py", "interval.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    done = subprocess.run(
        evaluate("inspect_task.py"), cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(file))
    assert (log.status, log.results.scores[0].metrics["accuracy"].value) == ("success", 1.0)
    ran = [
        event.cmd for event in log.samples[0].events if event.event == "sandbox" and event.action == "exec"
    ]
    assert any("sed -i" in command for command in ran)


async def test_an_interrupted_evaluation_leaves_nothing(tmp_path: Path):
    """After Ctrl-C no process of a sample is there."""
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    command = evaluate("sleeping.py")
    log = (tmp_path / "log").open("wb")
    async with await anyio.open_process(command, cwd=tmp_path, stdout=log, stderr=log) as process:
        await until(lambda: running(MARKER))
        process.send_signal(signal.SIGINT)
    log.close()
    assert not running(MARKER)


async def test_a_cancelled_sample_leaves_nothing():
    """A sample that is cancelled while its second sandbox starts leaves neither of them."""
    marker = "86398.75"
    config = RingfenceConfig(
        setup=[f"sleep {marker} >/dev/null 2>&1 &"], sandboxes={"second": {"setup": [f"exec sleep {marker}"]}}
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(RingfenceSandboxEnvironment.sample_init, "task", config, {})
        await until(lambda: len(running(marker)) >= 2)
        tasks.cancel_scope.cancel()
    assert not running(marker)


async def test_named_sandboxes_are_apart():
    """`default` is first; each sandbox has its own files."""
    config = RingfenceConfig(env={"ROLE": "one"}, sandboxes={"other": {"env": {"ROLE": "two"}}})
    async with sample(config) as environments:
        assert list(environments) == ["default", "other"]
        await environments["default"].write_file("a.txt", "mine")
        with pytest.raises(FileNotFoundError):
            await environments["other"].read_file("a.txt")
        assert (await environments["other"].exec(["sh", "-c", "echo $ROLE"])).stdout == "two\n"


def test_a_configuration_is_read_from_a_log():
    """What a log holds is the same configuration, with the same fields set, and can be kept in a set."""
    config = RingfenceConfig(memory="1g", sandboxes={"other": {"cpus": 1}})
    data = config.model_dump(mode="json", exclude_unset=True)
    read = RingfenceSandboxEnvironment.config_deserialize(data)
    assert {read} == {config}
    with pytest.raises(UsageError, match="mounts"):
        RingfenceSandboxEnvironment.config_deserialize({"mounts": [{"source": "/", "target": "/host"}]})


async def test_another_configuration_is_an_error():
    """A compose file's path has no effect here."""
    with pytest.raises(UsageError, match="compose"):
        await RingfenceSandboxEnvironment.task_init("task", "/somewhere/compose.yaml")


@pytest.mark.parametrize("path", ["../escaped", "/etc/escaped", "/escaped", "out/escaped", "a\0b"])
async def test_files_stay_inside(path: str, tmp_path: Path):
    """A sample's files cannot leave the sandbox: not by `..`, not by an absolute path, not by a link of the agent."""
    async with sample() as environments:
        await environments["default"].exec(["ln", "-s", str(tmp_path), "out"])
        with suppress(OSError, UsageError):
            await environments["default"].write_file(path, "escaped")
        places = (tmp_path / "escaped", Path("/etc/escaped"), Path("/escaped"), Path.cwd().parent / "escaped")
        assert not any(place.exists() for place in places)


async def test_links_show_nothing_of_the_machine(tmp_path: Path):
    """A link that an agent made is followed inside only."""
    secret = tmp_path / "secret"
    secret.write_text("key")
    async with sample() as environments:
        await environments["default"].exec(["ln", "-s", str(secret), "link"])
        with pytest.raises(OSError, match="link"):
            await environments["default"].read_file("link")


async def test_a_flood_of_output_is_ended():
    """A command that prints without end is killed at the limit; the sandbox goes on."""
    async with sample() as environments:
        with override_max_exec_output_size(1000), pytest.raises(OutputLimitExceededError) as caught:
            await environments["default"].exec(["yes"])
        assert len(caught.value.truncated_output) < 2000
        assert (await environments["default"].exec(["printf", "\\377"])).stdout == "\ufffd"


async def test_arguments_of_a_model_raise_nothing():
    """A directory that is not there, and a NUL, are a failed command that the model can read of."""
    async with sample() as environments:
        absent = await environments["default"].exec(["true"], cwd="absent")
        assert (absent.success, "absent" in absent.stderr) == (False, True)
        assert "NUL" in (await environments["default"].exec(["a\0b"])).stderr


async def test_a_dead_sandbox_is_named():
    """A sandbox whose time is up is unavailable, for commands and for files, and its clean-up raises nothing."""
    async with sample(RingfenceConfig(ttl="1s")) as environments:
        environment = environments["default"]
        with pytest.raises(SandboxUnavailableError):
            await environment.exec(["sleep", "100"])
        with pytest.raises(SandboxUnavailableError):
            await environment.read_file("a.txt")


async def test_fifty_samples_at_once():
    """Fifty samples have a sandbox each at the same time, and afterwards none."""
    before = open_files()
    everyone_is_there = anyio.Event()
    there = 0

    async def one() -> None:
        nonlocal there
        async with sample() as environments:
            assert (await environments["default"].exec(["true"])).success
            there += 1
            if there == 50:
                everyone_is_there.set()
            await everyone_is_there.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(one)
    assert open_files() <= before + 2
