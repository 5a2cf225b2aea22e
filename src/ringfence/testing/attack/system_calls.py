"""Attacks by system calls that must be refused before the kernel looks at their arguments.

The arguments are invalid on purpose: if a call is not refused, the kernel answers EFAULT, EINVAL or ENOENT and nothing
happens, so that these attacks are harmless anywhere.
"""

from ringfence.testing.attack.attack import Attack, probe

_GROUP = "system calls"


def _refused(name: str, promise: str, *calls: str) -> Attack:
    lines = [f"refuse({call})" for call in calls]
    return Attack(name, _GROUP, promise, probe("\n".join([*lines, 'end(True, "refused")'])))


_NAMESPACES = """
refuse("unshare", 0x10000000)
refuse("unshare", 0x10020000)
end(True, "refused")
"""

_CLONE = """
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    outcome, code = call("clone", 0x10000000 | flag | 17, 0, 0, 0, 0)
    if outcome == 0:
        os._exit(0)
    if outcome > 0:
        os.waitpid(outcome, 0)
        end(False, "clone made a child with flags %#x" % (0x10000000 | flag))
    if code not in REFUSED:
        end(False, "clone reached the kernel, which said %s" % errno.errorcode.get(code, code))
refuse("clone3", 0, 0)
end(True, "refused")
"""

_PERSONALITY = """
def change():
    outcome, code = call("personality", 0x0040000)
    return 1 if outcome != -1 else 0
outcome = in_child(change)
end(outcome == 0, "randomisation switched off" if outcome else "refused")
"""

_FOREIGN = """
import mmap
if os.uname().machine != "x86_64":
    end(True, "this machine has no 32-bit gate")
def gate():
    code = b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"  # mov eax, 20 (getpid); int 0x80; ret
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return 1 if function() > 0 else 0
outcome = in_child(gate)
if outcome == 1:
    end(False, "a 32-bit system call was answered")
def x32():
    return 1 if LIBC.syscall(ctypes.c_long(0x40000000 | 39)) > 0 else 0
if in_child(x32) == 1:
    end(False, "an x32 system call was answered")
end(True, "32-bit call: %s" % ("killed by signal %d" % (outcome - 1000) if outcome > 1000 else "not there"))
"""

_KEYRING = """
refuse("keyctl", 0, -3, 0)
refuse("add_key", b"user", b"ringfence", 0, -1, -3)
refuse("request_key", b"user", b"ringfence", 0, 0)
end(True, "refused")
"""

_TIOCSTI = """
import fcntl, pty, termios
master, slave = os.openpty()
def inject():
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for request in (0x5412, 0x541C):
        try:
            fcntl.ioctl(slave, request, b"x")
            return 1
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EIO):
                return 2
    # The kernel looks at the low 32 bits only; a filter must do so too.
    LIBC.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
    return 1 if LIBC.ioctl(slave, 0x100005412, b"x") == 0 else 0
outcome = in_child(inject)
end(outcome == 0, {0: "refused", 1: "typed into a terminal", 2: "reached the kernel"}.get(outcome, outcome))
"""

_CHROOT = """
def enter():
    return 1 if can(os.chroot, "/") else 0
outcome = in_child(enter)
end(outcome == 0, "chroot succeeded" if outcome else "refused")
"""

ATTACKS = (
    _refused(
        "mount",
        "The kernel's mount code cannot be reached.",
        '"mount", b"none", b"/nonexistent", b"tmpfs", 0, 0',
        '"move_mount", -1, b"", -1, b"", 0',
        '"open_tree", -1, b"/nonexistent", 0',
        '"fsopen", b"nosuchfs", 0',
        '"fsmount", -1, 0, 0',
        '"fspick", -1, b"/nonexistent", 0',
        '"mount_setattr", -1, b"/nonexistent", 0, 0, 0',
        '"pivot_root", b"/nonexistent", b"/nonexistent"',
    ),
    _refused("umount", "Nothing that hides a file can be unmounted.", '"umount2", b"/nonexistent", 2'),
    Attack("unshare", _GROUP, "No new user namespace can be made by unshare.", probe(_NAMESPACES)),
    Attack("clone", _GROUP, "No new namespace can be made by clone or clone3.", probe(_CLONE)),
    _refused("setns", "No namespace can be entered.", '"setns", -1, 0'),
    Attack("chroot", _GROUP, "The root directory cannot be changed.", probe(_CHROOT)),
    _refused(
        "io_uring",
        "No ring can be set up past which calls go unfiltered.",
        '"io_uring_setup", 1, 0',
        '"io_uring_enter", -1, 0, 0, 0, 0, 0',
        '"io_uring_register", -1, 0, 0, 0',
    ),
    _refused("bpf", "No program can be loaded into the kernel.", '"bpf", 0, 0, 0'),
    _refused(
        "perf", "The kernel's performance events cannot be reached.", '"perf_event_open", 0, 0, -1, -1, 0'
    ),
    Attack("keyring", _GROUP, "The kernel's keyrings cannot be reached.", probe(_KEYRING)),
    _refused(
        "userfaultfd", "The kernel cannot be made to wait for a process's page faults.", '"userfaultfd", 1'
    ),
    _refused("file-handles", "No file can be opened by its number.", '"open_by_handle_at", -1, 0, 0'),
    _refused(
        "modules",
        "No kernel module and no other kernel can be loaded.",
        '"init_module", 0, 0, 0',
        '"finit_module", -1, 0, 0',
        '"delete_module", 0, 0',
        '"kexec_load", 0, 0, 0, -1',
        '"kexec_file_load", -1, -1, 0, 0, -1',
    ),
    _refused(
        "administration",
        "The machine cannot be administered: power, swap, accounting, quotas, names, log.",
        '"reboot", 0, 0, 0, 0',
        '"swapon", b"/nonexistent", 0',
        '"swapoff", b"/nonexistent"',
        '"acct", b"/nonexistent"',
        '"quotactl", -1, 0, 0, 0',
        '"sethostname", 0, -1',
        '"setdomainname", 0, -1',
        '"syslog", 3, 0, -1',
        '"fanotify_init", -1, 0',
    ),
    _refused(
        "clock",
        "The machine's clock cannot be set.",
        '"settimeofday", 1, 0',
        '"clock_settime", 0, 1',
        '"adjtimex", 1',
        '"clock_adjtime", 0, 1',
    ),
    Attack("personality", _GROUP, "Address randomisation cannot be switched off.", probe(_PERSONALITY)),
    Attack("foreign-calls", _GROUP, "No call passes the filter in another numbering.", probe(_FOREIGN)),
    Attack("terminal-injection", _GROUP, "Nothing can be typed into a terminal.", probe(_TIOCSTI)),
)
"""All attacks, in the order of the report."""
