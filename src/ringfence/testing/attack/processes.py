"""Attacks on other processes, above all on the guest, through which everything passes."""

import sys
from subprocess import DEVNULL

import anyio

from ringfence.errors import SandboxDied
from ringfence.process import start_process
from ringfence.testing.attack.attack import (
    Attack,
    Scene,
    Verdict,
    answers,
    probe,
    probe_command,
    run_probe,
    verdict_of,
)
from ringfence.testing.attack.marker import Marker

_GROUP = "processes"
_ANSWER_S = 10.0
_FORGER_CODE = 7

_PTRACE_GUEST = """
for request in (16, 0x4206):
    refuse("ptrace", request, 1, 0, 0)
    refuse("ptrace", request, os.getppid(), 0, 0)
end(True, "refused")
"""

_PTRACE_SIBLING = """
victim = sleeper()
def attach():
    outcome, code = call("ptrace", 0x4206, victim, 0, 0)
    return 1 if outcome != -1 else 0
outcomes = attach(), in_child(attach)
os.kill(victim, 9)
end(outcomes == (0, 0), "attached to child, sibling: %s" % (outcomes,))
"""

_READ_MEMORY = """
PIDFD_OPEN = 434  # on all machines
secret = ctypes.create_string_buffer(b"ringfence secret")
victim = sleeper()
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
got = ctypes.create_string_buffer(16)
mine, theirs = Vector(ctypes.addressof(got), 16), Vector(ctypes.addressof(secret), 16)
here, there = ctypes.addressof(mine), ctypes.addressof(theirs)
outcomes = [
    call("process_vm_readv", victim, here, 1, there, 1, 0),
    call("process_vm_writev", victim, here, 1, there, 1, 0),
    call("pidfd_getfd", LIBC.syscall(ctypes.c_long(PIDFD_OPEN), ctypes.c_long(victim), 0), 1, 0),
    call("kcmp", os.getpid(), victim, 0, 0, 0),
]
os.kill(victim, 9)
open_ones = [one for one in outcomes if one[0] != -1 or one[1] not in REFUSED]
end(not open_ones, "readv, writev, getfd, kcmp: %s" % (outcomes,))
"""

_PROC_FILES = """
for pid in (1, os.getppid()):
    base = "/proc/%d/" % pid
    tries = [("mem", os.O_RDWR), ("fd/0", os.O_WRONLY), ("fd/1", os.O_WRONLY), ("fd/2", os.O_WRONLY)]
    for name in ("mem", "environ", "maps", "auxv", "syscall", "stack", "root/etc/passwd", "cwd/"):
        tries.append((name, os.O_RDONLY))
    for name, mode in tries:
        try:
            descriptor = os.open(base + name, mode | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT):
                end(False, base + name + ": " + str(error))
            continue
        # The kernel lets some be opened by anyone and gives nothing: what counts is what can be read.
        try:
            data = os.read(descriptor, 64)
        except OSError:
            data = b""
        if data or mode != os.O_RDONLY or name == "cwd/":
            end(False, "opened " + base + name)
    for name in ("fd", "map_files", "task/%d/fd" % pid):
        if can(os.listdir, base + name):
            end(False, "listed " + base + name)
    for name in ("fd/3", "exe", "ns/pid", "cwd", "root"):
        if can(os.readlink, base + name):
            end(False, "read the link " + base + name)
end(True, "refused")
"""

_FORGE = """
# An EXIT frame with code 0 for each channel that this command may have, into all that the guest has open.
record = b"".join(len(text).to_bytes(4, "big") + text for text in
                  (b"code", b"0", b"signal", b"0", b"ended_by", b"exit", b"duration_s", b"0"))
forged = b"".join(len(record).to_bytes(4, "big") + number.to_bytes(4, "big") + bytes((36,)) + record
                  for number in range(1, 200))
opened = 0
for pid in {1, os.getppid()}:
    for number in range(64):
        try:
            descriptor = os.open("/proc/%d/fd/%d" % (pid, number), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            continue
        opened += 1
        can(os.write, descriptor, forged)
sys.stdout.write("%d\\n" % opened)
sys.stdout.flush()
os._exit(7)
"""

_SIGNAL_GUEST = """
for number in range(1, 65):
    if number != signal.SIGCHLD:
        can(os.kill, 1, number)
can(os.kill, 1, signal.SIGSTOP)
end(True, "sent all signals to process 1")
"""

_KILL_ALL = """
can(os.kill, -1, signal.SIGSTOP)
can(os.kill, -1, signal.SIGTERM)
can(os.kill, -1, signal.SIGKILL)
end(True, "sent signals to every process")
"""

