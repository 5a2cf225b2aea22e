"""What an attack is, and what one needs to be carried out.

An attack tries to break one promise of the fence. Most are a probe: a Python script (3.9, standard library
only) that runs inside and says whether the promise held. Some have a part on the host, before or after: they
plant something outside that must not be seen or changed. A promise that cannot be checked counts as not held.
"""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio

from ringfence.frozen import frozen
from ringfence.sandbox import ExecResult, Sandbox
from ringfence.sandbox.seccomp.numbers import NUMBERS

OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]

_CALL = re.compile(r"\b(?:call|refuse)\(\"(\w+)\"")
_TAIL = 300
_ANSWER_S = 30.0
_AGAIN_S = 0.2

_PRELUDE = """
import ctypes, errno, json, os, signal, socket, stat, subprocess, sys, tempfile, time
FACTS = json.loads(sys.argv[1])
NUMBERS = %s.get(os.uname().machine, {})
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EACCES)

def end(held, detail):
    sys.stdout.write("\\n" + json.dumps({"held": bool(held), "detail": str(detail)[:500]}) + "\\n")
    sys.stdout.flush()
    os._exit(0)

def call(name, *arguments):
    if name not in NUMBERS:
        return -1, errno.ENOSYS
    ctypes.set_errno(0)
    words = [one if isinstance(one, (bytes, ctypes.Array)) else ctypes.c_long(one) for one in arguments]
    outcome = LIBC.syscall(ctypes.c_long(NUMBERS[name]), *words)
    return outcome, ctypes.get_errno() if outcome == -1 else 0

def refuse(name, *arguments):
    outcome, code = call(name, *arguments)
    if outcome != -1:
        end(False, name + " succeeded")
    if code not in REFUSED:
        end(False, "%%s reached the kernel, which said %%s" %% (name, errno.errorcode.get(code, code)))

def in_child(function):
    # What function returns, as an integer from 0 to 250; 251 for an exception, 1000 + n for signal n.
    child = os.fork()
    if child == 0:
        try:
            os._exit(function())
        except BaseException:
            os._exit(251)
    status = os.waitpid(child, 0)[1]
    return 1000 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

def sleeper():
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    return child

def can(function, *arguments):
    # Whether something works, as against any OSError.
    try:
        function(*arguments)
        return True
    except (OSError, OverflowError):
        return False

"""


@frozen
class Verdict:
    """Whether a promise held, and what was seen."""

    held: bool
    detail: str


@frozen
class Scene:
    """Where attacks are carried out."""

    open_sandbox: OpenSandbox
    workspace: Path
    """The workspace on the host: a scratch directory, which attacks write to."""
    outside: Path
    """A directory beside it that everybody may write to; nothing inside may reach it."""
    shared: Sandbox
    """For attacks that leave a sandbox as it was. Attacks with `needs_own` open their own."""


CarryOut = Callable[[Scene], Awaitable[Verdict]]


@frozen
class Attack:
    """One attempt at one promise."""

    name: str
    group: str
    promise: str
    """One sentence: what the fence promises."""
    carry_out: CarryOut
    is_harmless: bool = True
    """May be tried where there is no fence. Others are not tried there, and count as not held."""
    needs_own: bool = False


@frozen
class AttackResult:
    """How one attack went."""

    name: str
    group: str
    held: bool
    detail: str


def probe(body: str, **facts: Any) -> CarryOut:
    """An attack that is a script inside the shared sandbox and nothing else."""

    async def carry_out(scene: Scene) -> Verdict:
        return await run_probe(scene.shared, body, **facts)

    return carry_out


async def run_probe(sandbox: Sandbox, body: str, *, timeout_s: float = 30.0, **facts: Any) -> Verdict:
    """Run a probe inside and take its verdict.

    Args:
        sandbox: Where.
        body: Script behind the prelude; its last line printed is its verdict, by `end(held, detail)`.
        timeout_s: For the whole script.
        facts: What it is told, as `FACTS`.
    """
    return verdict_of(await sandbox.run(probe_command(sandbox, body, **facts), timeout_s=timeout_s))


def probe_command(sandbox: Sandbox, body: str, **facts: Any) -> list[str]:
    """The command that runs a probe."""
    calls = set(_CALL.findall(body))
    numbers = {
        machine: {name: number for name, number in known.items() if name in calls}
        for machine, known in NUMBERS.items()
    }
    told = {"fence": sandbox.facts.is_fence, "workspace": sandbox.workspace, **facts}
    return ["python3", "-I", "-c", _PRELUDE % repr(numbers) + body, json.dumps(told)]


async def answers(sandbox: Sandbox) -> bool:
    """Whether commands can be run; one that fails is tried again.

    A signal to all may take along a command that is just being started, and what was killed counts as a process until
    the kernel has done away with it.
    """
    with anyio.move_on_after(_ANSWER_S):
        while not (await sandbox.run(["true"], timeout_s=_ANSWER_S)).ok:  # noqa: ASYNC110 -- the kernel tells nobody
            await anyio.sleep(_AGAIN_S)
        return True
    return False


def verdict_of(result: ExecResult) -> Verdict:
    """The verdict in a probe's output; no verdict is no promise held."""
    for line in reversed(result.stdout.splitlines()):
        try:
            said = json.loads(line)
            return Verdict(bool(said["held"]), str(said["detail"]))
        except (ValueError, KeyError, TypeError):
            continue
    words = (result.stderr.strip() or result.stdout.strip())[-_TAIL:]
    return Verdict(
        held=False,
        detail=f"no verdict: ended by {result.ended_by} with code {result.exit_code}: {words}",
    )
