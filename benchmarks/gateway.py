"""The model gateway against going direct: time of a request, time to the first event, memory of many streams, set-up.

python -m benchmarks.gateway
python -m benchmarks.gateway --against PYTHON...

The second way measures only what a request takes, by turns with this interpreter's `ringfence` and with those of the
others named (each that of a clone's own environment): on a machine that is busy with other things, figures of two runs
one after the other say nothing about each other.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

from benchmarks.claim import Row, growth_mb, p50_p99
from ringfence.config.egress import Egress
from ringfence.egress.gate import opened_gate
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import PORT_INSIDE, ModelProvider
from ringfence.journal import Journal
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.protocol.command import SandboxProcess
from ringfence.secret import Credential

_ROUNDS, _REQUESTS, _STREAMS, _SETUPS = 12, 25, 200, 15
_TURNS = 7
_BODY_CHARS = 48_000
"""What the claude CLI sends for a prompt of one line."""

_SERVER = r"""
import asyncio, json, sys, time
EVENTS = [b"event: message_start\ndata: " + json.dumps({"type": "message_start", "message": {"model": "m",
    "usage": {"input_tokens": 12000, "output_tokens": 1}}}).encode() + b"\n\n"]
EVENTS += [b"event: content_block_delta\ndata: " + json.dumps({"type": "content_block_delta", "index": 0,
    "delta": {"type": "text_delta", "text": "some words of an answer "}}).encode() + b"\n\n"] * 40
