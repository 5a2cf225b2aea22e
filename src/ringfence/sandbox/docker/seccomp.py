"""The system call filter that an engine puts on a container, as JSON in Docker's format.

It is the engine's own default (an allow list; Docker 20.10's, for a container without capabilities) without what
our own table refuses (`sandbox.seccomp.rules`); docs/explanation/containers.md lists what that takes away.
Only the machine's own system calls are known: 32-bit and x32 programs are killed.
"""

import errno
import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.seccomp.numbers import NUMBERS, Machine
from ringfence.sandbox.seccomp.rules import RULES

_MACHINES: Final[dict[str, tuple[Machine, str]]] = {
    "x86_64": ("x86_64", "SCMP_ARCH_X86_64"),
    "amd64": ("x86_64", "SCMP_ARCH_X86_64"),
    "aarch64": ("aarch64", "SCMP_ARCH_AARCH64"),
    "arm64": ("aarch64", "SCMP_ARCH_AARCH64"),
}
_WITHHELD = frozenset({
    "afs_syscall", "cachestat", "fchmodat2", "file_getattr", "file_setattr", "futex_requeue", "futex_wait",
    "futex_wake", "get_mempolicy", "getpmsg", "getxattrat", "listmount", "listxattrat", "lsm_get_self_attr",
    "lsm_list_modules", "map_shadow_stack", "mbind", "mseal", "name_to_handle_at", "pkey_alloc", "pkey_free",
    "pkey_mprotect", "putpmsg", "removexattrat", "security", "set_mempolicy", "set_mempolicy_home_node",
    "setxattrat", "statmount", "tuxcall", "uprobe", "uretprobe", "ustat", "vserver",
})  # fmt: skip
"""Not in the engine's default, nor refused by our table: answered as not implemented, libraries have a way round."""

Argument = tuple[int, int, int]
"""(index, mask, value): holds where the argument's bits under the mask are the value."""

_FULL = 0xFFFF_FFFF
_TYPE_OF_FILE = 0xF000
_SET_ID = 0o6000
_CREATES = 0x40_0040  # O_CREAT and O_TMPFILE's own bit
_WHITEOUT = 0x4  # RENAME_WHITEOUT
_PLAIN_FILES = (0, 0x1000, 0x8000, 0xC000)
_NEW_NAMESPACES = 0x7E02_0000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _RAW, _SEQPACKET = 1, 2, 3, 5
_SOCKET_TYPE = 0xF
_PROTOCOLS = (0, 1, 6, 17, 58)
_TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423)
_PERSONALITIES = (0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)


def _all_but(index: int, values: Iterable[int], *, bits: int = 32) -> Iterator[tuple[Argument, ...]]:
    """Everything but these values, as prefixes: a filter can only compare for equality under a mask."""

    def cover(prefix: int, length: int, inside: list[int]) -> Iterator[tuple[int, int]]:
        if not inside:
            yield prefix, length
        elif length < bits:
            shift = bits - length - 1
            for bit in (0, 1):
                longer = prefix | bit << shift
                yield from cover(longer, length + 1, [one for one in inside if one >> shift & 1 == bit])

    for prefix, length in cover(0, 0, list(values)):
        yield ((index, _FULL << (bits - length) & _FULL, prefix),)


def _sockets() -> Iterator[tuple[Argument, ...]]:
    for kind in (_STREAM, _DATAGRAM, _SEQPACKET):
        yield (0, _FULL, _UNIX), (1, _SOCKET_TYPE, kind)
    for family in (_INET, _INET6):
        for kind in (_STREAM, _DATAGRAM):
            for protocol in _PROTOCOLS:
                yield (0, _FULL, family), (1, _SOCKET_TYPE, kind), (2, _FULL, protocol)
    for kind in (_DATAGRAM, _RAW):
        yield (0, _FULL, _NETLINK), (1, _SOCKET_TYPE, kind), (2, _FULL, 0)


def _nodes(index: int) -> tuple[tuple[Argument, ...], ...]:
    """Making a plain file, fifo or socket without set-id bits; `index` is that of the mode."""
    return tuple(((index, _TYPE_OF_FILE | _SET_ID, kind),) for kind in _PLAIN_FILES)


def _opens(flags: int) -> tuple[tuple[Argument, ...], ...]:
    """Opening what is there, or creating without set-id bits; the mode is the argument behind the flags."""
    return ((flags, _CREATES, 0),), ((flags + 1, _SET_ID, 0),)


ALLOWED_WHERE: Final[dict[str, tuple[tuple[Argument, ...], ...]]] = {
    "clone": (((0, _NEW_NAMESPACES, 0),),),
    "personality": tuple(((0, _FULL, value),) for value in _PERSONALITIES),
    "mknod": _nodes(1),
    "mknodat": _nodes(2),
    **dict.fromkeys(("chmod", "fchmod", "creat", "mkdir"), (((1, _SET_ID, 0),),)),
    **dict.fromkeys(("fchmodat", "mkdirat"), (((2, _SET_ID, 0),),)),
    "renameat2": (((4, _WHITEOUT, 0),),),
    "open": _opens(1),
    "openat": _opens(2),
    "socket": tuple(_sockets()),
    "socketpair": tuple(_sockets()),
    "ioctl": tuple(_all_but(1, _TERMINAL_REQUESTS)),
}
"""Calls that are allowed where all of one row's arguments hold. All others of the allow list always are."""


def _refused(code: int) -> frozenset[str]:
    return frozenset(
        call for rule in RULES if rule.errno == code and not rule.conditions for call in rule.calls
    )


def allowed_calls(machine: Machine) -> frozenset[str]:
    """Calls that are allowed whatever their arguments."""
    refused = {call for rule in RULES for call in rule.calls}
    return frozenset(NUMBERS[machine]) - refused - _WITHHELD - frozenset(ALLOWED_WHERE)


def profile(architecture: str) -> dict[str, Any]:
    """The filter for an engine's machine.

    Raises:
        SandboxStartFailed: We have none for it.
    """
    if architecture not in _MACHINES:
        raise SandboxStartFailed(
            f"no system call filter for machine {architecture!r}, only for {', '.join(sorted(_MACHINES))}; "
            "use an engine on one of these"
        )
    machine, name = _MACHINES[architecture]
    absent = (_WITHHELD | _refused(errno.ENOSYS)) & frozenset(NUMBERS[machine])
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": [name],
        "syscalls": [
            {"names": sorted(allowed_calls(machine)), "action": "SCMP_ACT_ALLOW"},
            {"names": sorted(absent), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            *(
                {"names": [call], "action": "SCMP_ACT_ALLOW", "args": [_written(one) for one in row]}
                for call, rows in ALLOWED_WHERE.items()
                if call in NUMBERS[machine]
                for row in rows
            ),
        ],
    }


def _written(argument: Argument) -> dict[str, Any]:
    index, mask, value = argument
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


@cache
def profile_json(architecture: str) -> str:
    """The filter as text, as engines take it. Raises as `profile`."""
    return json.dumps(profile(architecture), separators=(",", ":"), sort_keys=True)
