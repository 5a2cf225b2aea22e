"""The guest process against a stream of nonsense: it answers or ends, and leaves nothing behind."""

import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ports import kept_port

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.loader import guest_arguments, guest_payload

CPU_S = 2.0
PATIENCE_S = 20.0
MARK = f"67.{os.getpid()}"
frame = frames.encode_frame
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def opening(*argv: str, **fields: object) -> bytes:
    """An OPEN for channel 1 of a command."""
    pairs = [("argv", word) for word in argv]
    more = {"cwd": "/", "window": 65_536, **fields}
    return frame(frames.OPEN, 1, frames.encode_record([*pairs, ("env", "PATH=/usr/bin:/bin"), *more.items()]))


@contextmanager
def started(descriptors: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A guest that waits for its modules, and may have so many descriptors."""
    limit = f"ulimit -n {descriptors}; " if descriptors else ""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", sys.executable, *guest_arguments()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def fed(data: bytes) -> bytes:
    """What a guest answers to these bytes and the end of its stream; it must come to its end, cheaply."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with started() as process:
        answer, _ = process.communicate(data, timeout=PATIENCE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_S
    return answer


class Answers:
    """What a guest says, frame by frame."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout.fileno()
        self._kinds: list[int] = []
        self._reader = frames.FrameReader(frames.MAX_PAYLOAD, lambda kind, *_rest: self._kinds.append(kind))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._in.write(data)
        self._in.flush()

    def wait_for(self, *kinds: int) -> int:
        """Read until a frame of one of these kinds."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            while self._kinds:
                kind = self._kinds.pop(0)
                if kind in kinds:
                    return kind
            if not self.is_silent(deadline - time.monotonic()):
                self._read()
        raise AssertionError(f"no frame of kind {kinds} came")

    def settle(self) -> None:
        """Read until nothing comes any more."""
        while not self.is_silent(0.5):
            self._read()

    def _read(self) -> None:
        piece = os.read(self._out, 65_536)
        assert piece, "the guest has ended"
        self._reader.feed(piece)

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        return not select.select([self._out], [], [], seconds)[0]


def cpu_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sleepers() -> int:
    """How many of our sleeps run on this machine."""
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                found += (entry / "cmdline").read_bytes().split(b"\0")[1:2] == [MARK.encode()]
    return found


@given(data=st.binary(max_size=200))
@FEW
def test_nonsense_for_modules(data: bytes) -> None:
    """A loader that is sent no modules ends."""
    assert fed(data) == b""


@pytest.mark.slow
@given(data=st.binary(min_size=1, max_size=400))
@FEW
def test_nonsense_after_modules(data: bytes) -> None:
    """A guest that is sent no frames ends with the stream, and had greeted."""
    assert frames.VERSION.encode() in fed(guest_payload() + data)


@pytest.mark.slow
@given(
    sent=st.lists(
        st.builds(frame, st.integers(0, 50), st.sampled_from([0, 1, 2**32 - 1]), st.binary(max_size=30)),
        max_size=8,
    )
)
@FEW
def test_frames_of_nonsense(sent: list[bytes]) -> None:
    """A guest that is sent any frames ends with the stream, and had greeted."""
    assert frames.VERSION.encode() in fed(guest_payload() + opening("cat") + b"".join(sent))


@pytest.mark.parametrize(
    "bad",
    [
        frame(frames.OPEN, 1, b"\0\0\0\1"),
        frame(frames.OPEN, 1, frames.encode_record([("window", "x")])),
        frame(frames.CREDIT_OUT, 1, b"x"),
        frame(frames.SIGNAL, 1, b""),
        frame(frames.CONFIG, 0, frames.encode_record([("memory", "nan")])),
        frames.HEADER.pack(2**32 - 1, 1, frames.STDIN),
    ],
    ids=["cut record", "bad window", "bad credit", "bad signal", "bad limit", "endless frame"],
)
def test_nobody_is_left(bad: bytes) -> None:
    """A guest that ends on a bad frame takes its commands with it, re-sessioned ones too."""
    line = f"setsid sleep {MARK} & sleep {MARK} & echo up; wait"
    with started() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(guest_payload() + opening("sh", "-c", line))
        process.stdin.flush()
        said = b""
        while b"up\n" not in said:
            said += os.read(process.stdout.fileno(), 4096)
        process.communicate(bad, timeout=PATIENCE_S)
        assert process.returncode == 0
    assert sleepers() == 0


@pytest.mark.slow
def test_no_descriptor_is_left() -> None:
    """A guest without a descriptor for one more connection is idle, answers the host, and loses none for good."""
    with started(descriptors=40) as process, kept_port() as port:
        listen = frame(frames.LISTEN, 1, frames.encode_record([("port", port), ("limit", 200)]))
        answers = Answers(process)
        answers.send(guest_payload() + listen)
        answers.wait_for(frames.LISTENING)
        callers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(60)]
        answers.settle()
        for _ in range(20):
            answers.send(opening("true"))
            answers.wait_for(frames.FAIL)
        answers.settle()
        before = cpu_s(process.pid)
        answers.is_silent(0.8)  # a busy machine lets it say late what it has to say
        assert cpu_s(process.pid) - before < 0.3
        for caller in callers:
            caller.close()
        numbers = range(frames.GUEST_NUMBERS + 1, frames.GUEST_NUMBERS + 61)
        answers.send(frame(frames.CLOSE, 1) + b"".join(frame(frames.CLOSE, number) for number in numbers))
        answers.send(opening("true"))
        assert answers.wait_for(frames.FAIL, frames.EXIT) == frames.EXIT


@pytest.mark.parametrize("data", [b"", b"half"], ids=["at once", "while it writes"])
def test_a_write_that_is_cancelled_leaves_no_file(tmp_path: Path, data: bytes) -> None:
    """Neither the target nor a temporary file, also if it is cancelled before its process is ready for the signal."""
    fields = {"op": "write", "path": str(tmp_path / "target"), "cwd": "/", "window": 65_536}
    write = frame(frames.OPEN, 1, frames.encode_record(fields.items()))
    with started() as process:
        answers = Answers(process)
        answers.send(guest_payload())
        for _ in range(20):
            answers.send(write + (frame(frames.STDIN, 1, data) if data else b""))
            if data:
                answers.wait_for(frames.CREDIT_IN)
            answers.send(frame(frames.KILL, 1))
            answers.wait_for(frames.FAIL, frames.EXIT)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_host_is_taken_for_dead() -> None:
    """A guest that hears nothing for as long as it was told ends with its commands, though its stream stays open."""
    with started() as process:
        assert process.stdin is not None
        config = frame(frames.CONFIG, 0, frames.encode_record([("silence_s", "0.5")]))
        line = f"setsid sleep {MARK} & sleep {MARK} & echo up; wait"
        process.stdin.write(guest_payload() + config + opening("sh", "-c", line))
        process.stdin.flush()
        assert process.wait(timeout=PATIENCE_S) == 0
    assert sleepers() == 0
