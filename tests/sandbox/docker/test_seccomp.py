"""The engine's filter, held against our own table."""

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.docker.seccomp import ALLOWED_WHERE, allowed_calls, profile, profile_json
from ringfence.sandbox.seccomp.numbers import NUMBERS
from ringfence.sandbox.seccomp.rules import RULES

WORDS = st.one_of(
    st.sampled_from(
        [0, 1, 2, 3, 5, 10, 16, 40, 0x5412, 0x541C, 0x5423, 0x2000, 0x6000, 0x8000, 0o4755, 0o2000, 0o101]
    ),
    st.integers(0, 2**32 - 1),
)
ARGUMENTS = st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS)


def refused_by_table(call: str, arguments: tuple[int, ...]) -> bool:
    """Whether our table refuses a call."""
    return any(
        call in rule.calls and all(condition.holds(arguments) for condition in rule.conditions)
        for rule in RULES
    )


def allowed_by_profile(call: str, arguments: tuple[int, ...]) -> bool:
    """Whether the profile, read as libseccomp reads it, lets a call through."""
    for row in profile("x86_64")["syscalls"]:
        if call in row["names"] and row["action"] == "SCMP_ACT_ALLOW":
            rows = row.get("args") or []
            if all(arguments[one["index"]] & one["value"] == one["valueTwo"] for one in rows):
                return True
    return False


@given(st.sampled_from(sorted(ALLOWED_WHERE)), ARGUMENTS)
def test_never_looser_than_the_table(call: str, arguments: tuple[int, ...]) -> None:
    """What our table refuses the profile refuses, whatever the arguments."""
    if refused_by_table(call, arguments):
        assert not allowed_by_profile(call, arguments)


@given(ARGUMENTS)
def test_terminal_requests_are_all_that_ioctl_lacks(arguments: tuple[int, ...]) -> None:
    """`ioctl` is allowed but for the three requests; the prefixes leave no gap."""
    assert allowed_by_profile("ioctl", arguments) is not refused_by_table("ioctl", arguments)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("socket", (1, 1 | 0o2000000, 0)),
        ("socket", (2, 1 | 0o4000, 6)),
        ("socket", (10, 2, 0)),
        ("socket", (16, 3, 0)),
        ("socketpair", (1, 5, 0)),
        ("clone", (0x1200011, 0, 0)),
        ("mknod", (0, 0o10600, 0)),
        ("openat", (0, 0, 0o2000000, 0o7777)),
        ("openat", (0, 0, 0o101, 0o1777)),
        ("open", (0, 0o101, 0o644)),
        ("chmod", (0, 0o1777, 0)),
        ("fchmodat", (0, 0, 0o755)),
        ("mkdir", (0, 0o777, 0)),
        ("renameat2", (0, 0, 0, 0, 1)),
        ("renameat2", (0, 0, 0, 0, 2)),
        ("personality", (0xFFFFFFFF, 0, 0)),
    ],
)
def test_what_programs_need(call: str, arguments: tuple[int, ...]) -> None:
    """Usual calls pass: streams, datagrams, routes, threads, pipes by name."""
    assert allowed_by_profile(call, arguments)


def test_every_unconditional_refusal() -> None:
    """No call that the table refuses outright is on the allow list."""
    outright = {call for rule in RULES if not rule.conditions for call in rule.calls}
    assert not allowed_calls("x86_64") & outright
    assert not allowed_calls("aarch64") & outright


def test_libraries_fall_back() -> None:
    """Calls for which libraries have a way round are 'not implemented', as in the other fences."""
    absent = next(row for row in profile("x86_64")["syscalls"] if row.get("errnoRet") == errno.ENOSYS)
    assert {"clone3", "io_uring_setup", "fchmodat2", "openat2"} <= set(absent["names"])


def test_one_architecture() -> None:
    """32-bit and x32 calls are those of no machine that the filter knows: the kernel kills them."""
    assert profile("amd64")["architectures"] == ["SCMP_ARCH_X86_64"]
    assert profile("arm64")["architectures"] == ["SCMP_ARCH_AARCH64"]


def test_only_known_names() -> None:
    """Every name is a call of the machine: an engine refuses a profile with others."""
    names = {name for row in profile("aarch64")["syscalls"] for name in row["names"]}
    assert names <= set(NUMBERS["aarch64"])


def test_unknown_machine() -> None:
    """A machine without a table is refused, never left without a filter."""
    with pytest.raises(SandboxStartFailed, match="riscv64"):
        profile_json("riscv64")


def test_same_text_each_time() -> None:
    """The same filter is the same text: read back it can be compared."""
    assert profile_json("x86_64") == profile_json("x86_64")
    assert random.Random(0).choice(sorted(allowed_calls("x86_64"))) in profile_json("x86_64")
