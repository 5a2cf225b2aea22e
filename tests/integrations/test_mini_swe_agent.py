"""The environment of mini-swe-agent, with its own agent and its deterministic model.

mini-swe-agent is not part of the usual set-up: `uv sync --group contracts` brings it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.test_evaluation_sandbox import running

os.environ["MSWEA_SILENT_STARTUP"] = "1"
pytest.importorskip("minisweagent", reason="not installed: uv sync --group contracts")

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

from ringfence.errors import PolicyRefused, SandboxDied, UsageError

EXAMPLES = Path(__file__).parents[2] / "examples" / "evaluation"
CLASS = "ringfence.integrations.mini_swe_agent.RingfenceEnvironment"
TEMPLATES = {"system_template": "on {{system}}, as {{node}}", "instance_template": "{{task}}"}


@contextmanager
def environment(**config: Any) -> Iterator[Any]:
    """An environment made as mini-swe-agent makes it of a configuration file."""
    made = get_environment({"environment_class": CLASS, **config})
    try:
        yield made
    finally:
        made.cleanup()


def agent(environment: Any, *commands: str) -> Any:
    """An agent whose model gives these commands."""
    outputs = [make_output("-", [{"command": command}]) for command in commands]
    return DefaultAgent(DeterministicModel(outputs=outputs), environment, **TEMPLATES)


def test_an_agent_works_and_submits():
    """Commands have one sandbox and a shell each; both streams are in the output, in order."""
    with environment() as made:
        worker = agent(
            made, "echo one > a; cat a; echo two >&2", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat a"
        )
        assert worker.run("write") == {"exit_status": "Submitted", "submission": "one\n"}
        assert "one\ntwo" in worker.messages[3]["content"]
        assert worker.messages[0]["content"] == "on Linux, as sandbox"
        assert worker.serialize()["info"]["config"]["environment_type"] == CLASS


def test_a_timeout_ends_the_whole_tree():
    """Nothing that a command started is left, and the agent goes on."""
    marker = "86397.25"
    with environment(timeout=0.5) as made:
        output = made.execute({"command": f"echo before; (setsid sleep {marker} &) ; sleep {marker}"})
        assert (output["output"], output["returncode"], output["extra"]["exception_type"]) == (
            "before\n",
            -1,
            "timeout",
        )
        assert not running(marker)
        assert made.execute({"command": "exit 3"})["returncode"] == 3


def test_a_dead_sandbox_ends_the_agent():
    """It is raised, and so the agent's exit status; no model is asked again."""
    with environment(ttl="1s") as made:
        worker = agent(made, "sleep 100", "echo never")
        with pytest.raises(SandboxDied):
            worker.run("wait")
        assert (worker.n_calls, worker.messages[-1]["extra"]["exit_status"]) == (1, "SandboxDied")


def test_what_a_model_may_get_wrong_is_an_output():
    """A directory that is not there, and a NUL, raise nothing."""
    with environment() as made:
        assert "absent" in made.execute({"command": "true"}, cwd="absent")["exception_info"]
        assert "NUL" in made.execute({"command": "a\0b"})["exception_info"]


def test_a_flood_of_output_is_ended():
    """A command that prints without end is killed, and what is kept of its output is bounded."""
    with environment() as made:
        output = made.execute({"command": "yes"})
        assert (output["extra"]["exception_type"], len(output["output"]) < 1_100_000) == ("output", True)


def test_what_has_no_effect_is_refused():
    """Keys of other environments, and the bare host."""
    with pytest.raises(UsageError, match="run_args"):
        get_environment({"environment_class": CLASS, "run_args": ["--privileged"]})
    with pytest.raises(PolicyRefused, match="no fence"):
        get_environment({"environment_class": CLASS, "backend": "host"})


@pytest.mark.parametrize(
    "end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], ids=["exit", "killed"]
)
def test_a_program_that_ends_leaves_nothing(end: str):
    """Neither a program that forgets `cleanup` nor one that is killed leaves a process; the first one ends in time."""
    marker = "86397.75"
    program = f"""
from minisweagent.environments import get_environment
made = get_environment({{"environment_class": {CLASS!r}}})
made.execute({{"command": "sleep {marker} >/dev/null 2>&1 &"}})
{end}
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    assert not [pid for pid in running(f"sleep\0{marker}") if not _ends(pid)]


def _ends(pid: int) -> bool:
    """Whether a process is gone within a second or so."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    import select

    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


def test_the_example_runs(tmp_path: Path):
    """The example's agent repairs a module in its sandbox and submits a patch."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "mini_swe_agent.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Submitted"), done.stdout + done.stderr
    assert "+    return first[0] < second[1] and second[0] < first[1]" in done.stdout
