"""The forward proxy: one tunnel's throughput, what a request through it costs, and what it adds to a start.

python -m benchmarks.proxy
"""

import ipaddress
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from benchmarks.claim import Row, growth_mb, open_sandbox
from ringfence.config.egress import Egress
from ringfence.egress.environment import environment_for
from ringfence.egress.gate import opened_gate
from ringfence.egress.resolver import Resolved
from ringfence.events import Event
from ringfence.sandbox import Sandbox, SandboxSpec

_MB = 256
_REQUESTS = 100
_STREAMS = 200
_STARTS = 10
_HOST = "bench.example"
_DOWN = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
if sys.argv[3] == "tunnel":
    s.sendall(b"CONNECT bench.example:8080 HTTP/1.0\\r\\n\\r\\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 200")
s.sendall(b"go")
view, count, began = memoryview(bytearray(1 << 20)), 0, time.perf_counter()
while n := s.recv_into(view):
    count += n
print(count / 1e6 / (time.perf_counter() - began))
"""
_ASK = """
import socket, sys, time
took = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"CONNECT bench.example:8080 HTTP/1.0\\r\\n\\r\\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 200")
    took.append((time.perf_counter() - began) * 1e3)
    s.close()
    time.sleep(0.02)
print(*took)
"""


_MANY = """
import selectors, socket, sys
count, waiting, total = int(sys.argv[1]), selectors.DefaultSelector(), 0
for _ in range(count):
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"CONNECT bench.example:8080 HTTP/1.0\\r\\n\\r\\n")
    assert s.recv(4096).startswith(b"HTTP/1.1 200")
    waiting.register(s, selectors.EVENT_READ)
for key in list(waiting.get_map().values()):
    key.fileobj.sendall(b"one")
while waiting.get_map():
    for key, _ in waiting.select():
        data = key.fileobj.recv(65536)
        total += len(data)
        if not data:
            waiting.unregister(key.fileobj)
            key.fileobj.close()
print(total)
"""


async def measure() -> list[Row]:
    """All rows of this file."""
    return [await throughput(), await streams(), await latency(), await start()]


async def throughput() -> Row:
    """A quarter of a gigabyte through one CONNECT, beside a forward of the same service."""
    async with _service() as port, _gated(port) as sandbox:
        rates = [await _rate(sandbox, 3128, "tunnel") for _ in range(3)]
        beside = [await _rate(sandbox, port, "forward") for _ in range(3)]
    rate = statistics.median(rates)
    return Row(
        f"{_MB} MB through one CONNECT of a sandbox",
        "≥ 150 MB/s",
        f"median {rate:.0f} MB/s",
        f"a forward: {statistics.median(beside):.0f} MB/s",
        rate >= 150,
    )


async def streams() -> Row:
    """As many tunnels as may be, all at once, with a megabyte for each; what this process grows by."""
    async with _service() as port, _gated(port) as sandbox:
        await _rate(sandbox, 3128, "tunnel")
        grown_mb = growth_mb()
        result = await sandbox.run(["python3", "-c", _MANY, str(_STREAMS)], timeout_s=120)
        grown = grown_mb()
    is_whole = result.stdout.strip() == str(_STREAMS << 20)
    return Row(
        f"memory of the host for {_STREAMS} tunnels at once",
        "≤ 64 MB",
        f"{grown:.0f} MB" if is_whole else f"failed: {result.stderr[-200:]}",
        "",
        is_whole and grown <= 64,
    )


async def latency() -> Row:
    """From connecting to the proxy to its answer: decided, recorded, connected."""
    async with _service() as port, _gated(port) as sandbox:
        result = await sandbox.run(["python3", "-c", _ASK, str(_REQUESTS)], timeout_s=120)
    took = sorted(map(float, result.stdout.split()))
    middle = statistics.median(took)
    return Row(
        "a CONNECT, from inside, until it is answered",
        "p50 ≤ 10 ms",
        f"p50 {middle:.2f} ms, p99 {took[int(len(took) * 0.99)]:.2f} ms",
        "",
        middle <= 10,
    )


async def start() -> Row:
    """What opening the gate with a proxy adds to a start."""
    took = []
    spec = SandboxSpec(backend="bubblewrap", egress=Egress.model_validate({"allow": ["packages"]}))
    for _ in range(_STARTS):
        async with open_sandbox() as sandbox:
            await sandbox.run(["true"])
            began = time.perf_counter()
            async with opened_gate(sandbox, spec, _ignore):
                took.append((time.perf_counter() - began) * 1e3)
    middle = statistics.median(took)
    return Row("the proxy's part of a start", "≤ 10 ms", f"p50 {middle:.2f} ms", "", middle <= 10)


async def _rate(sandbox: Sandbox, port: int, how: str) -> float:
    result = await sandbox.run(["python3", "-c", _DOWN, "127.0.0.1", str(port), how], timeout_s=120)
    return float(result.stdout)


@asynccontextmanager
async def _gated(port: int) -> AsyncIterator[Sandbox]:
    async def resolve(_host: str, _port: int) -> Sequence[Resolved]:
        return [Resolved(ipaddress.ip_address("127.0.0.1"), port)]

    egress = Egress.model_validate({"allow": [f"{_HOST}:8080", f"127.0.0.1:{port}"]})
    asked = SandboxSpec.model_validate(
        {"backend": "bubblewrap", "egress": egress, "forward": (f":{port}=127.0.0.1:{port}",)}
    )
    spec = asked.model_copy(update={"env": environment_for(asked, {})})
    async with (
        Sandbox.start(spec) as sandbox,
        opened_gate(sandbox, spec, _ignore, resolve=resolve),
    ):
        yield sandbox


@asynccontextmanager
async def _service() -> AsyncIterator[int]:
    """A server that sends zeros to who says something; its port. A process of its own, or it would measure itself."""
    script = (
        "import socket, threading\n"
        "l = socket.create_server(('127.0.0.1', 0)); print(l.getsockname()[1], flush=True)\n"
        "z = bytes(1 << 20)\n"
        "def serve(c):\n"
        " with c:\n"
        f"  for _ in range(dict(go={_MB}, one=1).get(c.recv(9).decode(), 0)): c.sendall(z)\n"
        "while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()\n"
    )
    async with await anyio.open_process(["python3", "-c", script]) as process:
        assert process.stdout is not None
        yield int(await process.stdout.receive())
        process.kill()


async def _ignore(_event: Event) -> None:
    """Nothing is recorded."""


if __name__ == "__main__":
    for row in anyio.run(measure):
        print(row)
