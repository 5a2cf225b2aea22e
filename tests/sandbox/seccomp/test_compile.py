"""The compiled filter returns what the rule table says, for every call and all arguments."""

import errno
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import SandboxStartFailed
from ringfence.sandbox.seccomp import RULES, explain, filter_bytes
from ringfence.sandbox.seccomp.numbers import ASSIGNED, AUDIT_ARCH, NUMBERS, Machine

KILL, ALLOW, ERRNO = 0x8000_0000, 0x7FFF_0000, 0x0005_0000
MACHINES: tuple[Machine, ...] = ("x86_64", "aarch64")
ALLOWED: dict[Machine, tuple[int, ...]] = {
    "x86_64": (444, 319, 317, 157, 62, 59),
    "aarch64": (444, 279, 277, 167, 129, 221),
}
"""landlock_create_ruleset, memfd_create, seccomp, prctl, kill and execve: no rule names them."""


def simulate(program: bytes, data: bytes) -> int:
    """Run a classic BPF program over one `struct seccomp_data`, written from the kernel's description."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, k = instructions[at]
        at += 1
        if code == 0x20:  # ld [k]
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:  # and #k
            accumulator &= k
        elif code == 0x15:  # jeq
            at += if_true if accumulator == k else if_false
        elif code == 0x25:  # jgt
            at += if_true if accumulator > k else if_false
        elif code == 0x06:  # ret
            return int(k)
        else:
            raise AssertionError(f"instruction {code:#x} is not one we know")


def answer(machine: Machine, number: int, *arguments: int, arch: int | None = None) -> int:
    """The filter's result for a call on `machine`."""
    words = (*arguments, *(0,) * (6 - len(arguments)))
    arch = AUDIT_ARCH[machine] if arch is None else arch
    return simulate(filter_bytes(machine), struct.pack("<IIQ6Q", number, arch, 0, *words))


def expected(machine: Machine, number: int, arguments: tuple[int, ...]) -> int:
    """The rule table's result for a call."""
    name = next((name for name, own in NUMBERS[machine].items() if own == number), None)
    if not any(low <= number <= high for low, high in ASSIGNED[machine]):
        return ERRNO | errno.ENOSYS
    for rule in RULES:
        if name in rule.calls and all(condition.holds(arguments) for condition in rule.conditions):
            return ERRNO | rule.errno
    return ALLOW


def interesting_numbers() -> st.SearchStrategy[int]:
    """All assigned numbers and their neighbours, those with rules more often, and any 32-bit number."""
    ruled = {
        numbers[call]
        for numbers in NUMBERS.values()
        for rule in RULES
        for call in rule.calls
        if call in numbers
    }
    conditional = {n[c] for n in NUMBERS.values() for r in RULES if r.conditions for c in r.calls if c in n}
    return st.one_of(
        st.sampled_from(sorted(conditional)),
        st.sampled_from(sorted(ruled)),
        st.integers(0, 600),
        st.integers(0, 600).map(lambda number: number | 0x4000_0000),
        st.integers(0, 2**32 - 1),
    )


def interesting_arguments() -> st.SearchStrategy[int]:
    """Values that the rules name, with flags, with upper bits, and any 64-bit value."""
    named = sorted({value for rule in RULES for condition in rule.conditions for value in condition.values})
    return st.one_of(
        st.sampled_from(named),
        st.integers(0, 20),
        st.builds(lambda value, bit: value ^ (1 << bit), st.sampled_from(named), st.integers(0, 63)),
        st.integers(0, 2**64 - 1),
    )


