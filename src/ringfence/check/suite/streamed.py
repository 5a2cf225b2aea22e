"""Runs a command inside while its runner tells, over a Unix socket, what each test comes to."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from ringfence.check.suite.collecting import Gathered, Session
from ringfence.errors import SandboxError
from ringfence.frozen import frozen
from ringfence.sandbox import Connection, ExecResult, Sandbox
from ringfence.sandbox.result import OnOutput

OUTPUT_BYTES = 128 * 1024
_MOST_CONNECTIONS = 32
_LAST_WORDS_S = 5.0
_LEFT_S = 30.0


@frozen
class Place:
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
async def private_place(
    sandbox: Sandbox, files: Mapping[str, bytes], settings: Mapping[str, Any]
) -> AsyncIterator[Place]:
    """Put files into a new directory inside, and take them away in the end.

    Args:
        sandbox: Where.
        files: Name to bytes; they lie in a directory `package`.
        settings: Written beside them, with the socket's path.
    """
    token = secrets.token_hex(8)
    place = Place(f"/tmp/ringfence-{token}", token)  # noqa: S108 -- inside
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


async def run_listening(
    sandbox: Sandbox,
    place: Place,
    command: str,
    *,
    env: Mapping[str, str],
    timeout_s: float,
    on_output: OnOutput | None = None,
) -> tuple[Gathered, ExecResult]:
    """Run a shell command and gather what is told over the place's socket meanwhile."""
    gathered = Gathered()

    async def serve(connection: Connection) -> None:
        session = Session(gathered)
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
        gathered.complain("a process that the tests left behind keeps their report open")
    return gathered, ended
