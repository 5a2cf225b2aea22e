"""Speed of an open sandbox: commands, opening, output, many at once, the end of a tree.

python -m benchmarks.sandbox_speed
"""

import asyncio
import resource
import statistics
import subprocess
import time

import anyio

from benchmarks.claim import Row, open_sandbox, p50_p99, percentile
from ringfence.sandbox.bubblewrap.bwrap import find_bwrap

_EXECS = 500
_OPENS = 40
_OUTPUT_MB = 100
_TREE = "(setsid sh -c 'sleep 300 & sleep 301' &) ; (env -i setsid sleep 302 &) ; sleep 303"


async def measure() -> list[Row]:
    """All rows of this file."""
    return [
        await exec_latency(),
        await open_latency(),
        *await output_throughput(),
        await fairness(),
        await idle_memory(),
        await timeout_kill(),
    ]


async def exec_latency() -> Row:
    """`true` in an open sandbox, in turn with the same on the host and a bwrap for each."""
    ours, host, fresh = [], [], []
    bwrap = find_bwrap()
    assert bwrap is not None
    one_shot = [
        bwrap.path,
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "true",
    ]
    async with open_sandbox() as sandbox:
        for number in range(_EXECS):
            began = time.perf_counter()
            await sandbox.run(["true"])
            ours.append((time.perf_counter() - began) * 1e3)
            began = time.perf_counter()
            await (await asyncio.create_subprocess_exec("true")).wait()
            host.append((time.perf_counter() - began) * 1e3)
            if number % 10 == 0:
                began = time.perf_counter()
                await (await asyncio.create_subprocess_exec(*map(str, one_shot))).wait()
                fresh.append((time.perf_counter() - began) * 1e3)
    kept = statistics.median(ours) <= 1.5 and percentile(ours, 0.99) <= 6
    beside = f"host asyncio spawn: {p50_p99(host)}; a bwrap for each: p50 {statistics.median(fresh):.2f} ms"
    return Row("exec of `true` in an open sandbox", "p50 ≤ 1.5 ms, p99 ≤ 6 ms", p50_p99(ours), beside, kept)


async def open_latency() -> Row:
    """From nothing to the first result, in turn with the bare interpreter that the guest runs on."""
    ours, bare = [], []
    for _ in range(_OPENS):
        began = time.perf_counter()
        async with open_sandbox() as sandbox:
            await sandbox.run(["true"])
            ours.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        await (await asyncio.create_subprocess_exec("/usr/bin/python3", "-I", "-S", "-c", "pass")).wait()
        bare.append((time.perf_counter() - began) * 1e3)
    kept = statistics.median(ours) <= 40
    beside = f"`python3 -I -S -c pass` on the host: {p50_p99(bare, digits=1)}"
    return Row("open to first result", "p50 ≤ 40 ms", p50_p99(ours, digits=1), beside, kept)


async def output_throughput() -> list[Row]:
    """100 MB of output, beside the same through a pipe on the host; and what the host's memory grew by."""
    async with open_sandbox() as sandbox:
        await sandbox.run(["head", "-c", "1000000", "/dev/zero"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rates = []
        for _ in range(5):
            began = time.perf_counter()
            result = await sandbox.run(["head", "-c", str(_OUTPUT_MB * 10**6), "/dev/zero"])
            assert result.stdout_total == _OUTPUT_MB * 10**6
            rates.append(_OUTPUT_MB / (time.perf_counter() - began))
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    began = time.perf_counter()
    pipe = subprocess.Popen(["head", "-c", str(_OUTPUT_MB * 10**6), "/dev/zero"], stdout=subprocess.PIPE)
    assert pipe.stdout is not None
    while pipe.stdout.read(256 * 1024):
        pass
    pipe.wait()
    direct = _OUTPUT_MB / (time.perf_counter() - began)
    rate = statistics.median(rates)
    return [
        Row(
            "100 MB of output",
            "≥ 300 MB/s",
            f"median {rate:.0f} MB/s",
            f"a pipe: {direct:.0f} MB/s",
            rate >= 300,
        ),
        Row(
            "host memory growth by it", "≤ 32 MB", f"{grown_mb:.1f} MB", "500 MB went through", grown_mb <= 32
        ),
    ]


async def fairness() -> Row:
    """32 commands at once, each doing a little work: none starves."""
    times: list[float] = []
    async with open_sandbox() as sandbox:

        async def one() -> None:
            began = time.perf_counter()
            await sandbox.run(["sh", "-c", "for i in 1 2 3 4 5; do head -c 100000 /dev/zero; done"])
            times.append((time.perf_counter() - began) * 1e3)

        async with anyio.create_task_group() as tasks:
            for _ in range(32):
                tasks.start_soon(one)
    slowest, median = max(times), statistics.median(times)
    measured = f"slowest {slowest:.0f} ms, median {median:.0f} ms: {slowest / median:.1f}x"
    return Row("32 commands at once", "slowest ≤ 5x median", measured, "-", slowest <= 5 * median)


async def idle_memory() -> Row:
    """Resident memory of the guest when nothing runs, beside the bare interpreter's."""
    async with open_sandbox() as sandbox:
        await sandbox.run(["true"])
        status = (await sandbox.run(["cat", "/proc/1/status"])).stdout
    guest = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
    code = "print([l for l in open('/proc/self/status') if l.startswith('VmRSS')][0].split()[1])"
    done = await anyio.run_process(["/usr/bin/python3", "-I", "-S", "-c", code])
    bare = int(done.stdout) / 1024
    return Row(
        "idle guest, resident", "≤ 12 MB", f"{guest:.1f} MB", f"bare interpreter: {bare:.1f} MB", guest <= 12
    )


async def timeout_kill() -> Row:
    """How long after its deadline a tree with stragglers is gone."""
    late = []
    async with open_sandbox() as sandbox:
        for _ in range(5):
            began = time.perf_counter()
            result = await sandbox.run(["sh", "-c", _TREE], timeout_s=0.3)
            late.append((time.perf_counter() - began - 0.3) * 1e3)
            assert result.ended_by == "timeout"
            left = await sandbox.run(
                ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 30' || true"]
            )
            assert int(left.stdout) <= 1, left.stdout  # the grep's own command line
    kept = max(late) <= 1000
    return Row(
        "timeout kills the tree",
        "≤ 1 s after the deadline",
        p50_p99(late, digits=1),
        "2 stragglers, 4 sleeps",
        kept,
    )


if __name__ == "__main__":
    for row in anyio.run(measure):
        print(row)
