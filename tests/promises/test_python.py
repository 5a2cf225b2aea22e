"""The Python API: sandboxes, runs of agents, own agents and tools, from a user's program."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.promises.needs import need_docker
from tests.promises.product import Ended, Product, Turn, processes_with, says

PROGRAM = Path(__file__).with_name("sandbox_program.py").read_text()
HEAD = "import asyncio\nfrom pathlib import Path\n"


@pytest.fixture(scope="module", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def found(request: pytest.FixtureRequest, make_product: Callable[[], Product]) -> dict[str, Any]:
    """What came of each call."""
    kind = str(request.param)
    image = need_docker() if kind == "docker" else None
    product = make_product()
    words = f"import sys; sys.argv = ['', {json.dumps(json.dumps([kind, image]))}]\n"
    ended = product.python(words + PROGRAM, "Sandbox", "SandboxSpec", HOST_ONLY="host-only")
    assert ended.code == 0, ended
    result: dict[str, Any] = json.loads(ended.stdout)
    result["kind"] = kind
    result["project"] = str(product.project)
    return result


EXPECTED: dict[str, tuple[str, Any]] = {
    "a command's streams, exit code and end": ("result", ["out\n", "err\n", 3, "exit", False]),
    "input is given byte by byte": ("input", "00ff"),
    "variables of one command": ("environment", "1\n"),
    "directory of one command": ("directory", "/tmp\n"),
    "a deadline is a result": ("timeout", ["timeout", False, 137]),
    "a signal is a result": ("signal", ["signal", 137, 9]),
    "an absent program is a result": ("absent", [127, True]),
    "long output is cut in the middle": ("cut", [True, True, True]),
    "all output is counted": ("total", 588895),
    "many commands at once": ("many", [str(number) for number in range(10)]),
    "a process is spoken with": ("spoken with", "one\n"),
    "a process ends": ("spoken with, end", 0),
    "a process that is left is killed": ("left behind", ""),
    "files are written and read": ("read", "6461746100"),
    "files have the mode that is given": ("mode", "755"),
    "directories are listed": ("listed", [["below", "dir"]]),
    "files are streamed from an offset": ("streamed", "ta\0"),
    "trees are removed": ("removed", 2),
    "an absent file": ("absent file", "SandboxFileError"),
    "a directory that is read": ("file that is a directory", "SandboxFileError"),
    "a file that is too large": ("file that is too large", "SandboxFileError"),
    "a place that is read-only": ("read-only place", "SandboxFileError"),
    "a port that nobody has": ("port that nobody has", "SandboxPortError"),
    "no command": ("no command", "UsageError"),
    "a directory that is not there": ("no directory", "UsageError"),
    "a server inside is reached": ("connected", "HELLO"),
    "use is measured": ("usage", [True, True]),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_sandbox(found: dict[str, Any], case: str) -> None:
    """What a program asks of a sandbox gives the documented result, or raises the documented error."""
    key, value = EXPECTED[case]
    assert found[key] == value


def test_a_terminal(found: dict[str, Any]) -> None:
    """A process may have a terminal of its own."""
    assert "/dev/pts/" in found["terminal"] or "/dev/console" in found["terminal"]


def test_the_workspace(found: dict[str, Any]) -> None:
    """Commands begin in the workspace, which is at its own path."""
    assert found["workspace"] == [found["project"]] * 2


def test_the_fence(found: dict[str, Any]) -> None:
    """Inside nobody is root, and nothing is there of the program's environment but what the spec gives."""
    assert found["host"] == "host-only"
    uid, given, of_the_host, *_ = found["inside"]
    assert uid != "0"
    assert (given, of_the_host) == ("yes", "")


def test_facts(found: dict[str, Any]) -> None:
    """A sandbox says what it is, and who enforces its limits."""
    backend, is_fence, enforced = found["facts"]
    assert (backend, is_fence) == (found["kind"], True)
    assert {"cpus", "disk", "memory", "pids"} <= set(enforced)


def test_nothing_outlives_the_context(found: dict[str, Any]) -> None:
    """What commands left in the background is gone when the sandbox is closed."""
    assert found
    assert not processes_with(b"sleep\x004251")


