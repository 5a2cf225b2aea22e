"""A small assembler for classic BPF, as far as seccomp filters need it.

Own code on purpose: this is the fence. Jumps name labels; they only go forwards, at most 255 instructions.
Encoding: Linux `include/uapi/linux/bpf_common.h`, `filter.h` and `seccomp.h`.
"""

import struct
from collections.abc import Sequence

from ringfence.frozen import frozen

LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_GREATER = 0x25  # BPF_JMP | BPF_JGT | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

RET_KILL_PROCESS = 0x8000_0000
RET_ERRNO = 0x0005_0000
RET_ALLOW = 0x7FFF_0000

NUMBER_OFFSET = 0
ARCH_OFFSET = 4

_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter, in the machine's own byte order
_MOST_INSTRUCTIONS = 4096  # BPF_MAXINSNS


def argument_offset(index: int) -> int:
    """Where the low 32 bits of a call's argument lie in `struct seccomp_data` (little-endian machines)."""
    return 16 + 8 * index


@frozen
class Label:
    """A place that jumps name. Two labels are the same if their names are."""

    name: str


@frozen
class Instruction:
    """One instruction; a jump without a label on one side falls through there."""

    code: int
    k: int
    if_true: Label | None = None
    if_false: Label | None = None


def assemble(program: Sequence[Instruction | Label]) -> bytes:
    """Turn instructions and labels into an array of `struct sock_filter`.

    Raises:
        ValueError: A label is unknown, twice there, behind the jump or too far; or the program is too long.
    """
    places: dict[Label, int] = {}
    instructions: list[Instruction] = []
    for item in program:
        if isinstance(item, Instruction):
            instructions.append(item)
        elif item in places:
            raise ValueError(f"label {item.name!r} is there twice")
        else:
            places[item] = len(instructions)
    if not 0 < len(instructions) <= _MOST_INSTRUCTIONS:
        raise ValueError(f"a filter has 1 to {_MOST_INSTRUCTIONS} instructions, not {len(instructions)}")
    return b"".join(
        _INSTRUCTION.pack(
            one.code, _distance(places, one.if_true, at), _distance(places, one.if_false, at), one.k
        )
        for at, one in enumerate(instructions)
    )


def _distance(places: dict[Label, int], label: Label | None, at: int) -> int:
    if label is None:
        return 0
    if label not in places:
        raise ValueError(f"no label {label.name!r}")
    distance = places[label] - at - 1
    if not 0 <= distance <= 255:
        raise ValueError(f"jump to {label.name!r} covers {distance} instructions; 0 to 255 are possible")
    return distance
