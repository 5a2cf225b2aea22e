"""Attacks that try to gain privileges: capabilities, setuid programs, uid 0 inside or outside."""

import anyio

from ringfence.testing.attack.attack import Attack, Scene, Verdict, probe
from ringfence.testing.attack.marker import Marker, all_pids, status_of

_GROUP = "privileges"
_APPEARS_S = 5.0

_STATUS = """
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
wrong = []
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16):
        wrong.append(name + " is " + status[name].strip())
end(not wrong, "; ".join(wrong) or "all five sets are empty")
"""

_IDENTITY = """
ids = set(os.getresuid()) | set(os.getresgid()) | set(os.getgroups())
if 0 in ids:
    end(False, "runs with id 0 among %s" % sorted(ids))
for name, change in (("setuid", os.setuid), ("setgid", os.setgid)):
    if in_child(lambda: 1 if can(change, 0) else 0) != 0:
        end(False, name + "(0) succeeded")
if in_child(lambda: 1 if can(os.setgroups, [0]) else 0) != 0:
    end(False, "setgroups([0]) succeeded")
end(True, "ids %s" % sorted(ids))
"""

_NO_NEW = """
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
if status["NoNewPrivs"].strip() != "1":
    end(False, "programs may raise privileges: NoNewPrivs is " + status["NoNewPrivs"].strip())
raised = []
for top in ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/lib/openssh", "/usr/lib/dbus-1.0"):
    for path, _, files in os.walk(top):
        for name in files:
            file = os.path.join(path, name)
            try:
                if os.stat(file).st_mode & 0o6000:
                    raised.append(file)
            except OSError:
                pass
end(True, "NoNewPrivs is set; %d setuid programs are there without effect" % len(raised))
"""

_SET_ID_FILES = """
os.chdir(FACTS["workspace"])
HERE, CREATE, TEMPORARY, WRITE, PLAIN = -100, 0x40, 0x400000 | os.O_DIRECTORY, 1, 0o100000
start = "ringfence-set-id-%d-" % os.getpid()
made, number = [], 0

def fresh(exists):
    global number
    number += 1
    path = start + str(number)
    if exists:
        with open(path, "w"):
            pass
    return path

def look(how, path):
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & 0o6000:
        made.append("%s left mode %o" % (how, stat.S_IMODE(mode)))

def existing(how, change):
    path = fresh(True)
    descriptor = os.open(path, os.O_WRONLY)
    change(path.encode(), descriptor)
    look(how, path)
    os.close(descriptor)

def new(how, create):
    path = fresh(False)
    descriptor = create(path.encode())[0]
    look(how, path)
    if descriptor > 2:
        look(how + " by its descriptor", descriptor)
        os.close(descriptor)

for bits in (0o4755, 0o2755, 0o6755, 0o4000, 0o2010, 0x100000000 | 0o6755, 0x10000 | 0o6755):
    how = (ctypes.c_uint64 * 3)(CREATE | WRITE, bits & 0o7777, 0)
    existing("chmod", lambda path, _: call("chmod", path, bits))
    existing("fchmod", lambda _, descriptor: call("fchmod", descriptor, bits))
    existing("fchmodat", lambda path, _: call("fchmodat", HERE, path, bits))
    existing("fchmodat2", lambda path, _: call("fchmodat2", HERE, path, bits, 0))
    new("open", lambda path: call("open", path, CREATE | WRITE, bits))
    new("openat", lambda path: call("openat", HERE, path, CREATE | WRITE, bits))
    new("openat2", lambda path: call("openat2", HERE, path, how, 24))
    new("an unnamed file", lambda _: call("openat", HERE, b".", TEMPORARY | WRITE, bits))
    new("creat", lambda path: call("creat", path, bits))
    new("mknod", lambda path: (call("mknod", path, PLAIN | bits, 0)[0], 0))
    new("mknodat", lambda path: (call("mknodat", HERE, path, PLAIN | bits, 0)[0], 0))
for name in os.listdir("."):
    if name.startswith(start):
        os.unlink(name)
end(not made, "; ".join(made[:5]) if made else "%d ways refused" % number)
"""