def fails(product: Product, spec: str, **variables: Any) -> Ended:
    """Open a sandbox of a spec that is refused, and print the error."""
    code = (
        f"{HEAD}from ringfence.errors import RingfenceError\n"
        f"async def main():\n    async with Sandbox.open({spec}) as sandbox:\n        print('opened')\n"
        "try:\n    asyncio.run(main())\nexcept RingfenceError as error:\n    print(type(error).__name__, error)\n"
    )
    return product.python(code, "Sandbox", "SandboxSpec", "Mount", **variables)


SPECS = {
    "refused workspace": ("SandboxSpec(workspace=Path('/'))", "PolicyRefused"),
    "refused mount": (
        "SandboxSpec(workspace=Path.cwd(), mounts=[Mount(source=Path('/'), target='/x')])",
        "PolicyRefused",
    ),
    "unknown kind": ("SandboxSpec(workspace=Path.cwd(), backend='chroot')", "UsageError"),
    "refused variable": ("SandboxSpec(workspace=Path.cwd(), env={'LD_PRELOAD': '/x'})", "PolicyRefused"),
    "mode without a workspace": ("SandboxSpec(mode='clone')", "UsageError"),
    "the model, which needs a run": (
        "SandboxSpec(workspace=Path.cwd(), egress={'allow': ['model']})",
        "UsageError",
    ),
    "refused image": (
        "SandboxSpec(workspace=Path.cwd(), backend='docker', image='x:latest')",
        "PolicyRefused",
    ),
}


@pytest.mark.parametrize("case", SPECS)
def test_specs_that_are_refused(shared: Product, case: str) -> None:
    """A sandbox that policy refuses is not opened: the documented error is raised, in one line."""
    spec, error = SPECS[case]
    ended = fails(shared, spec)
    assert ended.code == 0, ended
    (line,) = ended.out.splitlines()
    assert line.split()[0] == error


@pytest.mark.parametrize("mode", ["bind", "clone", "read_only"])
def test_a_state_directory_that_cannot_be_had(shared: Product, mode: str) -> None:
    """The error of a sandbox is ours, and names the directory and what to set."""
    ended = fails(
        shared, f"SandboxSpec(workspace=Path.cwd(), mode={mode!r})", RINGFENCE_STATE_DIR="/proc/none"
    )
    assert ended.out.startswith("InfrastructureFault could not create the directory '/proc/none/"), ended
    assert "RINGFENCE_STATE_DIR" in ended.out


def test_a_run_without_a_state_directory(product: Product) -> None:
    """The error of a run is ours, too."""
    model = product.script(says("Done."))
    code = (
        f"{HEAD}from ringfence.errors import InfrastructureFault\n"
        "try:\n"
        f"    asyncio.run(run_agent('Do it.', model={model!r}))\n"
        "except InfrastructureFault as exc:\n"
        "    print(exc)\n"
    )
    ended = product.python(code, "run_agent", RINGFENCE_STATE_DIR="/proc/none")
    assert "'/proc/none" in ended.out, ended
    assert "RINGFENCE_STATE_DIR" in ended.out


def test_read_only(shared: Product) -> None:
    """With `mode="read_only"` a program's sandbox cannot write the workspace."""
    code = (
        f"{HEAD}async def main():\n"
        "    async with Sandbox.open(SandboxSpec(workspace=Path.cwd(), mode='read_only')) as sandbox:\n"
        "        print((await sandbox.run(['touch', 'made'])).exit_code)\n"
        "asyncio.run(main())\n"
    )
    assert shared.python(code, "Sandbox", "SandboxSpec").out.strip() != "0"
    assert not (shared.project / "made").exists()


COPY = f"""{HEAD}
async def main():
    async with Sandbox.open(SandboxSpec(workspace=Path.cwd(), mode=MODE)) as sandbox:
        await sandbox.run(['sh', '-c', 'echo two > app.py'])
        changes = await sandbox.changes()
        print(sandbox.mode, *[file.path for file in changes.files], Path('app.py').read_text().strip())
        await sandbox.apply()
asyncio.run(main())
"""


