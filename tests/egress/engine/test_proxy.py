"""The filtered engine in front of a real one, called from a real sandbox."""

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from tests.sandbox.conftest import image_for

from ringfence.config.engine_access import SOCKET_INSIDE, EngineAccess
from ringfence.egress.engine.client import find_socket, send_request
from ringfence.egress.gate import opened_gate
from ringfence.errors import InfrastructureFault, SandboxStartFailed
from ringfence.events import EngineAnswered, EngineCalled, Event
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.testing.conformance.check import python

CLIENT = """
import http.client, json, socket, sys
class Engine(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
def ask(method, path, body=None, **headers):
    engine = Engine("docker")
    engine.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
    answer = engine.getresponse()
    return answer.status, answer.read()
def run(container, *words, **more):
    status, made = ask("POST", f"/containers/{container}/exec", {"Cmd": words, "AttachStdout": True, **more})
    if status != 201:
        return status, made
    engine = Engine("docker")
    command = json.loads(made)["Id"]
    engine.request("POST", f"/exec/{command}/start", "{}", {"Connection": "Upgrade", "Upgrade": "tcp"})
    sock = engine.sock
    said = b""
    while data := sock.recv(65536):
        said += data
    return said.partition(b"\\r\\n\\r\\n")[2][8:]
"""


