"""Compiles the rule table into a seccomp filter, a classic BPF program.

A filter tests the machine, then the number, then the rules one after the other. A linear sequence is easy to audit and
costs nothing for most calls: since Linux 5.11 the kernel caches the numbers that are always allowed.

A program is built from its end: each test is put before the instructions that it guards, and jumps over them if it
fails. So every jump is forward, by the length of a list.

The encoding is that of Linux `include/uapi/linux/bpf_common.h`, `filter.h` and `seccomp.h`.
"""

import errno
import platform
import struct
from functools import cache
from itertools import pairwise
from typing import get_args

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.seccomp.numbers import ASSIGNED, AUDIT_ARCH, NUMBERS, Machine
from ringfence.sandbox.seccomp.rules import RULES, Condition, Rule

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_GREATER = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_KILL_PROCESS = 0x8000_0000
_ERRNO = 0x0005_0000
_ALLOW = 0x7FFF_0000

_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`. The low 32 bits of an argument come first, as the machines are little-endian."""

_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter, in the machine's own byte order
_Program = list[tuple[int, int, int, int]]
"""Instructions: code, distance of the jump if true, distance if false, operand."""

_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def this_machine() -> Machine:
    """The machine that this process runs on.

    Raises:
        SandboxStartFailed: There is no filter for it.
    """
    return _machine(platform.machine())


@cache
def filter_bytes(machine: str) -> bytes:
    """The filter for a machine, as an array of `struct sock_filter`.

    A call of another machine (a 32-bit call on a 64-bit kernel) kills the process: its numbers mean other calls, and a
    program that gets an error from each call cannot even exit. The x32 calls of x86_64 and all numbers that are not
    assigned fail with ENOSYS, as on a kernel built without them.

    Raises:
        SandboxStartFailed: There is no filter for it.
    """
    known = _machine(machine)
    program = [
        _load(_ARCH),
        *_unless(_EQUAL, AUDIT_ARCH[known], [_answer(_KILL_PROCESS)]),
        _load(_NUMBER),
        *_unknown_numbers(known),
    ]
    for name in dict.fromkeys(call for rule in RULES for call in rule.calls):
        number = NUMBERS[known].get(name)
        if number is not None:
            program += _if(_EQUAL, number, _call([rule for rule in RULES if name in rule.calls]))
    program.append(_answer(_ALLOW))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


def explain() -> list[tuple[str, str, tuple[str, ...]]]:
    """Group, reason and refused calls of each rule, for display."""
    return [
        *((rule.group, rule.why, rule.calls) for rule in RULES),
        ("other machines", "32-bit programs are killed: their system calls have other numbers", ()),
        ("unknown calls", "what is newer than Linux 6.19 is answered as not implemented, x32 too", ()),
    ]


def _machine(name: str) -> Machine:
    wanted = _ALIASES.get(name, name)
    for machine in get_args(Machine):
        if machine == wanted:
            found: Machine = machine
            return found
    raise SandboxStartFailed(
        f"no system call filter for machine {name!r}, only for {', '.join(get_args(Machine))}; "
        "use a container engine on one of these"
    )


def _load(offset: int) -> tuple[int, int, int, int]:
    return _LOAD_WORD, 0, 0, offset


def _answer(action: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, action


def _if(test: int, operand: int, guarded: _Program) -> _Program:
    return [(test, 0, len(guarded), operand), *guarded]


def _unless(test: int, operand: int, guarded: _Program) -> _Program:
    return [(test, len(guarded), 0, operand), *guarded]


def _unknown_numbers(machine: Machine) -> _Program:
    refuse = [_answer(_ERRNO | errno.ENOSYS)]
    rows = ASSIGNED[machine]
    program = _if(_GREATER, rows[-1][1], refuse)
    for (_, low), (high, _) in pairwise(rows):
        program += _if(_GREATER, low, _unless(_GREATER, high - 1, refuse))
    return program


def _call(rules: list[Rule]) -> _Program:
    """The rules of one call. Always ends with a return, as the accumulator no longer holds the number of the call."""
    program: _Program = []
    for rule in rules:
        guarded = [_answer(_ERRNO | rule.errno)]
        for condition in reversed(rule.conditions):
            guarded = _condition(condition, guarded)
        program += guarded
    return [*program, _answer(_ALLOW)] if all(rule.conditions for rule in rules) else program


def _condition(condition: Condition, guarded: _Program) -> _Program:
    """Load the argument, and skip `guarded` if the condition does not hold."""
    program = guarded
    for value in sorted(condition.values, reverse=True):
        if condition.inverted:
            program = _unless(_EQUAL, value, program)
        elif program is guarded:
            program = _if(_EQUAL, value, program)
        else:  # one of several values: skip the tests of the others
            program = [(_EQUAL, len(program) - len(guarded), 0, value), *program]
    if condition.mask != 0xFFFF_FFFF:
        program = [(_AND, 0, 0, condition.mask), *program]
    return [_load(_ARGUMENTS + 8 * condition.argument), *program]
