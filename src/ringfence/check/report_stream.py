"""Receives the report of a runner from inside a sandbox, over a Unix socket. Every byte is hostile.

A result can only grow worse: a later message, over the same connection or another, turns no red test green.
"""

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import anyio
import msgspec

from ringfence.check.report import Cause, Outcome, TestResult
from ringfence.errors import SandboxError
from ringfence.frozen import frozen
from ringfence.sandbox import Connection, ExecResult, Sandbox
from ringfence.sandbox.result import OnOutput

MOST_BYTES = 64 * 1024**2
"""Of all connections of one run together."""
_MOST_LINE = 64 * 1024
_MOST_TESTS = 100_000
_MOST_PROBLEMS = 20
_SHOWN = 300
_RANK: dict[Outcome, int] = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


class _Begin(msgspec.Struct, tag_field="kind", tag="begin", forbid_unknown_fields=True):
    runner: str


class _Collected(msgspec.Struct, tag_field="kind", tag="collected", forbid_unknown_fields=True):
    id: str
    file: str | None


class _Cause(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    message: str
    name: str | None
    file: str | None


class _Result(msgspec.Struct, tag_field="kind", tag="result", forbid_unknown_fields=True):
    id: str
    outcome: Literal["passed", "failed", "error", "skipped"]
    file: str | None
    detail: str
    cause: _Cause | None


class _Altered(msgspec.Struct, tag_field="kind", tag="altered", forbid_unknown_fields=True):
    names: list[str]
    own: list[str] = []


class _End(msgspec.Struct, tag_field="kind", tag="end", forbid_unknown_fields=True):
    exit: int


_DECODER = msgspec.json.Decoder(_Begin | _Collected | _Result | _Altered | _End)


class ReportBuilder:
    """Everything that was told in one run of a check."""

    def __init__(self) -> None:
        self.results: dict[str, TestResult] = {}
        self.collected: dict[str, str | None] = {}
        self.altered: set[str] = set()
        self.altered_by_project: set[str] = set()
        self.problems: list[str] = []
        self.begun = 0
        self.exits: list[int] = []
        self.received_bytes = 0

    def add_problem(self, problem: str) -> None:
        """Note why the report cannot be believed, once."""
        if problem not in self.problems and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)

    def add(self, result: TestResult) -> None:
        """Take a result; the worst that was told of a test holds."""
        known = self.results.get(result.id)
        if known is None and len(self.results) >= _MOST_TESTS:
            self.add_problem(f"more than {_MOST_TESTS} tests were reported")
        elif known is None or _RANK[result.outcome] > _RANK[known.outcome]:
            self.results[result.id] = result

    def collect(self, name: str, file: str | None) -> None:
        """A test is going to be run."""
        if len(self.collected) >= _MOST_TESTS and name not in self.collected:
            self.add_problem(f"more than {_MOST_TESTS} tests were collected")
        else:
            self.collected[name] = file


