"""The deployment of SWE-ReX: sessions, commands and files.

SWE-ReX is not part of the usual set-up: `uv sync --group contracts` brings it. Of the 50 checks of a runtime in its
source distribution 47 pass; two read a file of the machine, which nothing inside can; one fails in SWE-ReX, too.
"""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integrations.test_evaluation_sandbox import running

pytest.importorskip("swerex", reason="not installed: uv sync --group contracts")

from swerex import exceptions
from swerex.runtime import abstract as api

from ringfence.errors import PolicyRefused, SandboxDied, UsageError
from ringfence.integrations.swe_rex import RingfenceDeployment, RingfenceDeploymentConfig, RingfenceRuntime

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples" / "evaluation"


def action(command: str, **fields: object) -> api.BashAction:
    """A command for a session, with a time limit."""
    return api.BashAction(**{"command": command, "timeout": 10, **fields})


@pytest.fixture
async def runtime() -> AsyncIterator[RingfenceRuntime]:
    """A runtime with a session."""
    deployment = RingfenceDeployment()
    await deployment.start()
    await deployment.runtime.create_session(api.CreateBashSessionRequest(startup_timeout=10))
    yield deployment.runtime
    await deployment.stop()


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo 'a\n b'", "a\n b\n"),
        ("printf '\\n\\nx\\n\\n'", "\n\nx\n\n"),
        ("cat <<EOF\none\n\ntwo\nEOF\necho three", "one\n\ntwo\nthree\n"),
        ("for i in 1 2; do\n  echo $i\ndone", "1\n2\n"),
        ("# nothing", ""),
        ("", ""),
        ("A=(); [[ x == x ]] && echo yes", "yes\n"),
        (f"echo {'x' * 20_000}", f"{'x' * 20_000}\n"),
        ("echo 'SHELLPS1PREFIX:0:'", "SHELLPS1PREFIX:0:\n"),
    ],
)
async def test_output_of_a_session(runtime: RingfenceRuntime, command: str, output: str):
    """What bash prints is the output, whatever the command's form, and length, is."""
    seen = await runtime.run_in_session(action(command))
    assert (seen.exit_code, seen.output.replace("\n", "")) == (0, output.replace("\n", ""))
    if len(output) < 1000:
        assert seen.output == output


async def test_a_session_keeps_its_state(runtime: RingfenceRuntime):
    """Directory and variables stay; another session has its own."""
    await runtime.run_in_session(action("cd /tmp; x=1"))
    await runtime.create_session(api.CreateBashSessionRequest(session="other", startup_timeout=10))
    assert (await runtime.run_in_session(action("echo $PWD $x"))).output == "/tmp 1\n"
    assert (await runtime.run_in_session(action("echo -$x-", session="other"))).output == "--\n"


async def test_exit_codes(runtime: RingfenceRuntime):
    """A failure is raised, returned or ignored, as the action says."""
    with pytest.raises(exceptions.NonZeroExitCodeError):
        await runtime.run_in_session(action("(exit 3)"))
    assert (await runtime.run_in_session(action("(exit 3)", check="silent"))).exit_code == 3
    assert (await runtime.run_in_session(action("(exit 3)", check="ignore"))).exit_code is None
    with pytest.raises(exceptions.BashIncorrectSyntaxError):
        await runtime.run_in_session(action("(a"))


async def test_a_timeout_can_be_interrupted(runtime: RingfenceRuntime):
    """What runs on after its time limit ends by an interrupt, and the session goes on."""
    marker = "86396.25"
    with pytest.raises(exceptions.CommandTimeoutError):
        await runtime.run_in_session(action(f"sleep {marker}", timeout=0.5))
    assert running(marker)
    await runtime.run_in_session(api.BashInterruptAction(timeout=5))
    assert not running(marker)
    assert (await runtime.run_in_session(action("echo on"))).output == "on\n"