EVENTS += [b"event: message_delta\ndata: " + json.dumps({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
    "usage": {"output_tokens": 240}}).encode() + b"\n\n", b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(next(l for l in head.lower().split(b"\r\n") if l.startswith(b"content-length:")).split(b":")[1])
            body = await reader.readexactly(length)
            await asyncio.sleep(0.01)  # a model thinks before it speaks
            pause = 0.02 if b'"slow"' in body else 0
            writer.write(HEAD)
            first = b"event: ping\ndata: " + json.dumps({"type": "ping", "at": time.monotonic()}).encode() + b"\n\n"
            for event in [first, *EVENTS]:
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await writer.drain()
                await asyncio.sleep(pause)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

_CLIENT = r"""
import http.client, json, sys, time
body = json.dumps({"model": "m", "max_tokens": 1000, "stream": True,
                   "messages": [{"role": "user", "content": "x" * int(sys.argv[2])}]})
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        began = time.perf_counter()
        connection.request("POST", "/v1/messages", body, {"x-api-key": "dummy-dummy", "anthropic-version": "1"})
        response = connection.getresponse()
        response.readline()
        data, now = response.readline(), time.monotonic()
        first = time.perf_counter() - began
        response.read()
        passing = now - json.loads(data[5:])["at"]
        times.append((passing * 1e3, first * 1e3, (time.perf_counter() - began) * 1e3))
    print(json.dumps(times), flush=True)
"""

_MANY = r"""
import asyncio, json, sys
body = json.dumps({"model": "slow", "max_tokens": 1000, "stream": True,
                   "messages": [{"role": "user", "content": "x" * int(sys.argv[2])}]}).encode()
request = (b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nanthropic-version: 1\r\nConnection: close\r\n"
           b"Content-Length: %d\r\n\r\n" % len(body)) + body
async def one():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    writer.write(request)
    data = await reader.read(-1)
    writer.close()
    return b"message_stop" in data
async def main():
    print(sum(await asyncio.gather(*(one() for _ in range(int(sys.argv[3]))))))
asyncio.run(main())
"""


async def measure() -> list[Row]:
    """In one sandbox, by turns with the same client on the host."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        journal = Journal.create(Path(name, "run"), "bench")
        try:
            async with _server() as port:
                return [
                    *await _speed(port, journal),
                    await _memory(port, journal),
                    await _set_up(port, journal),
                ]
        finally:
            journal.close()


@asynccontextmanager
async def _server() -> AsyncIterator[int]:
    """An API in a process of its own."""
    async with _process(_SERVER) as process:
        assert process.stdout is not None
        yield int((await process.stdout.receive()).decode())


@asynccontextmanager
async def _process(code: str, *arguments: str) -> AsyncIterator[Process]:
    async with await anyio.open_process([sys.executable, "-c", code, *arguments], stderr=None) as process:
        try:
            yield process
        finally:
            process.kill()


def _gateway(port: int) -> Gateway:
    key = Credential("api_key", "sk-ant-the-real-key-of-the-benchmark")
    return Gateway([ModelProvider("anthropic", key, "api_key", f"http://127.0.0.1:{port}")])


@asynccontextmanager
async def _gated(port: int, journal: Journal) -> AsyncIterator[Sandbox]:
    spec = SandboxSpec(backend="bubblewrap", egress=Egress.model_validate({"allow": ["model"]}))
    async with (
        Sandbox.start(spec) as sandbox,
        opened_gate(sandbox, spec, journal.emit, gateway=_gateway(port)),
    ):
        yield sandbox


async def _speed(port: int, journal: Journal) -> list[Row]:
    direct, gated, _ = await _timed(port, journal)
    columns = [[list(column) for column in zip(*times, strict=True)] for times in (direct, gated)]
    passing, first, whole = zip(*columns, strict=True)
    later = statistics.median(first[1]) - statistics.median(first[0])
    return [
        _added("a model request through the gateway, from inside", whole, 2.0),
        _added(
            "first event of a model's stream, from its sending to its arrival inside",
            passing,
            1.0,
            more=f"; from the request on it is {later:.2f} ms later",
        ),
    ]


_Times = list[tuple[float, ...]]
"""Of each request: passing of its first event, time to that, time of the whole; ms."""


async def _timed(port: int, journal: Journal) -> tuple[_Times, _Times, float]:
    """Times going direct, times through the gateway, and CPU time of this process for each of the latter, in ms."""
    direct: list[tuple[float, ...]] = []
    gated: list[tuple[float, ...]] = []
    argv = ["python3", "-c", _CLIENT]
    async with (
        _gated(port, journal) as sandbox,
        _process(_CLIENT, str(port), str(_BODY_CHARS)) as outside,
        sandbox.spawn([*argv, str(PORT_INSIDE), str(_BODY_CHARS)]) as inside,
    ):
        spent = 0.0
        for number in range(_ROUNDS):
            for process, times in ((outside, direct), (inside, gated)):
                began = time.process_time()
                taken = await _round(process)
                if number:  # the first one opens connections and imports
                    times += taken
                    spent += time.process_time() - began if times is gated else 0.0
    return direct, gated, spent / len(gated) * 1e3


async def _round(process: Process | SandboxProcess) -> list[tuple[float, ...]]:
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdin.send(b"%d\n" % _REQUESTS)
    line = b""
    async for piece in process.stdout:
        line += piece
        if line.endswith(b"\n"):
            break
    return [tuple(times) for times in json.loads(line)]


def _added(claim: str, times: Sequence[list[float]], most_ms: float, *, more: str = "") -> Row:
    direct, gated = times
    added = statistics.median(gated) - statistics.median(direct)
    beside = f"direct {p50_p99(direct)}, gateway {p50_p99(gated)}; 48 kB asked, 44 events{more}"
    return Row(claim, f"adds ≤ {most_ms:g} ms at p50", f"adds {added:.2f} ms", beside, added <= most_ms)


async def _memory(port: int, journal: Journal) -> Row:
    async with _gated(port, journal) as sandbox:
        argv = ["python3", "-c", _MANY, str(PORT_INSIDE), str(_BODY_CHARS)]
        await sandbox.run([*argv, "5"])  # imports, connections
        grown_mb = growth_mb()
        result = await sandbox.run([*argv, str(_STREAMS)])
        grown = grown_mb()
        whole = int(result.stdout.strip() or 0)
    kept = grown <= 64 and whole == _STREAMS
    return Row(
        f"{_STREAMS} streams at once through the gateway", "host grows ≤ 64 MB", f"{grown:.0f} MB",
        f"{whole} came whole", kept,
    )  # fmt: skip


async def _set_up(port: int, journal: Journal) -> Row:
    spec = SandboxSpec(backend="bubblewrap", egress=Egress.model_validate({"allow": ["model"]}))
    times = []
    for _ in range(_SETUPS):
        async with Sandbox.start(spec) as sandbox:
            began = time.perf_counter()
            async with opened_gate(sandbox, spec, journal.emit, gateway=_gateway(port)):
                times.append((time.perf_counter() - began) * 1e3)
    added = statistics.median(times)
    return Row(
        "set-up of a run with the gateway", "adds ≤ 10 ms", f"{added:.1f} ms", "port, socket", added <= 10
    )


# --- by turns with other versions


async def _once() -> list[float]:
    """Medians, in ms: added to a request, added to the first event's passing, CPU time of the gateway's process."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        journal = Journal.create(Path(name, "run"), "bench")
        try:
            async with _server() as port:
                direct, gated, spent = await _timed(port, journal)
        finally:
            journal.close()
    (passing, _, whole), (gated_passing, _, gated_whole) = (
        [statistics.median(column) for column in zip(*times, strict=True)] for times in (direct, gated)
    )
    return [gated_whole - whole, gated_passing - passing, spent]


def _compare(interpreters: Sequence[str]) -> None:
    """Measure with each interpreter's `ringfence` by turns; say the medians over all turns."""
    results: dict[str, list[list[float]]] = {each: [] for each in interpreters}
    root = Path(__file__).parent.parent
    for _ in range(_TURNS):
        for interpreter, turns in results.items():
            done = subprocess.run(
                [interpreter, "-m", "benchmarks.gateway", "--once"],
                check=True, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
            )  # fmt: skip
            turns.append(json.loads(done.stdout))
    for interpreter, turns in results.items():
        whole, passing, spent = (statistics.median(column) for column in zip(*turns, strict=True))
        each = " ".join(f"{turn[0]:.2f}/{turn[1]:.2f}" for turn in turns)
        print(
            f"{interpreter}: adds {whole:.2f} ms to a request, {passing:.2f} ms to the first event; "
            f"{spent:.2f} ms of CPU time for each ({each})"
        )


def _main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--once"]:
        print(json.dumps(anyio.run(_once)))
    elif arguments[:1] == ["--against"]:
        _compare([sys.executable, *arguments[1:]])
    else:
        for row in anyio.run(measure):
            print(row)


if __name__ == "__main__":
    _main(sys.argv[1:])