class ReportConnection:
    """One connection: what one process tells. Make it when the connection comes, `close` it at its end."""

    def __init__(self, builder: ReportBuilder) -> None:
        self._builder = builder
        self._rest = b""
        self._is_begun = False
        self._open: dict[str, str | None] = {}
        self._reported = set[str | None]()
        self._is_ended = False
        self.is_refused = False
        """Whether it broke the rules: nothing more is read of it."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        builder = self._builder
        builder.received_bytes += len(chunk)
        if builder.received_bytes > MOST_BYTES:
            self._refuse(f"more than {MOST_BYTES} bytes were reported")
        if self.is_refused:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if not self.is_refused:
                self._line(line)
        if len(self._rest) > _MOST_LINE:
            self._refuse(f"a line of more than {_MOST_LINE} bytes was reported")

    def close(self) -> None:
        """The connection is over."""
        if not self._is_ended or self._rest:
            self._builder.add_problem("the runner's report breaks off before its end")

    def _refuse(self, why: str) -> None:
        self.is_refused = True
        self._rest = b""
        self._builder.add_problem(why)

    def _line(self, line: bytes) -> None:
        try:
            if len(line) > _MOST_LINE:
                raise ValueError("too long")
            message = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._refuse(f"what was reported cannot be read: {line[:_SHOWN]!r}")
            return
        if isinstance(message, _Begin):
            is_in_order = not self._is_begun
            self._is_begun = True
            self._builder.begun += is_in_order
        else:
            is_in_order = self._is_begun and not self._is_ended
        if not is_in_order:
            self._refuse(f"what was reported is out of order: {line[:_SHOWN]!r}")
        else:
            self._take(message)

    def _take(self, message: _Begin | _Collected | _Result | _Altered | _End) -> None:
        builder = self._builder
        if isinstance(message, _Collected):
            builder.collect(message.id, message.file)
            self._open[message.id] = message.file
        elif isinstance(message, _Result):
            builder.add(_result(message))
            self._reported |= {message.id, message.file}
        elif isinstance(message, _Altered):
            builder.altered.update(name[:_SHOWN] for name in message.names[:_MOST_PROBLEMS])
            builder.altered_by_project.update(name[:_SHOWN] for name in message.own[:_MOST_PROBLEMS])
        elif isinstance(message, _End):
            self._is_ended = True
            if any(not self._reported & {name, file} for name, file in self._open.items() if file or name):
                builder.add_problem("a runner said that it ended before it had run all that it collected")
            builder.exits.append(message.exit)


def _result(message: _Result) -> TestResult:
    told = message.cause
    cause = None if told is None else Cause(told.type, told.message, told.name, told.file)
    return TestResult(message.id, message.outcome, message.file, message.detail, cause)


OUTPUT_BYTES = 128 * 1024
_MOST_CONNECTIONS = 32
_LAST_WORDS_S = 5.0
_LEFT_S = 30.0


@frozen
class PrivateDirectory:
    """A directory of our own inside, with a name that nobody could foresee."""

    path: str
    token: str

    @property
    def package(self) -> str:
        """Name of the Python package in it."""
        return f"ringfence_{self.token}"

    @property
    def canary(self) -> str:
        """Name of the test that must fail."""
        return f"test_{self.token}"


@asynccontextmanager
async def private_directory(
    sandbox: Sandbox, files: Mapping[str, bytes], settings: Mapping[str, Any]
) -> AsyncIterator[PrivateDirectory]:
    """Put files into a new directory inside, and take them away in the end.

    Args:
        sandbox: Where.
        files: Name to bytes; they lie in a directory `package`.
        settings: Written beside them, with the socket's path.
    """
    token = secrets.token_hex(8)
    place = PrivateDirectory(f"/tmp/ringfence-{token}", token)  # noqa: S108 -- inside
    told = {
        "socket": f"{place.path}/socket",
        "workspace": sandbox.workspace,
        "canary": place.canary,
        **settings,
    }
    try:
        for name, data in {**files, "settings.json": json.dumps(told).encode()}.items():
            await sandbox.write_file(f"{place.path}/{place.package}/{name}", data)
        yield place
    finally:
        with anyio.move_on_after(_LEFT_S, shield=True), suppress(SandboxError):
            await sandbox.remove(place.path)


async def run_with_socket(
    sandbox: Sandbox,
    place: PrivateDirectory,
    command: str,
    *,
    env: Mapping[str, str],
    timeout_s: float,
    on_output: OnOutput | None = None,
) -> tuple[ReportBuilder, ExecResult]:
    """Run a shell command and gather what is told over the place's socket meanwhile."""
    builder = ReportBuilder()

    async def serve(connection: Connection) -> None:
        session = ReportConnection(builder)
        try:
            while not session.is_refused:
                session.feed(await connection.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        session.close()

    async with sandbox.listen(serve, unix=f"{place.path}/socket", limit=_MOST_CONNECTIONS) as listener:
        ended = await sandbox.run(
            ["/bin/sh", "-c", command],
            timeout_s=timeout_s,
            env=env,
            output_limit_bytes=OUTPUT_BYTES,
            on_output=on_output,
        )
        with anyio.move_on_after(_LAST_WORDS_S) as waiting:
            await listener.wait_until_idle()
    if waiting.cancelled_caught:
        builder.add_problem("a process that the tests left behind keeps their report open")
    return builder, ended