_SUPERVISOR = """
straggler = [sys.executable, "-I", "-c", "import time; time.sleep(60)", FACTS["left"] + FACTS["right"]]
subprocess.Popen(straggler, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
parent = os.getppid()
if parent == 1:
    end(True, "commands have no parent but process 1")
os.kill(parent, FACTS["signal"])
time.sleep(30)
"""

_VISIBLE = """
mark = (FACTS["left"] + FACTS["right"]).encode()
seen = []
for name in os.listdir("/proc"):
    try:
        with open("/proc/" + name + "/cmdline", "rb") as file:
            if mark in file.read():
                seen.append(name)
    except OSError:
        pass
end(not seen, "a process of the host is %s" % ("visible: " + seen[0] if seen else "not visible"))
"""


async def _forge(scene: Scene) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        result = await sandbox.run(probe_command(sandbox, _FORGE), timeout_s=10)
        if result.exit_code != _FORGER_CODE or not await answers(sandbox):
            return Verdict(
                held=False, detail=f"a command that ended with 7 counts as ended with {result.exit_code}"
            )
    return Verdict(held=True, detail=f"{result.stdout.strip()} descriptors opened, none of them the stream's")


async def _signal_guest(scene: Scene) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        await run_probe(sandbox, _SIGNAL_GUEST, timeout_s=10)
        held = await answers(sandbox)
    return Verdict(held, "the sandbox answers" if held else "the sandbox does not answer any more")


async def _kill_all(scene: Scene) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        try:
            await run_probe(sandbox, _KILL_ALL, timeout_s=10)
            held = await answers(sandbox)
        except SandboxDied as exc:
            return Verdict(held=True, detail=f"the sandbox is dead: {exc}")
    return Verdict(held, "the sandbox answers" if held else "the sandbox neither answers nor is dead")


async def _supervisor(scene: Scene, number: int) -> Verdict:
    marker = Marker.new()
    async with scene.open_sandbox() as sandbox:
        with anyio.move_on_after(_ANSWER_S) as deadline:
            command = probe_command(sandbox, _SUPERVISOR, **marker.halves, signal=number)
            result = await sandbox.run(command, timeout_s=2)
        if deadline.cancelled_caught:
            return Verdict(held=False, detail="the command did not end at its timeout")
        if '"held": true' in result.stdout:
            return verdict_of(result)
        if not await answers(sandbox):
            return Verdict(held=False, detail="the sandbox does not answer any more")
        straggler = await run_probe(sandbox, _VISIBLE, **marker.halves)
    if not straggler.held:
        return Verdict(held=False, detail="what the command started outlived it")
    return Verdict(held=True, detail=f"the command ended by {result.ended_by} and took its children along")


async def _kill_supervisor(scene: Scene) -> Verdict:
    return await _supervisor(scene, 9)


async def _stop_supervisor(scene: Scene) -> Verdict:
    return await _supervisor(scene, 19)


async def _host_processes(scene: Scene) -> Verdict:
    marker = Marker.new()
    words = [sys.executable, "-I", "-c", "import time; time.sleep(60)", marker.text]
    process = await start_process(words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        return await run_probe(scene.shared, _VISIBLE, **marker.halves)
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()


ATTACKS = (
    Attack(
        "ptrace-guest",
        _GROUP,
        "The guest and the command's supervisor cannot be traced.",
        probe(_PTRACE_GUEST),
        is_harmless=False,
    ),
    Attack("ptrace-sibling", _GROUP, "No process can trace another.", probe(_PTRACE_SIBLING)),
    Attack("process-memory", _GROUP, "No process can read or write another's memory.", probe(_READ_MEMORY)),
    Attack(
        "proc-guest",
        _GROUP,
        "Memory, environment, descriptors and root of the guest cannot be reached by /proc.",
        probe(_PROC_FILES),
    ),
    Attack(
        "forged-results",
        _GROUP,
        "No command can write on the guest's stream, and so forge what another came to.",
        _forge,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "signal-guest",
        _GROUP,
        "No signal from inside ends or stops the guest.",
        _signal_guest,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "kill-everything",
        _GROUP,
        "Killing every process inside leaves a working sandbox or a dead one, nothing between.",
        _kill_all,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "kill-supervisor",
        _GROUP,
        "Killing the command's supervisor frees nothing: the command dies with all it started.",
        _kill_supervisor,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "stop-supervisor",
        _GROUP,
        "Stopping the command's supervisor does not stop its timeout.",
        _stop_supervisor,
        is_harmless=False,
        needs_own=True,
    ),
    Attack("host-processes", _GROUP, "No process of the host is visible.", _host_processes),
)
"""All attacks, in the order of the report."""
