"""Attacks by processes that try to outlive their command or sandbox."""

import time

import anyio

from ringfence.testing.attack.attack import Attack, Scene, Verdict, probe_command, run_probe
from ringfence.testing.attack.marker import Marker

_GROUP = "lifetime"
_TIMEOUT_S = 1.0
_WITHIN_S = 1.0
_POLL_S = 0.02

_STRAGGLER = """
# Twice forked, in a session of its own, without environment, deaf to signals that can be ignored.
mark = FACTS["left"] + FACTS["right"]
script = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(60)"
def detach():
    os.setsid()
    if os.fork():
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.chdir("/")
    os.execve(sys.executable, [sys.executable, "-I", "-c", script, mark], {})
in_child(detach)
deadline = time.monotonic() + 5
while time.monotonic() < deadline:
    for name in os.listdir("/proc"):
        try:
            with open("/proc/" + name + "/cmdline", "rb") as file:
                if mark.encode() in file.read():
                    time.sleep(FACTS["stay"])
                    end(True, "started")
        except OSError:
            pass
end(False, "could not start a straggler")
"""

_LOOK = """
mark = (FACTS["left"] + FACTS["right"]).encode()
found = 0
for name in os.listdir("/proc"):
    try:
        with open("/proc/" + name + "/cmdline", "rb") as file:
            found += mark in file.read()
    except OSError:
        pass
end(not found, "%d stragglers are alive" % found)
"""


async def _past_timeout(scene: Scene) -> Verdict:
    marker = Marker.new()
    async with scene.open_sandbox() as sandbox:
        command = probe_command(sandbox, _STRAGGLER, **marker.halves, stay=60)
        started = time.monotonic()
        result = await sandbox.run(command, timeout_s=_TIMEOUT_S)
        late = time.monotonic() - started - _TIMEOUT_S
        if result.ended_by != "timeout":
            return Verdict(
                held=False, detail=f"the command ended by {result.ended_by}: {result.stderr[-200:]}"
            )
        said = await run_probe(sandbox, _LOOK, **marker.halves)
        on_time = late <= _WITHIN_S
        return Verdict(said.held and on_time, f"{said.detail}, {max(late, 0):.2f} s after the deadline")


async def _past_sandbox(scene: Scene) -> Verdict:
    marker = Marker.new()
    async with scene.open_sandbox() as sandbox:
        said = await run_probe(sandbox, _STRAGGLER, **marker.halves, stay=0)
        if not said.held:
            return said
    with anyio.move_on_after(_WITHIN_S):
        while marker.pids():  # noqa: ASYNC110 - /proc does not notify
            await anyio.sleep(_POLL_S)
    left = marker.pids()
    return Verdict(not left, f"{len(left)} stragglers are alive after the sandbox was closed")


ATTACKS = (
    Attack(
        "straggler-past-timeout",
        _GROUP,
        "What a command detached dies with it, within 1 s of its timeout.",
        _past_timeout,
        needs_own=True,
    ),
    Attack(
        "straggler-past-sandbox",
        _GROUP,
        "Nothing lives on when the sandbox is closed.",
        _past_sandbox,
        needs_own=True,
    ),
)
"""All attacks, in the order of the report."""
