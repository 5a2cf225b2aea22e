"""Lists the system calls that a fence refuses, and why.

The filter is compiled from this table, and `config policy show` prints it. Other calls are allowed if their number is
assigned (see `numbers`), else they are "not implemented". A refused call fails with EPERM, unless callers need another
error in order to fall back to another call; then the row names that error.
"""

import errno

from ringfence.frozen import frozen

_NEW_NAMESPACES = 0x7E02_0000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; clone has no bit for NEWTIME
_TYPE_OF_FILE, _CHARACTER_DEVICE, _BLOCK_DEVICE = 0xF000, 0x2000, 0x6000
_WHITEOUT = 0x4  # RENAME_WHITEOUT
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_SOCKET_TYPE = 0xF  # the rest are SOCK_CLOEXEC and SOCK_NONBLOCK
_STREAM, _DATAGRAM, _SEQPACKET = 1, 2, 5
_ROUTE = 0
_ANY_TCP_UDP_ICMP = frozenset({0, 1, 6, 17, 58})
_SOCKET_CALLS = ("socket", "socketpair")
_SET_ID = 0o6000
_CREATES = 0x40_0040
"""O_CREAT and the bit that only O_TMPFILE has; without either, the kernel ignores the mode of an open."""
_SET_ID_WHY = (
    "a set-user-ID or set-group-ID file in the workspace lets any other user of the machine act as its owner; "
    "as systemd's RestrictSUIDSGID=, for directories too, as a filter cannot tell them from files"
)


@frozen
class Condition:
    """A test of the low 32 bits of one argument; the kernel ignores the others in the arguments tested here."""

    argument: int
    values: frozenset[int]
    mask: int = 0xFFFF_FFFF
    inverted: bool = False
    """True: the condition holds if the value is not one of `values`."""

    def holds(self, arguments: tuple[int, ...]) -> bool:
        """Whether the condition holds for a call with these arguments."""
        return (arguments[self.argument] & self.mask in self.values) != self.inverted


@frozen
class Rule:
    """Calls that are refused if all conditions hold."""

    group: str
    why: str
    calls: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    errno: int = errno.EPERM


