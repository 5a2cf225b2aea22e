"""A command that starts from a standby is what it would be by itself: its surroundings, its output, its record."""

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.standby.conftest import COMMAND, Lab, fork_of

pytestmark = pytest.mark.slow
ALONE = {"RINGFENCE_STANDBY": "0"}


def test_output_and_exit_code_are_the_commands(shared: Lab, place: Path):
    """A command that fails inside fails outside, with the same words."""
    words = ("exec", "-C", place, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    done, served = shared.served(lambda: shared.run(*words))
    alone = shared.run(*words, env=ALONE)
    assert served == 1
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout) == (3, "out\n")
    assert done.stderr == alone.stderr


def _recorded(lab: Lab, place: Path, script: str, env: dict[str, str]) -> tuple[Any, ...]:
    done = lab.run(
        "run", "make it", "-C", place, "--model", f"scripted:{script}", "--json", "--mode", "bind", env=env
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    run = max((lab.state / "runs").iterdir())
    kinds = [json.loads(line)["event"] for line in (run / "journal.jsonl").read_text().splitlines()]
    made = (place / "made").read_text()
    (place / "made").unlink()
    return done.returncode, [each["event"] for each in told], kinds, made, done.stderr


def test_a_run_is_recorded_alike(shared: Lab, place: Path, tmp_path: Path):
    """The same outcome, files and events, in the same order."""
    script = tmp_path / "script.yaml"
    turns = [
        {"tools": [{"name": "shell", "input": {"command": "echo made > made", "reasoning": "n"}}]},
        {"text": "ok"},
    ]
    script.write_text(json.dumps({"turns": turns}))
    done, served = shared.served(lambda: _recorded(shared, place, str(script), {}))
    assert served == 1
    assert done == _recorded(shared, place, str(script), ALONE)
    assert (done[0], done[3]) == (0, "made\n")


def test_errors_are_the_same_line(shared: Lab, place: Path):
    """Misuse is told as ever."""
    words = ("run", "--cpus", "many", "x")
    done, served = shared.served(lambda: shared.run(*words, cwd=place))
    alone = shared.run(*words, cwd=place, env=ALONE)
    assert served == 1
    assert (done.returncode, done.stdout, done.stderr) == (2, alone.stdout, alone.stderr)


def _surroundings(lab: Lab, place: Path, env: dict[str, str]) -> tuple[Any, ...]:
    """What the process that works has of its caller, while a command of it runs."""
    command = shlex.join([*COMMAND, "exec", "--", "sh", "-c", "echo $TOLD; cat"])
    limits = "umask 027; ulimit -S -n 333; ulimit -S -c 0; trap '' HUP USR1"
    outer = f"{limits}; cd {shlex.quote(str(place))}; exec {command}"
    given = {**lab.environment, "RINGFENCE_SANDBOX__ENV__TOLD": "by the caller", **env}
    with subprocess.Popen(
        ["sh", "-c", outer], env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        folder = Path("/proc", str(process.pid if env else fork_of(lab)))
        told = dict(each.split(":", 1) for each in (folder / "status").read_text().splitlines())
        limits = (folder / "limits").read_text()
        where = (folder / "cwd").readlink()
        process.communicate("")
    same = ("Umask", "SigIgn", "SigBlk", "NoNewPrivs", "CapEff", "Groups")
    return process.returncode, line, limits, where, [told[name] for name in same]


def test_surroundings_are_the_callers(shared: Lab, place: Path):
    """Directory, mask, limits, variables, ignored signals."""
    done, served = shared.served(lambda: _surroundings(shared, place, {}))
    assert served == 1
    assert done == _surroundings(shared, place, ALONE)
    assert done[:2] == (0, "by the caller\n")


def test_descriptors_of_the_caller_come_along(shared: Lab, place: Path):
    """What a shell gives by number is there under that number."""
    prompt = place.parent / "prompt"
    prompt.write_text("")
    with prompt.open() as file:
        os.dup2(file.fileno(), 77)
    try:
        done, served = shared.served(
            lambda: shared.run("run", "--file", "/dev/fd/77", "-C", place, pass_fds=[77])
        )
    finally:
        os.close(77)
    assert served == 1
    assert "the task is empty" in done.stderr


def test_a_stream_that_is_closed_is_closed(shared: Lab, place: Path):
    """Nothing else takes its number."""
    command = shlex.join(
        [sys.executable, "-c", "from ringfence.cli import main; main()", "exec", "-C", str(place)]
    )
    outer = f"exec {command} -- true <&- >&-"
    options: dict[str, Any] = {
        "env": shared.environment,
        "stderr": subprocess.PIPE,
        "text": True,
        "check": False,
    }
    done, served = shared.served(lambda: subprocess.run(["sh", "-c", outer], **options))
    assert (served, done.returncode, done.stderr) == (1, 0, "")


def test_stdin_goes_inside(shared: Lab, place: Path):
    """What is piped in is the command's."""
    words = [
        sys.executable,
        "-c",
        "from ringfence.cli import main; main()",
        "exec",
        "-C",
        str(place),
        "--",
        "cat",
    ]
    done, served = shared.served(
        lambda: subprocess.run(
            words, env=shared.environment, input="hello", capture_output=True, text=True, check=False
        )
    )
    assert (served, done.stdout) == (1, "hello")


def test_numbers_by_chance_differ(shared: Lab, place: Path):
    """Two runs have two ids, and two sandboxes two names."""
    earlier = set((shared.state / "runs").iterdir())
    for _ in range(2):
        assert shared.run("exec", "-C", place, "--", "true").returncode == 0
    runs = set((shared.state / "runs").iterdir()) - earlier
    assert len(runs) == len({_sandbox_of(run) for run in runs}) == 2


def _sandbox_of(run: Path) -> str:
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    return next(str(line["data"]["sandbox_id"]) for line in lines if line["event"] == "sandbox.created")


def test_limits_that_cannot_be_taken_over_start_by_themselves(shared: Lab, place: Path):
    """The stacks of threads are as large as the limit was when Python started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    other = 4 * 1024**2 if soft != 4 * 1024**2 else 8 * 1024**2

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (other, hard))

    done, served = shared.served(lambda: shared.run("exec", "-C", place, "--", "true", preexec_fn=lower))
    assert (served, done.returncode) == (0, 0)
    assert shared.status()["last_refusal"] == "stack limit is not the standby's"
