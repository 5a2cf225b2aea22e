"""Defines conformance checks, and helpers for them."""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import anyio

from ringfence.sandbox import ExecResult, Sandbox

Caught = TypeVar("Caught", bound=Exception)


class OpenSandbox(Protocol):
    """Opens a fresh sandbox of the backend under test, with a writable workspace."""

    def __call__(self, **changes: Any) -> AbstractAsyncContextManager[Sandbox]:
        """Open a sandbox.

        Args:
            changes: Fields of `SandboxSpec` that a check needs: `env`, `ttl_s`, `memory`, `pids`, ...
        """


_PATIENCE_S = 30.0
_COUNT = """
import os, sys
found = 0
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        found += open(f"/proc/{name}/cmdline", errors="replace").read().split("\\0")[:2] == ["sleep", sys.argv[1]]
    except OSError:
        pass
print(found)
"""

Check = Callable[[OpenSandbox], Awaitable[None]]
"""One promise, which the check's docstring states; an `AssertionError` means that it was broken."""


async def python(sandbox: Sandbox, code: str, *words: str, timeout_s: float = 60.0) -> ExecResult:
    """Run a Python script inside."""
    return await sandbox.run(["python3", "-I", "-S", "-c", code, *words], timeout_s=timeout_s)


async def shell(sandbox: Sandbox, line: str, *, timeout_s: float = 60.0) -> ExecResult:
    """Run a shell command inside."""
    return await sandbox.run(["/bin/sh", "-c", line], timeout_s=timeout_s)


def sleep_of_its_own() -> str:
    """Return a unique duration of about 60 s: without a fence, `sleepers` sees the sleeps of all tests at once."""
    return f"60.{secrets.randbelow(10**9):09d}"


async def sleepers(sandbox: Sandbox, seconds: str) -> int:
    """Return the number of processes visible in the sandbox that sleep for exactly this time."""
    return int((await python(sandbox, _COUNT, seconds)).stdout)


async def until_asleep(sandbox: Sandbox, seconds: str) -> None:
    """Wait until a background `sleep` with this duration has started."""
    with anyio.fail_after(_PATIENCE_S):
        while await sleepers(sandbox, seconds) == 0:
            pass


async def error_of(kind: type[Caught], act: Awaitable[object]) -> Caught:
    """Return the error of this kind that an operation raises; any other outcome breaks the promise."""
    try:
        came = await act
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {came!r}")
