"""What a check is, and what it is given."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from ringfence.sandbox import ExecResult, Sandbox

Caught = TypeVar("Caught", bound=Exception)


class OpenSandbox(Protocol):
    """Opens a fresh sandbox of the backend under test, with a writable workspace."""

    def __call__(self, **changes: Any) -> AbstractAsyncContextManager[Sandbox]:
        """Open one.

        Args:
            changes: Fields of `SandboxSpec` that a check needs: `env`, `ttl_s`, `memory`, `pids`, ...
        """


Check = Callable[[OpenSandbox], Awaitable[None]]
"""One promise, as its docstring says it; an `AssertionError` means that it was broken."""


async def python(sandbox: Sandbox, code: str, *words: str, timeout_s: float = 60.0) -> ExecResult:
    """Run a Python script inside."""
    return await sandbox.run(["python3", "-I", "-S", "-c", code, *words], timeout_s=timeout_s)


async def shell(sandbox: Sandbox, line: str, *, timeout_s: float = 60.0) -> ExecResult:
    """Run a line of shell inside."""
    return await sandbox.run(["/bin/sh", "-c", line], timeout_s=timeout_s)


async def error_of(kind: type[Caught], act: Awaitable[object]) -> Caught:
    """The error of this kind that an act ends in; anything else breaks the promise."""
    try:
        came = await act
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {came!r}")
