"""Attacks on files that configure or read the kernel: /proc, /sys, /dev, control groups."""

from ringfence.testing.attack.attack import Attack, probe

_GROUP = "kernel files"

_PROC_SYS = """
opened, tried = [], 0
for top, _, files in os.walk("/proc/sys"):
    for name in files:
        path = os.path.join(top, name)
        tried += 1
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            opened.append(path)
        except OSError:
            pass
told = "%d of %d open for writing" % (len(opened), tried)
end(not opened, told + ": " + ", ".join(opened[:3]) if opened else told)
"""

_NOT_WRITABLE = """
opened = []
for path in FACTS["paths"]:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        opened.append(path)
    except OSError:
        pass
end(not opened, "open for writing: " + ", ".join(opened) if opened else "none opens for writing")
"""

_NOT_READABLE = """
opened = []
for path in FACTS["paths"]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        # Reading a port acts on the machine: that it opens is enough.
        if path.startswith("/dev/") or os.read(descriptor, 16):
            opened.append(path)
    except OSError:
        pass
end(not opened, "readable: " + ", ".join(opened) if opened else "none can be read")
"""

_SYS = """
writable, deadline = [], time.monotonic() + 10
for top, folders, files in os.walk("/sys"):
    # Asked, not opened: some files of /sys act when opened. /sys of no network namespace is never there.
    for name in files:
        path = os.path.join(top, name)
        if os.access(path, os.W_OK):
            writable.append(path)
    if writable or time.monotonic() > deadline:
        break
end(not writable, "writable: " + writable[0] if writable else "nothing is writable")
"""

_CGROUPS = """
found = []
for line in open("/proc/self/mountinfo"):
    fields, _, rest = line.partition(" - ")
    if rest.split()[0] in ("cgroup", "cgroup2"):
        place = fields.split()[4]
        for name in ("release_agent", "notify_on_release", "cgroup.procs", "tasks", "cgroup.subtree_control"):
            if os.access(os.path.join(place, name), os.W_OK):
                found.append(os.path.join(place, name))
        if can(os.mkdir, os.path.join(place, "ringfence-probe")):
            os.rmdir(os.path.join(place, "ringfence-probe"))
            found.append(place)
end(not found, "writable: " + found[0] if found else "no control group can be changed")
"""

_DEVICES = """
usual = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
strange = []
for top, folders, files in os.walk("/dev"):
    if top.startswith(("/dev/pts", "/dev/shm", "/dev/mqueue")):
        folders.clear()
        continue
    for name in files:
        mode = os.lstat(os.path.join(top, name)).st_mode
        if (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)) and (top != "/dev" or name not in usual):
            strange.append(os.path.join(top, name))
end(not strange, "devices: " + ", ".join(sorted(strange)[:8]) if strange else "only the usual ones")
"""

_NODES = """
made = []
for place in (tempfile.gettempdir(), FACTS["workspace"], os.path.expanduser("~"), "/dev", "/dev/shm"):
    for kind, number in ((stat.S_IFBLK, os.makedev(8, 0)), (stat.S_IFBLK, os.makedev(254, 0)),
                         (stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFCHR, os.makedev(10, 200))):
        path = os.path.join(place, "ringfence-node-%d" % os.getpid())
        if can(os.mknod, path, kind | 0o600, number):
            os.unlink(path)
            made.append(path)
        elif kind == stat.S_IFCHR and can(open, path, "w"):
            call("renameat2", -100, path.encode(), -100, path.encode() + b".old", 4)  # RENAME_WHITEOUT
            if os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode):
                made.append(path)
            for left in (path, path + ".old"):
                can(os.unlink, left)
end(not made, "made a device: " + made[0] if made else "refused")
"""

_CORE = [
    *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug"),
    *("/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/overcommit_memory", "/sys/kernel/uevent_helper"),
]
_TRIGGERS = [
    *("/proc/sysrq-trigger", "/proc/timer_stats", "/proc/latency_stats", "/proc/sched_debug", "/proc/mtrr"),
    *("/proc/acpi/wakeup", "/proc/irq/default_smp_affinity", "/proc/scsi/scsi", "/proc/bus/pci/00/00.0"),
]
_SECRETS = [
    *("/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/dev/port", "/proc/keys", "/proc/timer_list"),
    *("/sys/kernel/debug/sched/features", "/sys/firmware/efi/efivars", "/proc/slabinfo", "/proc/vmallocinfo"),
]

ATTACKS = (
    Attack("proc-sys", _GROUP, "No file under /proc/sys opens for writing.", probe(_PROC_SYS)),
    Attack(
        "core-pattern",
        _GROUP,
        "No file that names a program for the kernel to run opens for writing.",
        probe(_NOT_WRITABLE, paths=_CORE),
    ),
    Attack(
        "proc-triggers",
        _GROUP,
        "No file of /proc that acts on the machine opens for writing.",
        probe(_NOT_WRITABLE, paths=_TRIGGERS),
    ),
    Attack(
        "kernel-memory",
        _GROUP,
        "The kernel's memory, log and keys cannot be read.",
        probe(_NOT_READABLE, paths=_SECRETS),
    ),
    Attack("sys", _GROUP, "Nothing under /sys can be written.", probe(_SYS)),
    Attack(
        "control-groups", _GROUP, "No control group can be changed, no release agent set.", probe(_CGROUPS)
    ),
    Attack("devices", _GROUP, "No device is there beyond the usual harmless ones.", probe(_DEVICES)),
    Attack("device-nodes", _GROUP, "No device node can be made.", probe(_NODES)),
)
"""All attacks, in the order of the report."""
