"""Receives the report of a test runner from inside a sandbox, over a Unix socket. Every byte is treated as hostile.

The outcome of a test can only get worse: no later message, on this connection or another, turns a red test green.
"""

import json
import secrets
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import anyio
import msgspec

from ringfence.check.report import SEVERITY, Cause, TestResult
from ringfence.errors import SandboxError
from ringfence.frozen import frozen
from ringfence.sandbox import Connection, ExecResult, Sandbox
from ringfence.sandbox.result import OnOutput

MAX_BYTES = 64 * 1024**2
"""Limit for all connections of one run together."""
_MAX_LINE_BYTES = 64 * 1024
_MAX_TESTS = 100_000
_MAX_ALTERED = 10_000
_MAX_PROBLEMS = 20
_SHOWN_CHARS = 300


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
    by_project: list[str] = []


class _End(msgspec.Struct, tag_field="kind", tag="end", forbid_unknown_fields=True):
    exit: int


_DECODER = msgspec.json.Decoder(_Begin | _Collected | _Result | _Altered | _End)


class ReportBuilder:
    """Collects what the runners reported in one run of a check."""

    def __init__(self) -> None:
        self.results: dict[str, TestResult] = {}
        self.collected: dict[str, str | None] = {}
        self.altered: set[str] = set()
        self.altered_by_project: set[str] = set()
        self.problems: list[str] = []
        self.started_runners = 0
        self.exit_statuses: list[int] = []
        self.received_bytes = 0

    def add_problem(self, problem: str) -> None:
        """Record why the report cannot be trusted; a message that is already recorded is ignored."""
        if problem not in self.problems and len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def add(self, result: TestResult) -> None:
        """Record a result. Of several results for one test the most severe is kept."""
        known = self.results.get(result.id)
        if known is None and len(self.results) >= _MAX_TESTS:
            self.add_problem(f"more than {_MAX_TESTS} tests were reported")
        elif known is None or SEVERITY[result.outcome] > SEVERITY[known.outcome]:
            self.results[result.id] = result

    def add_altered(self, names: Collection[str], by_project: Collection[str]) -> None:
        """Record what was altered, by full names: a later report is compared with these, name by name."""
        self.altered.update(names)
        self.altered_by_project.update(by_project)
        if len(self.altered) > _MAX_ALTERED or len(self.altered_by_project) > _MAX_ALTERED:
            self.altered = set(sorted(self.altered)[:_MAX_ALTERED])
            self.altered_by_project = set(sorted(self.altered_by_project)[:_MAX_ALTERED])
            self.add_problem(f"more than {_MAX_ALTERED} altered functions were reported")

    def collect(self, name: str, file: str | None) -> None:
        """Record a test that the runner is about to run."""
        if len(self.collected) >= _MAX_TESTS and name not in self.collected:
            self.add_problem(f"more than {_MAX_TESTS} tests were collected")
        else:
            self.collected[name] = file


class ReportConnection:
    """Parses the messages of one process. Create one per accepted connection, and call `close` when it ends."""

    def __init__(self, builder: ReportBuilder) -> None:
        self._builder = builder
        self._rest = b""
        self._has_begun = False
        self._collected: dict[str, str | None] = {}
        self._reported = set[str | None]()
        self._has_ended = False
        self.is_refused = False
        """Whether the process violated the protocol; nothing more is read from it."""

    def feed(self, chunk: bytes) -> None:
        """Parse the next bytes."""
        builder = self._builder
        builder.received_bytes += len(chunk)
        if builder.received_bytes > MAX_BYTES:
            self._refuse(f"more than {MAX_BYTES} bytes were reported")
        if self.is_refused:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if not self.is_refused:
                self._line(line)
        if len(self._rest) > _MAX_LINE_BYTES:
            self._refuse(f"a line of more than {_MAX_LINE_BYTES} bytes was reported")

    def close(self) -> None:
        """Record a problem if the connection ended before the report did."""
        if not self._has_ended or self._rest:
            self._builder.add_problem("the runner's report breaks off before its end")

    def _refuse(self, why: str) -> None:
        self.is_refused = True
        self._rest = b""
        self._builder.add_problem(why)

    def _line(self, line: bytes) -> None:
        try:
            if len(line) > _MAX_LINE_BYTES:
                raise ValueError("line too long")
            message = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self._refuse(f"a message of the runner's report is malformed: {line[:_SHOWN_CHARS]!r}")
            return
        if isinstance(message, _Begin):
            is_in_order = not self._has_begun
            self._has_begun = True
            self._builder.started_runners += is_in_order
        else:
            is_in_order = self._has_begun and not self._has_ended
        if not is_in_order:
            self._refuse(f"a message of the runner's report is out of order: {line[:_SHOWN_CHARS]!r}")
        else:
            self._take(message)

    def _take(self, message: _Begin | _Collected | _Result | _Altered | _End) -> None:
        builder = self._builder
        if isinstance(message, _Collected):
            builder.collect(message.id, message.file)
            self._collected[message.id] = message.file
        elif isinstance(message, _Result):
            builder.add(_result(message))
            self._reported |= {message.id, message.file}
        elif isinstance(message, _Altered):
            builder.add_altered(message.names, message.by_project)
        elif isinstance(message, _End):
            self._has_ended = True
            collected = self._collected.items()
            if any(not self._reported & {name, file} for name, file in collected if file or name):
                builder.add_problem(
                    "a runner reported its end before it had run every test that it collected"
                )
            builder.exit_statuses.append(message.exit)


