"""The assembler refuses what would jump elsewhere than meant."""

import pytest

from ringfence.sandbox.seccomp.bpf import JUMP_EQUAL, RETURN, Instruction, Label, assemble

END = Instruction(RETURN, 0)


def test_encodes_jumps_as_distances() -> None:
    """A label becomes the number of instructions to skip."""
    code = assemble([Instruction(JUMP_EQUAL, 7, Label("a"), None), END, Label("a"), END])
    assert code[:8] == b"\x15\x00\x01\x00\x07\x00\x00\x00"


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ([], "1 to 4096"),
        ([END] * 4097, "1 to 4096"),
        ([Instruction(JUMP_EQUAL, 0, Label("a")), END], "no label 'a'"),
        ([Label("a"), END, Label("a"), END], "twice"),
        ([Label("a"), END, Instruction(JUMP_EQUAL, 0, Label("a"))], "-2 instructions"),
        ([Instruction(JUMP_EQUAL, 0, Label("a")), *[END] * 256, Label("a"), END], "256 instructions"),
    ],
    ids=["empty", "too long", "unknown", "double", "backwards", "too far"],
)
def test_refuses(program: list[Instruction | Label], complaint: str) -> None:
    """A program that cannot be encoded as meant is refused."""
    with pytest.raises(ValueError, match=complaint):
        assemble(program)