async def test_an_interactive_program(runtime: RingfenceRuntime):
    """A program is typed to, waits for what is expected, and ends."""
    await runtime.run_in_session(action("python3", is_interactive_command=True, expect=[">>> "]))
    seen = await runtime.run_in_session(action("print(6 * 7)", is_interactive_command=True, expect=[">>> "]))
    assert (seen.output, seen.expect_string) == ("42", ">>> ")
    await runtime.run_in_session(action("quit()", is_interactive_quit=True))
    assert (await runtime.run_in_session(action("echo on"))).output == "on\n"


async def test_a_session_that_ends_is_named(runtime: RingfenceRuntime):
    """`exit` ends the session's bash; the next command does not wait."""
    with pytest.raises(exceptions.SessionNotInitializedError):
        await runtime.run_in_session(action("exit"))


async def test_a_flood_of_output_is_bounded(runtime: RingfenceRuntime):
    """Of a session's endless output the last 10 MiB are kept until its time is up."""
    with pytest.raises(exceptions.CommandTimeoutError):
        await runtime.run_in_session(action("yes", timeout=1))
    assert len(runtime._sessions["default"]._unread) <= 10 * 1024**2


async def test_a_command_by_itself(runtime: RingfenceRuntime):
    """Streams apart or merged, exit codes, time limits that kill the whole tree."""
    script = "echo out; echo err >&2; exit 3"
    apart = await runtime.execute(api.Command(command=["sh", "-c", script]))
    assert (apart.stdout, apart.stderr, apart.exit_code) == ("out\n", "err\n", 3)
    merged = await runtime.execute(api.Command(command=script, shell=True, merge_output_streams=True))
    assert (merged.stdout, merged.stderr) == ("out\nerr\n", "")
    with pytest.raises(exceptions.NonZeroExitCodeError):
        await runtime.execute(api.Command(command="false", shell=True, check=True))
    with pytest.raises(FileNotFoundError):
        await runtime.execute(api.Command(command=["no-such-program"]))
    marker = "86396.75"
    with pytest.raises(exceptions.CommandTimeoutError):
        await runtime.execute(
            api.Command(command=f"setsid sleep {marker} & sleep {marker}", shell=True, timeout=0.3)
        )
    assert not running(marker)


async def test_files(runtime: RingfenceRuntime, tmp_path: Path):
    """Text is written and read; a directory is uploaded with its modes, and its links as links."""
    secret, source = tmp_path / "secret", tmp_path / "source"
    secret.write_text("key")
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "run").chmod(0o755)
    (source / "link").symlink_to(secret)
    await runtime.upload(api.UploadRequest(source_path=str(source), target_path="there"))
    assert (await runtime.execute(api.Command(command=["there/sub/run"]))).stdout == "ran\n"
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(api.ReadFileRequest(path="there/link"))
    await runtime.write_file(api.WriteFileRequest(path="new/a.txt", content="é"))
    assert (await runtime.read_file(api.ReadFileRequest(path="new/a.txt"))).content == "é"
    with pytest.raises(PermissionError):
        await runtime.write_file(api.WriteFileRequest(path="/etc/passwd", content=""))


async def test_the_life_of_a_deployment():
    """It is alive between start and stop; a dead sandbox is named."""
    deployment = RingfenceDeploymentConfig(ttl="1s").get_deployment()
    assert not await deployment.is_alive()
    with pytest.raises(exceptions.DeploymentNotStartedError):
        _ = deployment.runtime
    await deployment.start()
    assert await deployment.is_alive()
    with pytest.raises(SandboxDied):
        await deployment.runtime.execute(api.Command(command=["sleep", "100"]))
    assert not await deployment.is_alive()
    await deployment.stop()


async def test_what_would_weaken_it_is_refused():
    """Arguments of other deployments, and the bare host."""
    with pytest.raises(UsageError, match="docker_args"):
        RingfenceDeployment(docker_args=["--privileged"])
    with pytest.raises(PolicyRefused, match="no fence"):
        await RingfenceDeployment(backend="host").start()


def test_the_example_runs(tmp_path: Path):
    """The example's session keeps its state, in a sandbox without a network but loopback."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "swe_rex.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("project\nblue\ninterfaces 1\n")  # SWE-ReX logs after it