def _calls(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _is(argument: int, *values: int, mask: int = 0xFFFF_FFFF) -> Condition:
    return Condition(argument, frozenset(values), mask)


def _is_not(argument: int, *values: int, mask: int = 0xFFFF_FFFF) -> Condition:
    return Condition(argument, frozenset(values), mask, inverted=True)


def _has_any(argument: int, bits: int) -> Condition:
    return _is_not(argument, 0, mask=bits)


RULES: tuple[Rule, ...] = (
    # First, as the filter tests in this order and few calls are as frequent as an open.
    Rule("set-id files", _SET_ID_WHY, ("openat",), (_has_any(2, _CREATES), _has_any(3, _SET_ID))),
    Rule("set-id files", _SET_ID_WHY, ("open",), (_has_any(1, _CREATES), _has_any(2, _SET_ID))),
    Rule(
        "set-id files",
        _SET_ID_WHY,
        ("chmod", "fchmod", "creat", "mkdir", "mknod"),
        (_has_any(1, _SET_ID),),
    ),
    Rule(
        "set-id files",
        _SET_ID_WHY,
        ("fchmodat", "fchmodat2", "mkdirat", "mknodat"),
        (_has_any(2, _SET_ID),),
    ),
    Rule(
        "openat2",
        "its flags and mode lie in memory, where a filter cannot look; libraries fall back to openat",
        ("openat2",),
        errno=errno.ENOSYS,
    ),
    Rule(
        "mount",
        "changing mounts could uncover what the fence hides, or make read-only things writable",
        _calls(
            "mount umount2 pivot_root move_mount fsopen fsmount fsconfig fspick open_tree open_tree_attr "
            "mount_setattr chroot"
        ),
    ),
    Rule(
        "namespaces",
        "a namespace of its own gives a process capabilities, and so most of the kernel's attack surface",
        ("unshare", "setns", "listns"),
    ),
    Rule(
        "namespaces",
        "clone with a CLONE_NEW flag: as unshare",
        ("clone",),
        (_is_not(0, 0, mask=_NEW_NAMESPACES),),
    ),
    Rule(
        "clone3",
        "its flags lie in memory, where a filter cannot look; libraries fall back to clone",
        ("clone3",),
        errno=errno.ENOSYS,
    ),
    Rule(
        "processes",
        "reading or steering other processes would reach the guest, through which everything passes",
        _calls(
            "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd move_pages migrate_pages"
        ),
    ),
    Rule(
        "io_uring",
        "does file and network calls that no filter sees; libraries fall back to epoll",
        ("io_uring_setup", "io_uring_enter", "io_uring_register"),
        errno=errno.ENOSYS,
    ),
    Rule(
        "kernel programs",
        "loads code into the kernel or measures it; a frequent source of privilege escalation",
        ("bpf", "perf_event_open", "userfaultfd", "fanotify_init", "lookup_dcookie"),
    ),
    Rule("keyrings", "kernel keyrings are not namespaced per sandbox", ("keyctl", "add_key", "request_key")),
    Rule("file handles", "opens files by number, past every path-based limit", ("open_by_handle_at",)),
    Rule(
        "modules and kernels",
        "loads or unloads kernel code",
        _calls(
            "init_module finit_module delete_module create_module query_module get_kernel_syms kexec_load "
            "kexec_file_load"
        ),
    ),
    Rule(
        "administration",
        "administers the machine: quotas, swap, accounting, power, names, log, security labels",
        _calls(
            "quotactl quotactl_fd swapon swapoff reboot acct syslog vhangup nfsservctl sethostname setdomainname "
            "lsm_set_self_attr sysfs uselib _sysctl"
        ),
    ),
    Rule(
        "clock",
        "the machine's clock is everybody's",
        ("settimeofday", "clock_settime", "adjtimex", "clock_adjtime"),
    ),
    Rule(
        "hardware", "reaches ports and descriptor tables of the processor", ("iopl", "ioperm", "modify_ldt")
    ),
    Rule(
        "personality",
        "only the plain ones (as Docker allows): others switch off address randomisation or map page 0",
        ("personality",),
        (_is_not(0, 0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF),),
    ),
    Rule(
        "devices",
        "a device node opens the hardware behind it",
        ("mknod",),
        (_is(1, _CHARACTER_DEVICE, _BLOCK_DEVICE, mask=_TYPE_OF_FILE),),
    ),
    Rule(
        "devices",
        "a device node opens the hardware behind it",
        ("mknodat",),
        (_is(2, _CHARACTER_DEVICE, _BLOCK_DEVICE, mask=_TYPE_OF_FILE),),
    ),
    Rule(
        "devices",
        "a rename that leaves a whiteout makes a device node, for which no capability is asked",
        ("renameat2",),
        (_has_any(4, _WHITEOUT),),
    ),
    Rule(
        "sockets",
        "families other than unix, IPv4, IPv6 and netlink: AF_VSOCK leaves the machine, AF_PACKET and AF_ALG "
        "and the rare ones are attack surface",
        _SOCKET_CALLS,
        (_is_not(0, _UNIX, _INET, _INET6, _NETLINK),),
    ),
    Rule(
        "sockets",
        "netlink other than NETLINK_ROUTE speaks with auditing, firewalls and drivers",
        _SOCKET_CALLS,
        (_is(0, _NETLINK), _is_not(2, _ROUTE)),
    ),
    Rule(
        "sockets",
        "raw and packet sockets forge traffic",
        _SOCKET_CALLS,
        (_is(0, _UNIX), _is_not(1, _STREAM, _DATAGRAM, _SEQPACKET, mask=_SOCKET_TYPE)),
    ),
    Rule(
        "sockets",
        "raw and packet sockets forge traffic",
        _SOCKET_CALLS,
        (_is(0, _INET, _INET6), _is_not(1, _STREAM, _DATAGRAM, mask=_SOCKET_TYPE)),
    ),
    Rule(
        "sockets",
        "protocols other than TCP, UDP and ping (SCTP, MPTCP, ...) load seldom-used kernel modules on demand",
        _SOCKET_CALLS,
        (_is(0, _INET, _INET6), Condition(2, _ANY_TCP_UDP_ICMP, inverted=True)),
        errno=errno.EPROTONOSUPPORT,
    ),
    Rule(
        "terminal",
        "TIOCSTI and TIOCLINUX type into the user's terminal; TIOCSETD loads line disciplines",
        ("ioctl",),
        (_is(1, 0x5412, 0x541C, 0x5423),),
    ),
)
"""All refusals. The first rule whose conditions hold decides."""