def docker(*words: str) -> str:
    """What Docker's own command says."""
    return subprocess.run(
        ["docker", *words], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    """An image for containers to look at."""
    found = image_for("docker")
    assert found is not None
    return found


@pytest.fixture
def lab(image: str) -> Iterator[str]:
    """A label that one running container has; another runs without it. Both are named after it."""
    name = f"ringfence-test-{uuid4().hex[:8]}"
    line = "echo started; exec sleep 300"
    shared = ["-d", "--network", "none", "--stop-timeout", "0", "-e", "PASSWORD=hunter2"]
    docker("run", *shared, "--name", name, "--label", f"lab={name}", image, "sh", "-c", line)
    docker("run", *shared, "--name", f"{name}-other", image, "sh", "-c", line)
    yield name
    docker("rm", "-f", name, f"{name}-other")


class Called:
    """A sandbox with engine access, its record, and what a script in it prints."""

    def __init__(self, sandbox: Sandbox, record: list[Event]) -> None:
        self._sandbox = sandbox
        self.record = record

    async def says(self, code: str) -> str:
        """What the script prints, with `ask` and `run` at hand."""
        result = await python(self._sandbox, CLIENT + code, SOCKET_INSIDE)
        assert result.ok, result.stderr
        return result.stdout.strip()

    @property
    def decisions(self) -> list[tuple[str, bool]]:
        """What each call was taken for, and whether it was passed on."""
        return [(event.action, event.allowed) for event in self.record if isinstance(event, EngineCalled)]


@pytest.fixture
async def called(lab: str) -> AsyncIterator[Called]:
    """A sandbox that may restart the container of the lab and run commands in it."""
    record: list[Event] = []

    async def emit(event: Event) -> None:
        record.append(event)

    access = EngineAccess(label=f"lab={lab}", allow=("restart", "exec"))
    async with (
        Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
        opened_gate(sandbox, SandboxSpec(engine_access=access), emit),
    ):
        yield Called(sandbox, record)


pytestmark = [pytest.mark.docker, pytest.mark.slow]


async def test_list(called: Called, lab: str) -> None:
    """Only containers with the label are listed, whatever the filters say."""
    code = 'print([c["Names"] for c in json.loads(ask("GET", "/v1.41/containers/json?all=1")[1])])'
    assert await called.says(code) == f"[['/{lab}']]"
    assert called.decisions == [("list", True)]
    assert isinstance(called.record[-1], EngineAnswered)


async def test_inspect(called: Called, lab: str) -> None:
    """A container is shown without the values of its environment; another is as if it were not there."""
    shown = await called.says(f'print(ask("GET", "/containers/{lab}/json")[1].decode())')
    assert json.loads(shown)["State"]["Running"]
    assert "hunter2" not in shown
    assert (await called.says(f'print(ask("GET", "/containers/{lab}-other/json"))')).startswith("(404")


async def test_logs(called: Called, lab: str) -> None:
    """Logs are passed on."""
    assert "started" in await called.says(f'print(ask("GET", "/containers/{lab}/logs?stdout=1")[1])')


async def test_restart(called: Called, lab: str) -> None:
    """A granted act is done, by the container's full id."""
    before = docker("inspect", "-f", "{{.State.StartedAt}}", lab)
    assert (await called.says(f'print(ask("POST", "/containers/{lab}/restart?t=0"))')).startswith("(204")
    assert docker("inspect", "-f", "{{.State.StartedAt}}", lab) != before
    (event,) = [event for event in called.record if isinstance(event, EngineCalled)]
    assert event.container == docker("inspect", "-f", "{{.Id}}", lab)


async def test_not_granted(called: Called, lab: str) -> None:
    """An act that is not granted is refused, says how to grant it, and is not done."""
    said = await called.says(f'print(ask("POST", "/containers/{lab}/stop"))')
    assert "engine.allow: [stop]" in said
    assert docker("inspect", "-f", "{{.State.Running}}", lab) == "true"
    assert called.decisions == [("stop", False)]


async def test_others_are_out_of_reach(called: Called, lab: str) -> None:
    """Nothing is done with a container without the label, though the act is granted."""
    before = docker("inspect", "-f", "{{.State.StartedAt}}", f"{lab}-other")
    path = f"/containers/{lab}-other"
    code = f'print([ask("POST", "{path}/" + act, {{"Cmd": ["id"]}})[0] for act in ("restart", "exec")])'
    assert await called.says(code) == "[404, 404]"
    assert docker("inspect", "-f", "{{.State.StartedAt}}", f"{lab}-other") == before


async def test_command(called: Called, lab: str) -> None:
    """A command in a container is held as a connection, both ways."""
    assert await called.says(f'print(run("{lab}", "echo", "from within"))') == "b'from within\\n'"
    assert [action for action, _ in called.decisions] == ["exec", "exec_start"]
    made, started = [event for event in called.record if isinstance(event, EngineCalled)]
    assert made.command
    assert started.command is None


async def test_large_output(called: Called, lab: str) -> None:
    """A megabyte of a command's output comes whole."""
    code = f'print(len(run("{lab}", "head", "-c", "1000000", "/dev/zero")) >= 1000000)'
    assert await called.says(code) == "True"


@pytest.mark.parametrize("more", ["Privileged=True", "privileged=True", 'User="0"'])
async def test_command_with_more(called: Called, lab: str, more: str) -> None:
    """A command with privileges, or as another user, is refused."""
    assert (await called.says(f'print(run("{lab}", "id", {more}))')).startswith("(403")


async def test_foreign_command(called: Called, lab: str) -> None:
    """A command that was not made from inside cannot be started from inside."""
    body = b'{"Cmd": ["touch", "/tmp/started"], "Privileged": true}'
    async with send_request(find_socket(None), "POST", f"/containers/{lab}/exec", body=body) as answer:
        command = (await answer.json())["Id"]
    said = await called.says(f'print(ask("POST", "/exec/{command}/start", {{"Detach": True}}))')
    assert said.startswith("(404")


async def test_pipelined(called: Called, lab: str) -> None:
    """What follows a request on its connection is not answered."""
    code = f"""
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
lines = ("GET /_ping", "POST /containers/{lab}/restart")
sock.sendall(b"".join(line.encode() + b" HTTP/1.1\\r\\nHost: d\\r\\n\\r\\n" for line in lines))
said = b""
try:
    while data := sock.recv(4096):
        said += data
except ConnectionResetError:
    pass
print(said.count(b"HTTP/1.1"))
"""
    assert await called.says(code) == "1"
    assert called.decisions == [("ping", True)]


async def test_no_engine(tmp_path: Path) -> None:
    """Engine access without an engine is refused, with where it was looked for."""
    access = EngineAccess(label="x", socket=tmp_path / "none.sock")
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        with pytest.raises(SandboxStartFailed, match=r"none\.sock"):
            await opened_gate(sandbox, SandboxSpec(engine_access=access), _ignore).__aenter__()


async def test_engine_that_does_not_answer(tmp_path: Path) -> None:
    """A socket that is no engine's is noticed before anything runs."""
    path = tmp_path / "engine.sock"
    listener = await anyio.create_unix_listener(path)

    async def hang_up(stream: anyio.abc.SocketStream) -> None:
        await stream.aclose()

    async with (
        listener,
        anyio.create_task_group() as tasks,
        Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
    ):
        tasks.start_soon(listener.serve, hang_up)
        spec = SandboxSpec(engine_access=EngineAccess(label="x", socket=path))
        with pytest.raises(InfrastructureFault, match="the engine"):
            await opened_gate(sandbox, spec, _ignore).__aenter__()
        tasks.cancel_scope.cancel()


async def _ignore(_event: Event) -> None:
    """No record is kept."""