def test_a_private_copy(product: Product) -> None:
    """In mode `clone` what was changed is told, and comes into the workspace only by `apply`."""
    before = (product.project / "app.py").read_text().strip()
    ended = product.python(f"MODE = 'clone'\n{COPY}", "Sandbox", "SandboxSpec")
    assert ended.out.strip() == f"clone app.py {before}"
    assert (product.project / "app.py").read_text() == "two\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of root's")
def test_roots_own_workspace(product: Product) -> None:
    """Root is not refused: on its own directory a sandbox works on a private copy, whose changes are root's on disk."""
    own = product.place / "own"
    own.mkdir()
    (own / "app.py").write_text("one\n")
    ended = product.python(f"MODE = None\n{COPY}", "Sandbox", "SandboxSpec", cwd=own)
    assert ended.out.strip() == "clone app.py one"
    assert ((own / "app.py").read_text(), (own / "app.py").stat().st_uid) == ("two\n", 0)
    for mode in (None, "clone"):
        code = (
            "from pathlib import Path\n"
            f"with open_sandbox(SandboxSpec(workspace=Path.cwd(), mode={mode!r})) as sandbox:\n"
            "    print(sandbox.notes)\n"
        )
        noted = "private copy" in product.python(code, "SandboxSpec", "open_sandbox", cwd=own).out
        assert noted == (mode is None)


_SERVICE = """import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    with server.accept()[0] as one:
        one.sendall(b"hi")
        one.recv(1)
"""


def test_ways_out(product: Product) -> None:
    """What a spec grants is reached from inside, also by its set-up; what it does not is refused, and said so."""
    (product.place / "service.py").write_text(_SERVICE)
    code = (
        f"{HEAD}import socket, subprocess, sys\n"
        f"service = subprocess.Popen([sys.executable, {str(product.place / 'service.py')!r}], stdout=-1)\n"
        "port = int(service.stdout.readline())\n"
        "own = socket.create_server(('127.0.0.1', 0))\n"
        "call = ('import socket, sys; place = (\"127.0.0.1\", int(sys.argv[1])); '\n"
        "    'print(socket.create_connection(place, 60).recv(2))')\n"
        "forward = [f'web:8000=127.0.0.1:{port}', f'own:8001=127.0.0.1:{own.getsockname()[1]}']\n"
        "async def main():\n"
        "    spec = SandboxSpec(workspace=Path.cwd(), forward=forward, egress={'allow': ['example.com']},\n"
        "        setup=[f\"python3 -c '{call}' 8000\"])\n"
        "    get = 'import urllib.request as u\\ntry: u.urlopen(\"https://example.org/\")\\nexcept OSError: print(1)'\n"
        "    async with Sandbox.open(spec) as sandbox:\n"
        "        print((await sandbox.run(['python3', '-c', call, '8000'])).stdout.strip())\n"
        "        print(*(await sandbox.run(['python3', '-c', get])).refused)\n"
        "        print(*(await sandbox.run(['python3', '-c', call, '8001'])).refused)\n"
        "try:\n    asyncio.run(main())\nfinally:\n    service.kill()\n"
    )
    ended = product.python(code, "Sandbox", "SandboxSpec")
    assert ended.code == 0, ended
    reached, host, own = ended.out.splitlines()
    assert reached == "b'hi'"
    assert "example.org:443 is not allowed" in host
    assert "one that ringfence itself listens on" in own


def test_without_async(product: Product) -> None:
    """A program that is not asynchronous has the same sandbox: commands, processes, files, its changes."""
    code = (
        "from pathlib import Path\n"
        "with open_sandbox(SandboxSpec(workspace=Path.cwd(), mode='clone')) as sandbox:\n"
        "    print(sandbox.run(['cat'], stdin=b'one').stdout)\n"
        "    with sandbox.spawn(['cat']) as process:\n"
        "        process.stdin.send(b'two')\n"
        "        process.stdin.close()\n"
        "        print(b''.join(process.stdout).decode(), process.wait().exit_code)\n"
        "    sandbox.write_file('new', b'three')\n"
        "    print(sandbox.read_file('new').decode(), [file.path for file in sandbox.changes().files])\n"
        "    sandbox.apply()\n"
        "print(Path('new').read_text())\n"
    )
    ended = product.python(code, "SandboxSpec", "open_sandbox")
    assert ended.out.splitlines() == ["one", "two 0", "three ['new']", "three"], ended


