"""A synchronous interface to sandboxes: the methods of `Sandbox`, each of which blocks until it is done.

Contains no sandbox logic: an event loop in a separate thread runs the asynchronous methods.
"""

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Concatenate, Generic, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ringfence.errors import SandboxDied
from ringfence.sandbox.protocol.command import InputStream, OutputStream, SandboxProcess
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.spec import SandboxSpec

_Inner = TypeVar("_Inner")
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


class _EventLoop:
    """The event loop of one sandbox, in a thread of its own."""

    def __init__(self, portal: BlockingPortal, sandbox_id: str) -> None:
        self.portal = portal
        self.is_closed = False
        self._sandbox_id = sandbox_id

    def call(self, function: Callable[[], Awaitable[_Result]]) -> _Result:
        self.check_open()
        return self.portal.call(function)

    def check_open(self) -> None:
        if self.is_closed:
            gone = f"sandbox {self._sandbox_id} is gone: it was closed"
            raise SandboxDied(gone, sandbox_id=self._sandbox_id, reason="killed")


class _Blocking(Generic[_Inner]):
    def __init__(self, loop: _EventLoop, inner: _Inner) -> None:
        self._loop = loop
        self._inner = inner


def _waited_for(
    method: Callable[Concatenate[_Inner, _Parameters], Awaitable[_Result]],
) -> Callable[Concatenate[_Blocking[_Inner], _Parameters], _Result]:
    """Make a method that calls an asynchronous one and waits for it; it keeps the signature and docstring."""

    @functools.wraps(method)
    def call(
        self: _Blocking[_Inner], /, *arguments: _Parameters.args, **named: _Parameters.kwargs
    ) -> _Result:
        return self._loop.call(functools.partial(method, self._inner, *arguments, **named))

    return call


class BlockingInput(_Blocking[InputStream]):
    """A command's stdin."""

    send = _waited_for(InputStream.send)
    close = _waited_for(InputStream.aclose)


class BlockingProcess(_Blocking[SandboxProcess]):
    """A running command. Made by `BlockingSandbox.spawn`; leaving its context kills what is left of it.

    Attributes:
        argv: The program and its arguments.
        stdin: Send it input by `send`, and end its input by `close`.
        stdout: Its output, an iterator of bytes. What is not read makes the command wait.
        stderr: Its messages, likewise. Empty on a terminal, where everything comes by `stdout`.
    """

    def __init__(self, loop: _EventLoop, inner: SandboxProcess) -> None:
        super().__init__(loop, inner)
        self.argv = inner.argv
        self.stdin = BlockingInput(loop, inner.stdin)
        self.stdout = _chunks(loop, inner.stdout)
        self.stderr = _chunks(loop, inner.stderr)

    wait = _waited_for(SandboxProcess.wait)
    signal = _waited_for(SandboxProcess.signal)
    resize = _waited_for(SandboxProcess.resize)
    kill = _waited_for(SandboxProcess.kill)


class BlockingSandbox(_Blocking[Sandbox]):
    """An open sandbox. Made by `open_sandbox`; its methods are those of `Sandbox`, and may be called by many threads.

    Attributes:
        id: Its name.
        spec: The requested sandbox.
        facts: Its properties: limits and how they are enforced, environment, notes.
        workspace: Path of the workspace inside; where relative paths and commands start.
        mode: How the workspace is shown: `bind`, `clone` or `read_only`; None without one.
        notes: Notes on the sandbox and its workspace.
    """

    def __init__(self, loop: _EventLoop, inner: Sandbox) -> None:
        super().__init__(loop, inner)
        self.id = inner.id
        self.spec = inner.spec
        self.facts = inner.facts
        self.workspace = inner.workspace
        self.mode = inner.mode
        self.notes = inner.notes

    run = _waited_for(Sandbox.run)
    read_file = _waited_for(Sandbox.read_file)
    write_file = _waited_for(Sandbox.write_file)
    list_dir = _waited_for(Sandbox.list_dir)
    remove = _waited_for(Sandbox.remove)
    stats = _waited_for(Sandbox.stats)
    ping = _waited_for(Sandbox.ping)
    changes = _waited_for(Sandbox.changes)
    apply = _waited_for(Sandbox.apply)

    @contextmanager
    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        tty: tuple[int, int] | None = None,
    ) -> Iterator[BlockingProcess]:
        """As `Sandbox.spawn`: start a command and hold it as a handle; leaving the context kills what is left of it."""
        self._loop.check_open()
        spawned = self._inner.spawn(argv, cwd=cwd, env=env, timeout_s=timeout_s, tty=tty)
        with self._loop.portal.wrap_async_context_manager(spawned) as process:
            yield BlockingProcess(self._loop, process)


@contextmanager
def open_sandbox(spec: SandboxSpec) -> Iterator[BlockingSandbox]:
    """Open a sandbox from a program that is not asynchronous; leaving the context kills everything inside.

    Args:
        spec: The requested sandbox.

    Raises:
        UsageError, PolicyRefused, SandboxStartFailed: As `Sandbox.open`.
    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Sandbox.open(spec)) as sandbox:
        loop = _EventLoop(portal, sandbox.id)
        try:
            yield BlockingSandbox(loop, sandbox)
        finally:
            loop.is_closed = True


def _chunks(loop: _EventLoop, stream: OutputStream) -> Iterator[bytes]:
    async def read() -> bytes | None:
        return await anext(stream, None)

    while (chunk := loop.call(read)) is not None:
        yield chunk
