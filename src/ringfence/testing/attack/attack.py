"""Defines attacks: their contract, the scene in which they run, and the probes that most of them consist of.

An attack tries to break one promise of the fence. Most attacks are a probe: a Python script (3.9, standard library
only) that runs inside and reports whether the promise held. Some also act on the host, before or after the probe: they
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
    """Whether a promise held, and what was observed."""

    held: bool
    detail: str


@frozen
class Scene:
    """The environment in which attacks run."""

    open_sandbox: OpenSandbox
    workspace: Path
    """The workspace on the host: a scratch directory, which attacks write to."""
    outside: Path
    """A directory beside it to which every user may write; nothing inside may reach it."""
    shared: Sandbox
    """The sandbox for attacks that leave it unchanged. Attacks with `needs_own` open their own."""


CarryOut = Callable[[Scene], Awaitable[Verdict]]


@frozen
class Attack:
    """One attempt to break one promise."""

    name: str
    group: str
    promise: str
    """The fence's promise, in one sentence."""
    carry_out: CarryOut
    is_harmless: bool = True
    """Whether the attack may run without a fence. Other attacks are then skipped, and count as not held."""
    needs_own: bool = False


@frozen
class AttackResult:
    """The result of one attack."""

    name: str
    group: str
    held: bool
    detail: str


def probe(body: str, **facts: Any) -> CarryOut:
    """Return an attack that only runs a script inside the shared sandbox."""

    async def carry_out(scene: Scene) -> Verdict:
        return await run_probe(scene.shared, body, **facts)

    return carry_out


async def run_probe(sandbox: Sandbox, body: str, *, timeout_s: float = 30.0, **facts: Any) -> Verdict:
    """Run a probe inside and return its verdict.

    Args:
        sandbox: The sandbox to run it in.
        body: Script that follows the prelude; the last line it prints is its verdict, by `end(held, detail)`.
        timeout_s: Limit for the whole script.
        facts: Values that the script reads from `FACTS`.
    """
    return verdict_of(await sandbox.run(probe_command(sandbox, body, **facts), timeout_s=timeout_s))


def probe_command(sandbox: Sandbox, body: str, **facts: Any) -> list[str]:
    """Return the command that runs a probe."""
    calls = set(_CALL.findall(body))
    numbers = {
        machine: {name: number for name, number in known.items() if name in calls}
        for machine, known in NUMBERS.items()
    }
    told = {"fence": sandbox.facts.is_fence, "workspace": sandbox.workspace, **facts}
    return ["python3", "-I", "-c", _PRELUDE % repr(numbers) + body, json.dumps(told)]


async def answers(sandbox: Sandbox) -> bool:
    """Return whether commands can run; a command that fails is retried.

    A signal to all processes may also kill a command that is just starting, and a killed process counts against the
    limit until the kernel has removed it.
    """
    with anyio.move_on_after(_ANSWER_S):
        while not (await sandbox.run(["true"], timeout_s=_ANSWER_S)).ok:  # noqa: ASYNC110 -- the kernel does not notify
            await anyio.sleep(_AGAIN_S)
        return True
    return False


def verdict_of(result: ExecResult) -> Verdict:
    """Return the verdict in a probe's output. Without one, the promise counts as not held."""
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