def test_a_sandbox_that_was_closed_without_async(product: Product) -> None:
    """Whatever is asked of a sandbox after its context raises `SandboxDied`, as it does where it is asynchronous."""
    code = (
        "from ringfence.errors import SandboxDied\n"
        "with open_sandbox(SandboxSpec()) as sandbox:\n"
        "    pass\n"
        "def spawn():\n"
        "    with sandbox.spawn(['true']):\n        pass\n"
        "for call in (lambda: sandbox.run(['true']), sandbox.stats, spawn):\n"
        "    try:\n        call()\n"
        "    except SandboxDied as exc:\n        print(exc)\n"
    )
    ended = product.python(code, "SandboxSpec", "open_sandbox")
    assert ended.code == 0, ended
    lines = ended.out.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("is gone: it was closed") for line in lines)


INPUTS = {
    "input of a command": "sandbox.run(['cat'], stdin='text')",
    "input that is a number": "sandbox.run(['cat'], stdin=5)",
    "content of a file": "sandbox.write_file('new', 'text')",
    "path of a file": "sandbox.read_file(Path('new'))",
}


@pytest.mark.parametrize("case", INPUTS)
def test_input_that_is_no_bytes(product: Product, case: str) -> None:
    """Text in place of bytes, and a path that is no text, are usage errors; no file is made."""
    code = (
        "from pathlib import Path\nfrom ringfence.errors import UsageError\n"
        "with open_sandbox(SandboxSpec()) as sandbox:\n"
        f"    try:\n        {INPUTS[case]}\n"
        "    except UsageError as exc:\n        print(exc)\n"
        "    print(sandbox.list_dir())\n"
    )
    error, listing = product.python(code, "SandboxSpec", "open_sandbox").out.splitlines()
    assert "bytes" in error or "text" in error
    assert listing == "[]"


def test_a_sandbox_that_dies(product: Product) -> None:
    """A command in a sandbox that is gone raises `SandboxDied`."""
    code = (
        f"{HEAD}from ringfence.errors import SandboxDied\n"
        "async def main():\n"
        "    spec = SandboxSpec(workspace=Path.cwd(), ttl_s=1)\n"
        "    async with Sandbox.open(spec) as sandbox:\n"
        "        try:\n"
        "            await sandbox.run(['sleep', '60'])\n"
        "        except SandboxDied:\n"
        "            print('died')\n"
        "asyncio.run(main())\n"
    )
    assert product.python(code, "Sandbox", "SandboxSpec").out.strip() == "died"


def test_help_shows_what_is_public(product: Product) -> None:
    """`help(ringfence)` shows the classes and functions for programs, and what a process's streams are."""
    shown = product.python("import ringfence\nhelp(ringfence)\n").out
    for name in (
        "class Sandbox(",
        "class SandboxSpec(",
        "class SandboxProcess(",
        "class BlockingSandbox(",
        "class Changes(",
        "open_sandbox(",
        "class RunResult(",
        "run_agent(",
        "run_agent_sync(",
    ):
        assert name in shown
    assert "stdout: Its output" in shown
    assert "that `ringfence init` writes explains" in shown


@pytest.mark.parametrize(
    "call",
    [
        "SandboxSpec(memory='lots')",
        "SandboxSpec(nope=1)",
        "Limits(turns=0)",
        "SandboxSpec(mode='memory')",
        "SandboxSpec(pids='memory')",
        "Mount(source='memory')",
        "SandboxSpec(unsafe=('memory',))",
        "open_sandbox('memory').__enter__()",
    ],
)
def test_arguments_that_do_not_fit(product: Product, call: str) -> None:
    """An argument that is unknown or does not fit is a usage error of one line, which names it."""
    code = f"from ringfence.errors import UsageError\ntry:\n    {call}\nexcept UsageError as exc:\n    print(exc)\n"
    (line,) = product.python(code, "SandboxSpec", "Limits", "Mount", "open_sandbox").out.splitlines()
    assert any(name in line for name in ("memory", "nope", "turns", "target"))
    assert not any(word in line for word in ("http", "pydantic", "Input should", "Field required"))