_FILE_CAPABILITIES = """
path = os.path.join(FACTS["workspace"], "ringfence-capabilities-%d" % os.getpid())
with open(path, "w"):
    pass
net_raw = (1 << 13).to_bytes(4, "little") + bytes(12)
given = []
for revision, user in ((1, b""), (2, b""), (3, b""), (3, bytes(4)), (3, os.getuid().to_bytes(4, "little"))):
    value = (revision << 24 | 1).to_bytes(4, "little") + (net_raw[:8] if revision == 1 else net_raw) + user
    if can(os.setxattr, path, "security.capability", value):
        given.append("revision %d" % revision)
os.unlink(path)
end(not given, "; ".join(given) or "refused")
"""

_FILTER = """
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
end(status["Seccomp"].strip() == "2", "Seccomp is " + status["Seccomp"].strip())
"""


async def _outside(scene: Scene) -> Verdict:
    marker = Marker.new()
    # Every process that has the marker among its arguments is checked, one that only starts the command included.
    words = ["python3", "-I", "-c", "import time; time.sleep(20)", marker.text]
    async with scene.shared.spawn(words, timeout_s=20) as process:
        pids: list[int] = []
        with anyio.move_on_after(_APPEARS_S):
            while not (pids := marker.pids()):  # noqa: ASYNC110 - /proc does not notify
                await anyio.sleep(0.02)
        if not pids:
            await process.kill()
            return Verdict(held=False, detail="the process is not visible on this host; cannot be checked")
        found = [(pid, status_of(pid)) for pid in _in_same_sandbox(pids)]
        await process.kill()
    for pid, status in found:
        ids = [*status.get("Uid", []), *status.get("Gid", []), *status.get("Groups", [])]
        if "0" in ids:
            return Verdict(held=False, detail=f"process {pid} has id 0 on the host: {' '.join(ids)}")
    return Verdict(held=True, detail=f"{len(found)} processes, uid {found[0][1]['Uid'][0]} on the host")


def _in_same_sandbox(pids: list[int]) -> list[int]:
    """Return the processes and their visible ancestors with another root or namespace depth."""
    found = list(pids)
    for pid in all_pids():
        status = status_of(pid)
        # A process in a deeper PID namespace than ours is in a sandbox, whose first process is above it.
        if len(status.get("NSpid", [])) > 1 and pid not in found and _shares_sandbox(pid, pids[0]):
            found.append(pid)
    return found


def _shares_sandbox(pid: int, other: int) -> bool:
    """Return whether `pid` is an ancestor of `other`."""
    current = other
    while current > 1:
        if current == pid:
            return True
        parents = status_of(current).get("PPid", ["0"])
        current = int(parents[0])
    return False


ATTACKS = (
    Attack("capabilities", _GROUP, "All capability sets are empty, the bounding set too.", probe(_STATUS)),
    Attack("root-inside", _GROUP, "Nothing inside has uid or gid 0 or can get it.", probe(_IDENTITY)),
    Attack("root-outside", _GROUP, "No process inside has uid or gid 0 on the host.", _outside),
    Attack("setuid-programs", _GROUP, "Setuid programs raise nothing.", probe(_NO_NEW)),
    Attack(
        "set-id-files",
        _GROUP,
        "No file can be made set-user-ID or set-group-ID, by any call, in the workspace or before it gets a name.",
        probe(_SET_ID_FILES),
    ),
    Attack(
        "file-capabilities",
        _GROUP,
        "No file in the workspace can be given capabilities.",
        probe(_FILE_CAPABILITIES),
    ),
    Attack("filter", _GROUP, "A system call filter is on.", probe(_FILTER)),
)
"""All attacks, in the order of the report."""