def _result(message: _Result) -> TestResult:
    sent = message.cause
    cause = None if sent is None else Cause(sent.type, sent.message, sent.name, sent.file)
    return TestResult(message.id, message.outcome, message.file, message.detail, cause)


OUTPUT_BYTES = 128 * 1024
_MAX_CONNECTIONS = 32
_DRAIN_S = 5.0
_REMOVE_S = 30.0


@frozen
class PrivateDirectory:
    """Ringfence's own directory inside a sandbox, with an unpredictable name."""

    path: str
    token: str

    @property
    def package(self) -> str:
        """Name of the Python package in the directory."""
        return f"ringfence_{self.token}"

    @property
    def canary(self) -> str:
        """Name of the canary: a test that must fail."""
        return f"test_{self.token}"


@asynccontextmanager
async def private_directory(
    sandbox: Sandbox, files: Mapping[str, bytes], settings: Mapping[str, Any]
) -> AsyncIterator[PrivateDirectory]:
    """Create a directory with files inside a sandbox, and remove it when the context ends.

    Args:
        sandbox: The sandbox.
        files: Name to bytes. The files are written to the subdirectory `PrivateDirectory.package`.
        settings: Written beside the files as `settings.json`, with the socket's path, the workspace and the canary.
    """
    token = secrets.token_hex(8)
    directory = PrivateDirectory(f"/tmp/ringfence-{token}", token)  # noqa: S108 -- a path in the sandbox
    all_settings = {
        "socket": f"{directory.path}/socket",
        "workspace": sandbox.workspace,
        "canary": directory.canary,
        **settings,
    }
    try:
        for name, data in {**files, "settings.json": json.dumps(all_settings).encode()}.items():
            await sandbox.write_file(f"{directory.path}/{directory.package}/{name}", data)
        yield directory
    finally:
        with anyio.move_on_after(_REMOVE_S, shield=True), suppress(SandboxError):
            await sandbox.remove(directory.path)


async def run_with_socket(
    sandbox: Sandbox,
    directory: PrivateDirectory,
    command: str,
    *,
    env: Mapping[str, str],
    timeout_s: float,
    on_output: OnOutput | None = None,
) -> tuple[ReportBuilder, ExecResult]:
    """Run a shell command, and collect the reports that its processes send to the directory's socket."""
    builder = ReportBuilder()

    async def serve(connection: Connection) -> None:
        report = ReportConnection(builder)
        # The process closed its end, or died: `close` records whether its report is complete.
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while not report.is_refused:
                report.feed(await connection.receive())
        report.close()

    async with sandbox.listen(serve, unix=f"{directory.path}/socket", limit=_MAX_CONNECTIONS) as listener:
        ended = await sandbox.run(
            ["/bin/sh", "-c", command],
            timeout_s=timeout_s,
            env=env,
            output_limit_bytes=OUTPUT_BYTES,
            on_output=on_output,
        )
        with anyio.move_on_after(_DRAIN_S) as waiting:
            await listener.wait_until_idle()
    if waiting.cancelled_caught:
        builder.add_problem("a process that the tests left running keeps the connection of their report open")
    return builder, ended