def test_an_empty_check_is_refused(product: Product) -> None:
    """An empty command is no check: `run_agent` refuses it before the agent starts."""
    code = (
        f"{HEAD}from ringfence.errors import UsageError\n"
        "try:\n"
        "    asyncio.run(run_agent('Do it.', model='scripted:none', verify=''))\n"
        "except UsageError as exc:\n"
        "    print(exc)\n"
    )
    assert "verify=''" in product.python(code, "run_agent").out


@pytest.mark.parametrize("call", ["asyncio.run(run_agent(", "(run_agent_sync("], ids=["async", "sync"])
def test_a_run_of_an_agent(product: Product, call: str) -> None:
    """A program has an agent work on a task, and gets its state, last message, patch, usage and events."""
    model = product.script(says("", "echo two > app.py"), says("It is done."))
    code = (
        f"{HEAD}seen = []\n"
        f"result = {call}'Do it.', agent='api', model={model!r}, limits=Limits(turns=5),\n"
        "    labels={'team': 'rooms'}, on_event=lambda event: seen.append(event.name)))\n"
        "print(result.state, result.final_text, 'app.py' in result.patch.read_text(), sep='|')\n"
        "print(result.usage.total > 0, result.cost_usd is not None, 'job.ended' in seen)\n"
    )
    ended = product.python(code, "Limits", "run_agent", "run_agent_sync")
    assert ended.out.splitlines() == ["unverified|It is done.|True", "True True True"], ended
    assert (product.project / "app.py").read_text() == "two\n"
    product.does("runs verify", "last")
    assert '"team": "rooms"' in product.does("runs show", "last", "--json").out.replace('":"', '": "')


def test_a_run_resolves_the_configuration(product: Product) -> None:
    """What a program does not pass is as configured; what it passes overrides files, and is in the record."""
    model = product.script(says("", "cat kept.txt given.txt; nproc"), says("It is done."))
    sandbox = {"setup": ["echo kept > kept.txt"], "memory": "700m", "soft_limits": True}
    product.configure(product.settings, run={"model": model}, sandbox=sandbox)
    code = (
        f"{HEAD}spec = SandboxSpec(env={{'GIVEN': 'yes'}}, mode='clone')\n"
        "result = asyncio.run(run_agent('Do it.', sandbox=spec, verify='grep -q kept kept.txt'))\n"
        "print(result.state, Path('kept.txt').exists())\n"
    )
    assert product.python(code, "SandboxSpec", "run_agent").out.strip() == "succeeded False"
    shown = product.does("runs show", "last", "--json").out
    assert '"GIVEN"' in shown
    assert "734003200" in shown


def test_a_run_takes_each_egress_rule(product: Product) -> None:
    """Rules reach the run with their bounds; an empty spec grants nothing, one that only denies what files grant."""
    model = product.script(says("It is done."), says("It is done."), says("It is done."))
    product.configure(product.settings, run={"model": model}, egress={"allow": ["packages"]})
    rule = {"host": "example.com", "ports": [80], "methods": ["GET"], "max_bytes": 100}
    code = (
        f"{HEAD}for egress in ({{'allow': [{rule!r}]}}, {{}}, {{'deny': ['a.example']}}):\n"
        "    spec = SandboxSpec(egress=egress)\n"
        "    print(run_agent_sync('Do it.', sandbox=spec).run_id)\n"
    )
    runs = product.python(code, "SandboxSpec", "run_agent_sync").out.split()
    allowed = [product.recorded("job.created", run)[0]["configuration"]["egress"]["allow"] for run in runs]
    assert allowed == [[rule], [], ["packages"]]


def test_what_cannot_be_called_gets_no_events(product: Product) -> None:
    """`on_event` that is no function is refused before the run begins."""
    code = (
        f"{HEAD}from ringfence.errors import UsageError\n"
        "try:\n    run_agent_sync('x', model='scripted:none', on_event=5)\nexcept UsageError as exc:\n    print(exc)\n"
    )
    assert "on_event=5" in product.python(code, "run_agent_sync").out
    assert product.does("runs ls", "--json").json == []


