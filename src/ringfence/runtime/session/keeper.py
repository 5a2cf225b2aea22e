"""Brings a session's files into a sandbox, and out of it as they grow: what a crash leaves is a second old at most."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from fnmatch import fnmatchcase

import anyio
import anyio.to_thread

from ringfence.background_tasks import background_tasks
from ringfence.errors import RingfenceError, SandboxDied, SandboxFileError
from ringfence.runtime.session.home import MAX_BYTES, MAX_DEPTH, MAX_FILES, SessionHome, checked_name
from ringfence.sandbox import Sandbox

_PULL_EVERY_S = 1.0
_LAST_PULL_S = 20.0
_PIECE_BYTES = 256 * 1024
_OVERLAP = 256
"""Bytes before the end of what is kept that must be the same inside, or the file is another."""


class SessionKeeper:
    """Keeps one client's session.

    Args:
        home: Where its files lie outside.
        sandbox: Where the client runs.
        client_dir: The client's own directory inside.
        patterns: Which files below that directory are kept; `*` stands for slashes too.
        most_bytes: Of all files together that are kept outside.
    """

    def __init__(
        self,
        home: SessionHome,
        sandbox: Sandbox,
        client_dir: str,
        patterns: Sequence[str],
        *,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        self.problem = ""
        """Why not all could be kept; empty if all was."""
        self._home = home
        self._sandbox = sandbox
        self._dir = client_dir.rstrip("/")
        self._patterns = patterns
        self._most_bytes = most_bytes
        self._grown = anyio.Event()

    def touch(self) -> None:
        """Say that the client did something."""
        self._grown.set()

    async def restore(self, names: Sequence[str] | None = None) -> None:
        """Put files inside, in order.

        Args:
            names: Which; None: all that are kept.

        Raises:
            SandboxFileError: There is no room for them.
        """
        for name in names if names is not None else await anyio.to_thread.run_sync(self._home.files):
            await self._sandbox.write_file(f"{self._dir}/{name}", self._pieces(name), mode=0o600)

    async def _pieces(self, name: str) -> AsyncIterator[bytes]:
        """A kept file's bytes. An agent may have made it as large as may be kept: never all at once."""
        async with await anyio.open_file(self._home.place(name), "rb") as file:
            while piece := await file.read(_PIECE_BYTES):
                yield piece

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Bring out what grows until the context is left, and then once more."""
        async with background_tasks() as tasks:
            ended = anyio.Event()
            tasks.start_soon(self._follow, ended)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.move_on_after(_LAST_PULL_S, shield=True) as last:
                    await (
                        ended.wait()
                    )  # a look that goes on would write what the last one does, and unsay its problem
                    await self._try_pull()
                if last.cancelled_caught:
                    self.problem = f"the last of it did not come within {_LAST_PULL_S:g} s"

    async def _follow(self, ended: anyio.Event) -> None:
        try:
            while True:
                await self._grown.wait()
                self._grown = anyio.Event()
                await anyio.sleep(_PULL_EVERY_S)
                await self._try_pull()
        finally:
            ended.set()

    async def _try_pull(self) -> None:
        """Never an error of the run: what could not be kept is told with the end."""
        try:
            await self.pull()
        except SandboxDied as exc:
            self.problem = f"the sandbox was gone before the last of it was kept: {exc}"
        except (RingfenceError, ValueError) as exc:
            self.problem = str(exc)

    async def pull(self) -> None:
        """Bring out what has changed.

        Raises:
            RingfenceError: Something inside cannot be read, or written outside.
            ValueError: There is more than is kept.
        """
        inside = await self._listed()
        total = sum(inside.values())
        if total > self._most_bytes or len(inside) > MAX_FILES:
            raise ValueError(
                f"it has {len(inside)} files of {total} bytes; {MAX_FILES} files of {self._most_bytes} are kept"
            )
        outside = await anyio.to_thread.run_sync(self._home.make_room, inside, self._most_bytes)
        for name, size in inside.items():
            if size != outside.get(name):
                others = sum(outside.values()) - outside.get(name, 0)
                outside[name] = await self._bring(name, outside.get(name, 0), self._most_bytes - others)
        self.problem = ""

    async def _bring(self, name: str, kept: int, most: int) -> int:
        """Bring a file of at most so many bytes, which it may have outgrown by now; how many it has outside then."""
        overlap = await anyio.to_thread.run_sync(self._home.tail, name, _OVERLAP) if kept else b""
        if not overlap or not await self._copy(
            name, name, since=kept - len(overlap), known=overlap, most=most
        ):
            try:
                await self._copy(name, None, since=0, known=b"", most=most)
                await anyio.to_thread.run_sync(self._home.take_incoming, name)
            finally:
                await anyio.to_thread.run_sync(self._home.drop_incoming)
        return await anyio.to_thread.run_sync(self._home.size, name)

    async def _copy(self, name: str, target: str | None, *, since: int, known: bytes, most: int) -> bool:
        """Add what comes after `known` to a file outside; False if something else is there inside."""
        size = since
        with self._home.open_for(target) as file:
            async with aclosing(self._sandbox.stream_file(f"{self._dir}/{name}", offset=since)) as chunks:
                async for chunk in chunks:
                    seen = chunk[: len(known)]
                    if not known.startswith(seen):
                        return False
                    known = known[len(seen) :]
                    size += len(chunk)
                    if size > most:
                        raise ValueError(
                            f"{name!r} has grown beyond the {self._most_bytes} bytes that are kept"
                        )
                    await anyio.to_thread.run_sync(file.write, chunk[len(seen) :])
        return not known

    async def _listed(self) -> dict[str, int]:
        """The files inside that are kept, with their sizes."""
        found: dict[str, int] = {}
        places = sorted({pattern.partition("/")[0] for pattern in self._patterns})
        for _ in range(MAX_FILES):
            if not places:
                return found
            place = places.pop()
            try:
                entries = await self._sandbox.list_dir(f"{self._dir}/{place}", limit=MAX_FILES)
            except SandboxFileError as exc:
                if exc.errno_name in ("ENOENT", "ENOTDIR"):
                    continue
                raise
            for entry in entries:
                name = f"{place}/{entry.name}"
                if entry.kind == "dir" and name.count("/") < MAX_DEPTH - 1:
                    places.append(name)
                elif entry.kind == "file" and any(fnmatchcase(name, pattern) for pattern in self._patterns):
                    found[str(checked_name(name))] = entry.size
            if len(found) > MAX_FILES:
                return found
            if len(places) > MAX_FILES:
                break
        raise ValueError(f"it has more than {MAX_FILES} directories")
