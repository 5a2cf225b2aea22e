"""Compiles the rule table into a filter.

Order of a filter: machine, number, then the rules, one after the other. A linear walk is easy to audit and
costs nothing for most calls: since Linux 5.11 the kernel remembers numbers which are always allowed.
"""

import errno
import platform
from collections.abc import Iterator
from functools import cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import get_args

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.seccomp.bpf import (
    AND,
    ARCH_OFFSET,
    JUMP_EQUAL,
    JUMP_GREATER,
    LOAD_WORD,
    NUMBER_OFFSET,
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    RETURN,
    Instruction,
    Label,
    argument_offset,
    assemble,
)
from ringfence.sandbox.seccomp.numbers import AUDIT_ARCH, NUMBERS, Machine
from ringfence.sandbox.seccomp.rules import RULES, Condition, Rule

_Program = Iterator[Instruction | Label]
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def this_machine() -> Machine:
    """The machine we run on.

    Raises:
        SandboxStartFailed: We have no filter for it.
    """
    return _machine(platform.machine())


@cache
def filter_bytes(machine: str) -> bytes:
    """The filter for a machine, as an array of `struct sock_filter`.

    Foreign machines (32-bit calls on a 64-bit kernel) kill the process: their numbers mean other calls, and a
    program which only ever sees errors does not even manage to exit. The x32 calls of x86_64 and all numbers
    that are not assigned are "not implemented", as on a kernel built without them.

    Raises:
        SandboxStartFailed: We have no filter for it.
    """
    return assemble(list(_program(_machine(machine))))


def explain() -> list[tuple[str, str, tuple[str, ...]]]:
    """Group, reason and refused calls of each rule, for people."""
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
        "use the docker backend there"
    )


def _program(machine: Machine) -> _Program:
    yield Instruction(LOAD_WORD, ARCH_OFFSET)
    yield from _answer_if(JUMP_EQUAL, AUDIT_ARCH[machine], RET_KILL_PROCESS, "machine", inverted=True)
    yield Instruction(LOAD_WORD, NUMBER_OFFSET)
    yield from _unknown_numbers(machine)
    for name in dict.fromkeys(call for rule in RULES for call in rule.calls):
        number = NUMBERS[machine].get(name)
        if number is not None:
            yield from _call(name, number, [rule for rule in RULES if name in rule.calls])
    yield Instruction(RETURN, RET_ALLOW)


def _answer_if(code: int, k: int, answer: int, name: str, *, inverted: bool = False) -> _Program:
    after = Label(f"after {name}")
    yield Instruction(code, k, after, None) if inverted else Instruction(code, k, None, after)
    yield Instruction(RETURN, answer)
    yield after


def _unknown_numbers(machine: Machine) -> _Program:
    ranges = _ranges(sorted(NUMBERS[machine].values()))
    last = ranges[-1][1]
    yield from _answer_if(JUMP_GREATER, last, RET_ERRNO | errno.ENOSYS, "last")
    for (_, low), (high, _) in pairwise(ranges):
        after = Label(f"after gap {low}")
        yield Instruction(JUMP_GREATER, low, None, after)
        yield Instruction(JUMP_GREATER, high - 1, after, None)
        yield Instruction(RETURN, RET_ERRNO | errno.ENOSYS)
        yield after


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each unbroken row of numbers."""
    rows = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    members = [list(map(itemgetter(1), row)) for _, row in rows]
    return [(row[0], row[-1]) for row in members]


def _call(name: str, number: int, rules: list[Rule]) -> _Program:
    """The rules of one call; whoever enters leaves with an answer, for the number is no longer loaded."""
    after = Label(f"after {name}")
    yield Instruction(JUMP_EQUAL, number, None, after)
    for position, rule in enumerate(rules):
        missed = Label(f"{name} past {position}")
        for index, condition in enumerate(rule.conditions):
            yield from _condition(condition, missed, f"{name} {position}.{index}")
        yield Instruction(RETURN, RET_ERRNO | rule.errno)
        yield missed
    if all(rule.conditions for rule in rules):
        yield Instruction(RETURN, RET_ALLOW)
    yield after


def _condition(condition: Condition, missed: Label, name: str) -> _Program:
    """Falls through where the condition holds, else goes to `missed`."""
    hit = Label(f"{name} holds")
    yield Instruction(LOAD_WORD, argument_offset(condition.argument))
    if condition.mask != 0xFFFF_FFFF:
        yield Instruction(AND, condition.mask)
    values = sorted(condition.values)
    for value in values[:-1]:
        yield Instruction(JUMP_EQUAL, value, missed if condition.inverted else hit, None)
    last = values[-1]
    yield (
        Instruction(JUMP_EQUAL, last, missed, None)
        if condition.inverted
        else Instruction(JUMP_EQUAL, last, None, missed)
    )
    yield hit