@pytest.mark.parametrize("last", ["job.created", "sandbox.created", "job.ended"])
@pytest.mark.parametrize("error", ["KeyError('gone')", "PermissionError('gone')"])
def test_an_exception_of_on_event(product: Product, last: str, error: str) -> None:
    """What `on_event` raises stops the run and comes to the caller, with the run's name; the record is sealed."""
    code = (
        f"{HEAD}async def agent(task, sandbox, emit):\n"
        "    await sandbox.write_file('made.txt', b'made')\n    return 'done'\n"
        "seen = []\n"
        f"def look(event):\n    seen.append(event.name)\n    if event.name == {last!r}:\n        raise {error}\n"
        "try:\n    run_agent_sync('x', agent=agent, on_event=look)\n"
        "except Exception as exc:\n    print(repr(exc), exc.__notes__[0], seen[-1], sep='|')\n"
    )
    raised, note, event = product.python(code, "run_agent_sync").out.strip().split("|")
    assert (raised, event) == (error, last)
    (run,) = product.does("runs ls", "--json").json
    assert f"on_event raised this: run {run['id']} was stopped" in note
    is_late = last == "job.ended"
    assert run["state"] == ("unverified" if is_late else "cancelled")
    assert is_late or f"on_event raised {error}" in product.recorded("job.ended", run["id"])[0]["reason"]
    product.does("runs verify", run["id"])


