"""A user's program: calls what the Python API has for a sandbox, and prints what came of it as JSON.

The suite runs it in the interpreter under test, with lines before it that import `Sandbox` and `SandboxSpec`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

Sandbox: Any = globals().get("Sandbox")
SandboxSpec: Any = globals().get("SandboxSpec")
found: dict[str, Any] = {}


async def commands(sandbox: Any) -> None:
    """Commands to their end."""
    result = await sandbox.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    found["result"] = [result.stdout, result.stderr, result.exit_code, result.ended_by, result.ok]
    found["input"] = (await sandbox.run(["cat"], stdin=b"\0\xff")).stdout_bytes.hex()
    found["environment"] = (await sandbox.run(["sh", "-c", "echo $ONE"], env={"ONE": "1"})).stdout
    found["directory"] = (await sandbox.run(["pwd"], cwd="/tmp")).stdout
    found["workspace"] = [(await sandbox.run(["pwd"])).stdout.strip(), sandbox.workspace]
    result = await sandbox.run(["sleep", "600"], timeout_s=0.5)
    found["timeout"] = [result.ended_by, result.ok, result.exit_code]
    result = await sandbox.run(["sh", "-c", "kill -9 $$"])
    found["signal"] = [result.ended_by, result.exit_code, result.signal]
    result = await sandbox.run(["no-such-program"])
    found["absent"] = [result.exit_code, "no-such-program" in result.stderr]
    result = await sandbox.run(["sh", "-c", "seq 100000"], output_limit_bytes=1000)
    found["cut"] = [
        len(result.stdout) < 2000,
        result.stdout.startswith("1\n"),
        result.stdout.endswith("100000\n"),
    ]
    found["total"] = result.stdout_total
    many = [sandbox.run(["sh", "-c", f"sleep 0.2; echo {number}"]) for number in range(10)]
    found["many"] = [result.stdout.strip() for result in await asyncio.gather(*many)]


async def processes(sandbox: Any) -> None:
    """Commands that go on."""
    async with sandbox.spawn(["cat"]) as process:
        await process.stdin.send(b"one\n")
        async for chunk in process.stdout:
            found["spoken with"] = chunk.decode()
            break
        await process.stdin.aclose()
        found["spoken with, end"] = (await process.wait()).exit_code
    async with sandbox.spawn(["sleep", "4250"]):
        pass
    result = await sandbox.run(["sh", "-c", "grep -ls slee[p] /proc/[0-9]*/comm; true"])
    found["left behind"] = result.stdout
    async with sandbox.spawn(["tty"], tty=(24, 80)) as process:
        found["terminal"] = b"".join([chunk async for chunk in process.stdout]).decode()


async def files(sandbox: Any) -> None:
    """Files inside."""
    await sandbox.write_file("made/below/file", b"data\0", mode=0o755)
    found["read"] = (await sandbox.read_file("made/below/file")).hex()
    found["mode"] = (await sandbox.run(["stat", "-c", "%a", "made/below/file"])).stdout.strip()
    found["listed"] = [[entry.name, entry.kind] for entry in await sandbox.list_dir("made")]
    pieces = [piece async for piece in sandbox.stream_file("made/below/file", offset=2)]
    found["streamed"] = b"".join(pieces).decode()
    await sandbox.remove("made")
    found["removed"] = (await sandbox.run(["ls", "made"])).exit_code
    for name, act in {
        "absent file": sandbox.read_file("no/such/file"),
        "file that is a directory": sandbox.read_file("."),
        "file that is too large": sandbox.read_file("app.py", limit_bytes=2),
        "read-only place": sandbox.write_file("/usr/x", b""),
        "port that nobody has": sandbox.connect(9),
        "no command": sandbox.run([]),
        "no directory": sandbox.run(["true"], cwd="/no/where"),
    }.items():
        try:
            await act
        except Exception as error:  # noqa: BLE001  # the kind of error is what is looked at
            found[name] = type(error).__name__


async def connections(sandbox: Any) -> None:
    """Connections into the sandbox, and out of it."""
    server = "import socket\ns = socket.create_server(('127.0.0.1', 8123))\nprint('up', flush=True)\nc = s.accept()[0]\n"
    program = server + "c.sendall(c.recv(100).upper())"
    async with sandbox.spawn(["python3", "-c", program]) as process:
        async for _ in process.stdout:
            break
        connection = await sandbox.connect(8123)
        await connection.send(b"hello")
        found["connected"] = (await connection.receive()).decode()
        await connection.aclose()


async def main() -> None:
    """All of it, in one sandbox."""
    kind, image = json.loads(sys.argv[1])
    spec = SandboxSpec(workspace=Path.cwd(), backend=kind, image=image, env={"GIVEN": "yes"})
    async with Sandbox.open(spec) as sandbox:
        await commands(sandbox)
        await processes(sandbox)
        await files(sandbox)
        await connections(sandbox)
        result = await sandbox.run(
            ["sh", "-c", "id -u; echo $GIVEN; echo $HOST_ONLY; cat /proc/net/dev | wc -l"]
        )
        found["inside"] = result.stdout.splitlines()
        facts = sandbox.facts
        found["facts"] = [facts.backend, facts.is_fence, sorted(facts.enforced)]
        usage = await sandbox.stats()
        found["usage"] = [usage.memory_bytes > 0, usage.pids > 0]
        await sandbox.run(["sh", "-c", "setsid sleep 4251 >/dev/null 2>&1 &"])
    found["host"] = os.environ["HOST_ONLY"]
    print(json.dumps(found))


asyncio.run(main())