@given(
    machine=st.sampled_from(MACHINES),
    number=interesting_numbers(),
    arguments=st.tuples(*[interesting_arguments()] * 6),
)
def test_agrees_with_the_table(machine: Machine, number: int, arguments: tuple[int, ...]) -> None:
    """For any call and arguments the program returns what the table says."""
    assert answer(machine, number, *arguments) == expected(machine, number, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_agrees_for_each_number(machine: Machine) -> None:
    """For each number up to well past the last one the program returns what the table says."""
    for number in range(1024):
        assert answer(machine, number) == expected(machine, number, (0,) * 6), number


@given(machine=st.sampled_from(MACHINES), arch=st.integers(0, 2**32 - 1), number=interesting_numbers())
def test_kills_foreign_machines(machine: Machine, arch: int, number: int) -> None:
    """A call with another machine's numbering kills the process, whatever its number."""
    if arch != AUDIT_ARCH[machine]:
        assert answer(machine, number, arch=arch) == KILL


@pytest.mark.parametrize("arch", [0x4000_0003, 0x4000_0028], ids=["i386", "arm"])
@pytest.mark.parametrize("machine", MACHINES)
def test_kills_32_bit_programs(machine: Machine, arch: int) -> None:
    """A call of a 32-bit machine that the kernel also runs kills the process."""
    assert answer(machine, 1, arch=arch) == KILL


def spelled_modes() -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Calls that set the mode of a file, with and without set-id bits."""
    eperm, upper = ERRNO | errno.EPERM, 1 << 32
    create, temporary = 0o101, 0x40_0000 | 0o1
    for bits in (0o4000, 0o2000, 0o6000):
        for mode in (bits, bits | 0o755, bits | upper, bits | 0x1_0000):
            yield "fchmod", (3, mode), eperm
            yield "fchmodat", (0, 0, mode), eperm
            yield "fchmodat2", (0, 0, mode, 0), eperm
            yield "mkdirat", (0, 0, mode), eperm
            yield "mknodat", (0, 0, 0o100000 | mode), eperm
            yield "openat", (0, 0, create, mode), eperm
            yield "openat", (0, 0, temporary, mode), eperm
            yield "openat", (0, 0, 0, mode), ALLOW  # the kernel takes no mode where nothing is created
    for mode in (0o777, 0o1777, 0o600, 0):
        yield "fchmod", (3, mode), ALLOW
        yield "fchmodat", (0, 0, mode), ALLOW
        yield "mkdirat", (0, 0, mode), ALLOW
        yield "openat", (0, 0, create, mode), ALLOW


def spelled_calls() -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Calls with expected results, written by hand so that the table itself is checked too."""
    eperm, enosys = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    cloexec, upper = 0o2000000, 1 << 32
    for name in (
        *("mount", "umount2", "pivot_root", "move_mount", "fsopen", "fsmount", "fsconfig", "fspick"),
        *("open_tree", "open_tree_attr", "mount_setattr", "unshare", "setns", "ptrace", "process_vm_readv"),
        *("process_vm_writev", "kcmp", "pidfd_getfd", "bpf", "perf_event_open", "keyctl", "add_key"),
        *("request_key", "userfaultfd", "open_by_handle_at", "kexec_load", "kexec_file_load", "init_module"),
        *("finit_module", "delete_module", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot", "acct"),
        *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "syslog", "lookup_dcookie"),
        *("vhangup", "nfsservctl", "sethostname", "setdomainname", "chroot", "fanotify_init"),
    ):
        yield name, (), eperm
    for name in ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "openat2"):
        yield name, (), enosys
    for bit in (0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000):
        yield "clone", (bit | 17,), eperm
    yield "clone", (0x003D_0F00,), ALLOW  # what pthread_create asks
    yield "clone", (0x4111,), ALLOW  # what vfork asks
    yield "personality", (0x0004_0000,), eperm
    yield "personality", (0xFFFF_FFFF,), ALLOW
    for family in (0, 3, 4, 17, 29, 38, 40, 44, 45):
        yield "socket", (family, 1, 0), eperm
        yield "socketpair", (family, 1, 0), eperm
    for call in ("socket", "socketpair"):
        yield call, (1, 1 | cloexec, 0), ALLOW
        yield call, (1 | upper, 1, 0), ALLOW
        yield call, (40 | upper, 1, 0), eperm
    yield "socket", (2, 1 | cloexec, 6), ALLOW
    yield "socket", (10, 2, 17), ALLOW
    yield "socket", (16, 3 | cloexec, 0), ALLOW
    yield "socket", (16, 3, 0 | upper), ALLOW
    yield "socket", (16, 3, 9), eperm
    yield "socket", (16, 2, 15), eperm
    yield "socket", (2, 3, 1), eperm
    yield "socket", (2, 3 | cloexec, 255), eperm
    yield "socket", (10, 3, 58), eperm
    yield "socket", (2, 10, 0), eperm
    yield "socket", (2, 1, 132), ERRNO | errno.EPROTONOSUPPORT
    for request in (0x5412, 0x541C, 0x5423):
        yield "ioctl", (0, request), eperm
        yield "ioctl", (0, request | upper), eperm
    yield "ioctl", (0, 0x5401), ALLOW
    yield "mknodat", (0, 0, 0o020666), eperm
    yield "mknodat", (0, 0, 0o060666), eperm
    yield "mknodat", (0, 0, 0o010666), ALLOW
    for flags in (4, 5, 4 | upper):
        yield "renameat2", (0, 0, 0, 0, flags), eperm
    for flags in (0, 1, 2):
        yield "renameat2", (0, 0, 0, 0, flags), ALLOW
    yield from spelled_modes()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments", "wanted"), list(spelled_calls()))
def test_call_written_by_hand(machine: Machine, name: str, arguments: tuple[int, ...], wanted: int) -> None:
    """The filter returns what this list says, independently of the table."""
    assert answer(machine, NUMBERS[machine][name], *arguments) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_other_calls_are_allowed(machine: Machine) -> None:
    """A call without a rule is allowed."""
    assert {answer(machine, number) for number in ALLOWED[machine]} == {ALLOW}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("chmod", (0, 0o4755)),
        ("creat", (0, 0o2755)),
        ("mkdir", (0, 0o2755)),
        ("mknod", (0, 0o104755)),
        ("open", (0, 0o101, 0o6755)),
    ],
)
def test_older_calls_of_x86(name: str, arguments: tuple[int, ...]) -> None:
    """The older calls that set a mode, which only x86_64 has, refuse set-id bits too."""
    assert answer("x86_64", NUMBERS["x86_64"][name], *arguments) == ERRNO | errno.EPERM


def test_every_ruled_call_is_known() -> None:
    """No rule names a call that no machine has."""
    known = set(NUMBERS["x86_64"]) | set(NUMBERS["aarch64"])
    assert {call for rule in RULES for call in rule.calls} <= known


def test_refuses_machines_without_filter() -> None:
    """A machine without a filter is refused by name."""
    with pytest.raises(SandboxStartFailed, match="'riscv64'"):
        filter_bytes("riscv64")


def test_explains_each_rule() -> None:
    """Each rule has a reason of one line."""
    assert all(why and "\n" not in why for _, why, _ in explain())
    assert len(explain()) > len(RULES)