ARGUMENTS = {
    "workspace that is not there": "'x', agent=agent, workspace='/none'",
    "workspace that is a file": "'x', agent=agent, workspace='app.py'",
    "workspace of another type": "'x', agent=agent, workspace=5",
    "empty task": "' ', agent=agent",
    "task of another type": "b'x', agent=agent",
    "unknown agent": "'x', agent='nobody'",
    "agent of another type": "'x', agent=5",
    "check of another type": "'x', agent=agent, verify=5",
    "limits of another type": "'x', agent=agent, limits=5",
    "sandbox of another type": "'x', agent=agent, sandbox=5",
    "labels of another type": "'x', agent=agent, labels=5",
    "tool of another type": "'x', agent='api', model='scripted:none', tools=[5]",
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_of_a_run_that_do_not_fit(shared: Product, case: str) -> None:
    """An argument that does not fit is a usage error of one line, before there is a run."""
    code = (
        f"{HEAD}from ringfence.errors import UsageError\n"
        "async def agent(task, sandbox, emit):\n    return 'done'\n"
        f"try:\n    print(run_agent_sync({ARGUMENTS[case]}))\n"
        "except UsageError as exc:\n    print('refused:', exc)\n"
    )
    (line,) = shared.python(code, "run_agent_sync").out.splitlines()
    assert line.startswith("refused: ")
    assert shared.does("runs ls", "--json").json == []


def test_arguments_without_effect(product: Product) -> None:
    """A model or tool that an agent of one's own would never see is a usage error."""
    code = (
        f"{HEAD}from ringfence.errors import UsageError\n"
        "async def agent(task, sandbox, emit):\n    return 'done'\n"
        "try:\n    run_agent_sync('x', agent=agent, model='m')\n"
        "except UsageError as exc:\n    print(exc)\n"
        "async def main():\n    run_agent_sync('x', agent=agent)\n"
        "try:\n    asyncio.run(main())\n"
        "except UsageError as exc:\n    print(exc)\n"
    )
    model, loop = product.python(code, "run_agent_sync").out.splitlines()
    assert "model: without effect" in model
    assert "await run_agent there" in loop


def test_an_agent_of_ones_own(product: Product) -> None:
    """An async function is an agent: checkpoint, check and record are as of any run."""
    code = (
        f"{HEAD}async def agent(task, sandbox, emit):\n"
        "    await sandbox.write_file('greeting.txt', task.prompt.encode())\n"
        "    return 'written'\n"
        "async def main():\n"
        "    check = 'grep -q hello greeting.txt'\n"
        "    result = await run_agent('hello', agent=agent, limits=Limits(wall_clock_s=60), verify=check)\n"
        "    print(result.state, result.final_text, sep='|')\n"
        "asyncio.run(main())\n"
    )
    ended = product.python(code, "Limits", "run_agent")
    assert ended.out.strip() == "succeeded|written"
    assert "greeting.txt" in product.does("diff", "last", "--stat").out


@pytest.fixture
def tools(product: Product) -> Product:
    """A product whose user has a tool of its own."""
    place = product.place / "tools"
    place.mkdir()
    (place / "tracker.py").write_text(
        "from ringfence.tool import tool\n\n\n@tool(read_only=True)\ndef ticket(number: int) -> dict[str, str]:\n"
        '    """Look up a ticket."""\n    return {"title": f"Ticket {number}"}\n'
    )
    product.environment["PYTHONPATH"] = str(place)
    product.configure(product.settings, tools={"python": ["tracker:ticket"]})
    return product


def test_a_tool_of_ones_own(tools: Product) -> None:
    """A function that the configuration names is a tool of the agent's, runs outside, and is recorded."""
    call: Turn = {"tools": [{"name": "ticket", "input": {"number": 7}}]}
    turns: list[Turn] = [call, {"expect": {"last_tool_result": "Ticket 7"}, "text": "I know."}]
    assert tools.run(tools.script(*turns)).ends_as("unverified")
    (called,) = tools.recorded("tool.called")
    assert (called["tool"], called["arguments"]) == ("ticket", {"number": 7})


def test_input_that_does_not_fit(tools: Product) -> None:
    """A call that does not fit a function's types is an error for the agent."""
    turns = [{"tools": [{"name": "ticket", "input": {"number": "seven"}}]}, says("I see.")]
    assert tools.run(tools.script(*turns)).ends_as("unverified")
    assert tools.recorded("tool.returned")[0]["is_error"]


def test_tools_that_are_not_there(product: Product) -> None:
    """A tool that cannot be loaded is an error of one line that names it, before an agent is set to work."""
    product.configure(product.settings, tools={"python": ["no_such_module:tool"]})
    ended = product.run(product.script(says("x")))
    assert ended.code not in {0, 9}
    assert "no_such_module" in ended.err + ended.out
    assert not product.file("run", run="").exists() or product.recorded("tool.called") == []


@pytest.mark.parametrize("statement", ["sys.exit(3)", "sys.exit(0)", "raise BaseException('gone')"])
def test_tools_whose_module_ends_the_program(product: Product, statement: str) -> None:
    """A module of tools that exits or raises at import is an error of configuration, whatever it raises."""
    place = product.place / "tools"
    place.mkdir()
    (place / "rude.py").write_text(f"import sys\n\n{statement}\n")
    product.configure(product.settings, tools={"python": ["rude:tool"]})
    ended = product.run(product.script(says("x")), PYTHONPATH=place)
    ended.fails_as("configuration", "rude:tool")


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize(
    "statement", ["sys.exit(0)", "raise BaseException('gone')", "raise asyncio.CancelledError"]
)
def test_a_tool_that_ends_the_program(product: Product, statement: str, prefix: str) -> None:
    """A tool that exits, or raises what is no `Exception`, is an error for the agent, which goes on."""
    place = product.place / "tools"
    place.mkdir()
    text = f'{prefix}def leave() -> str:\n    """Leave."""\n    {statement}\n'
    (place / "rude.py").write_text(f"import asyncio\nimport sys\n\n\n{text}")
    product.configure(product.settings, tools={"python": ["rude:leave"]})
    turns = [{"tools": [{"name": "leave", "input": {}}]}, says("I see.")]
    assert product.run(product.script(*turns), "--verify", "true", PYTHONPATH=place).ends_as("succeeded")
    assert product.recorded("tool.returned")[0]["is_error"]


def test_version(product: Product) -> None:
    """`ringfence.__version__` is what `--version` prints."""
    code = "import ringfence\nprint(ringfence.__version__)"
    assert product.python(code).out.strip() in product.does("", "--version").out
