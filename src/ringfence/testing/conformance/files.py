"""Promises about files inside."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from ringfence.errors import SandboxFileError, UsageError
from ringfence.sandbox import Sandbox
from ringfence.testing.conformance.check import OpenSandbox, error_of, python, shell

_LARGE = bytes(range(256)) * (50 * 4096)


async def _errno(sandbox: Sandbox, verb: str, path: str) -> str:
    """Return the name of the errno with which an operation fails."""
    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: sandbox.read_file(path),
        "write": lambda: sandbox.write_file(path, b"x"),
        "list": lambda: sandbox.list_dir(path),
        "remove": lambda: sandbox.remove(path),
    }
    error = await error_of(SandboxFileError, operations[verb]())
    assert path in str(error)
    assert error.path == path
    return error.errno_name


async def written_and_read(open_sandbox: OpenSandbox) -> None:
    """Bytes of any value are read as written, by relative and by absolute path, and commands see them."""
    data = bytes(range(256)) + "grüß\r\n".encode()
    async with open_sandbox() as sandbox:
        await sandbox.write_file("deep/er/file.bin", data)
        assert await sandbox.read_file(f"{sandbox.workspace}/deep/er/file.bin") == data
        assert (await sandbox.run(["cat", "deep/er/file.bin"])).stdout_bytes == data


async def empty_file(open_sandbox: OpenSandbox) -> None:
    """An empty file can be written and read."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("empty", b"")
        assert await sandbox.read_file("empty") == b""
        assert (await sandbox.list_dir())[-1].size == 0


async def odd_names(open_sandbox: OpenSandbox) -> None:
    """Names with blanks, newlines, a leading dash, or bytes that are not UTF-8 are kept."""
    names = sorted(["a b", "new\nline", "-rf", "grüß", "\udcff", "'\"$HOME", " "])
    async with open_sandbox() as sandbox:
        for name in names:
            await sandbox.write_file(f"odd/{name}", name.encode("utf-8", "surrogateescape"))
        assert [entry.name for entry in await sandbox.list_dir("odd")] == names
        for name in names:
            assert await sandbox.read_file(f"odd/{name}") == name.encode("utf-8", "surrogateescape")
            await sandbox.remove(f"odd/{name}")
        assert await sandbox.list_dir("odd") == []


async def large_file(open_sandbox: OpenSandbox) -> None:
    """50 MiB are written and read completely, at once and in pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(_LARGE), 1_000_000):
            yield _LARGE[start : start + 1_000_000]

    async with open_sandbox() as sandbox:
        await sandbox.write_file("large", pieces())
        assert await sandbox.read_file("large") == _LARGE
        assert b"".join([piece async for piece in sandbox.stream_file("large")]) == _LARGE


async def too_large(open_sandbox: OpenSandbox) -> None:
    """A file larger than the caller's limit is refused as too large; one of exactly that size is not."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("file", b"x" * 1000)
        assert len(await sandbox.read_file("file", limit_bytes=1000)) == 1000
        error = await error_of(SandboxFileError, sandbox.read_file("file", limit_bytes=999))
        assert error.errno_name == "EFBIG"


async def endless_file(open_sandbox: OpenSandbox) -> None:
    """A file without an end is refused, and reading it does not block."""
    async with open_sandbox() as sandbox:
        with anyio.fail_after(20):
            assert await _errno(sandbox, "read", "/dev/zero") == "EINVAL"
            await shell(sandbox, "mkfifo fifo")
            assert await _errno(sandbox, "read", "fifo") == "EINVAL"
            assert await _errno(sandbox, "write", "fifo") == "EINVAL"


async def stream_left_early(open_sandbox: OpenSandbox) -> None:
    """Reading may stop in the middle of a file."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("file", b"x" * 8_000_000)
        stream = sandbox.stream_file("file")
        async for piece in stream:
            assert piece
            break
        await stream.aclose()  # an async generator
        assert (await sandbox.run(["true"])).ok


async def not_found(open_sandbox: OpenSandbox) -> None:
    """A missing file is reported as ENOENT."""
    async with open_sandbox() as sandbox:
        for verb in ("read", "list", "remove"):
            assert await _errno(sandbox, verb, "not/there") == "ENOENT"
        await error_of(SandboxFileError, _all(sandbox.stream_file("not/there")))


async def _all(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def is_a_directory(open_sandbox: OpenSandbox) -> None:
    """A directory in place of a file is reported as EISDIR, and a file in place of a directory as ENOTDIR."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("dir/file", b"")
        assert await _errno(sandbox, "read", "dir") == "EISDIR"
        assert await _errno(sandbox, "write", "dir") == "EISDIR"
        assert await _errno(sandbox, "list", "dir/file") == "ENOTDIR"
        assert await _errno(sandbox, "read", "dir/file/below") == "ENOTDIR"


async def no_permission(open_sandbox: OpenSandbox) -> None:
    """Files that the sandbox's user may not access are reported as EACCES or EROFS; no user inside is root."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("locked/file", b"x", mode=0o000)
        await shell(sandbox, "chmod 0500 locked")
        assert await _errno(sandbox, "read", "locked/file") == "EACCES"
        assert await _errno(sandbox, "remove", "locked/file") == "EACCES"
        assert await _errno(sandbox, "write", "locked/new") == "EACCES"
        assert await _errno(sandbox, "write", "/usr/new") in ("EROFS", "EACCES")
        await sandbox.write_file("protected", b"x", mode=0o444)
        assert await _errno(sandbox, "write", "protected") == "EACCES"
        await shell(sandbox, "chmod 0700 locked")


async def no_path(open_sandbox: OpenSandbox) -> None:
    """An invalid path is an error of the caller."""
    async with open_sandbox() as sandbox:
        for path in ("", "a\0b", "\ud800"):
            await error_of(UsageError, sandbox.read_file(path))
            await error_of(UsageError, sandbox.write_file(path, b""))


async def atomic_write(open_sandbox: OpenSandbox) -> None:
    """While a file is written repeatedly, a reader sees either the complete old or the complete new content."""
    code = (
        "import sys\nprint('ready', flush=True)\nseen = set()\n"
        "while True:\n"
        " data = open('file', 'rb').read()\n"
        " seen.add((len(data), len(set(data))))\n"
        " if data[:1] == b'z': break\n"
        "print(sorted(seen))"
    )
    size = 300_000
    async with open_sandbox() as sandbox:
        await sandbox.write_file("file", b"a" * size)
        async with sandbox.spawn(["python3", "-I", "-S", "-c", code], timeout_s=60) as reader:
            assert await anext(reader.stdout) == b"ready\n"
            for letter in b"bcdefz":
                await sandbox.write_file("file", bytes([letter]) * size)
            said = b"".join([piece async for piece in reader.stdout])
        assert said.decode().strip() == f"[({size}, 1)]"
        assert [entry.name for entry in await sandbox.list_dir()] == ["file"]


async def broken_write(open_sandbox: OpenSandbox) -> None:
    """A write whose source fails midway leaves the old content, and no other file."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"new"
        raise LookupError("the source broke")

    async with open_sandbox() as sandbox:
        await sandbox.write_file("file", b"old")
        await error_of(LookupError, sandbox.write_file("file", pieces()))
        assert await sandbox.read_file("file") == b"old"
        assert [entry.name for entry in await sandbox.list_dir()] == ["file"]


async def modes(open_sandbox: OpenSandbox) -> None:
    """A new file has mode 0644 or the given one; a file that is written again keeps its mode."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("plain", b"")
        await sandbox.write_file("tool", b"", mode=0o755)
        await sandbox.write_file("tool", b"again")
        await sandbox.write_file("secret", b"", mode=0o600)
        await sandbox.write_file("none", b"", mode=0)
        result = await sandbox.run(["stat", "-c", "%a", "plain", "tool", "secret", "none"])
    assert result.stdout.split() == ["644", "755", "600", "0"]


async def links(open_sandbox: OpenSandbox) -> None:
    """Reading and writing follow a link and keep it; removing removes only the link."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("target", b"old")
        await shell(sandbox, "ln -s target link; ln -s nowhere dangling; ln -s loop loop")
        await sandbox.write_file("link", b"new")
        assert await sandbox.read_file("target") == b"new"
        kinds = {entry.name: entry.kind for entry in await sandbox.list_dir()}
        assert kinds == {"target": "file", "link": "link", "dangling": "link", "loop": "link"}
        assert await _errno(sandbox, "read", "dangling") == "ENOENT"
        assert await _errno(sandbox, "read", "loop") == "ELOOP"
        await sandbox.remove("link")
        assert await sandbox.read_file("target") == b"new"


async def listing(open_sandbox: OpenSandbox) -> None:
    """A listing has names, kinds and sizes, sorted by name and including hidden files."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("b", b"12345")
        await sandbox.write_file(".a", b"")
        await sandbox.write_file("c/d", b"")
        await shell(sandbox, "mkfifo e")
        entries = await sandbox.list_dir()
    assert [(entry.name, entry.kind) for entry in entries] == [
        (".a", "file"),
        ("b", "file"),
        ("c", "dir"),
        ("e", "other"),
    ]
    assert entries[1].size == 5


async def large_directory(open_sandbox: OpenSandbox) -> None:
    """A directory of 5000 entries is listed completely, and refused where fewer are allowed."""
    async with open_sandbox() as sandbox:
        made = await python(
            sandbox, "import os; os.mkdir('d'); [open(f'd/{n:05}', 'w').close() for n in range(5000)]"
        )
        assert made.ok, made.stderr
        assert [entry.name for entry in await sandbox.list_dir("d")] == [f"{n:05}" for n in range(5000)]
        assert len(await sandbox.list_dir("d", limit=5000)) == 5000
        error = await error_of(SandboxFileError, sandbox.list_dir("d", limit=4999))
        assert error.errno_name == "E2BIG"


async def removing_a_tree(open_sandbox: OpenSandbox) -> None:
    """A directory is removed with its contents, without following links in it."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("tree/a/b/c", b"")
        await sandbox.write_file("outside/kept", b"")
        await shell(sandbox, "ln -s ../outside tree/link; ln -s ../../outside/kept tree/a/link")
        await sandbox.remove("tree")
        assert [entry.name for entry in await sandbox.list_dir()] == ["outside"]
        assert [entry.name for entry in await sandbox.list_dir("outside")] == ["kept"]


async def removing_deep_trees(open_sandbox: OpenSandbox) -> None:
    """A tree deeper than the longest path can be removed, too."""
    code = "import os\nfor n in range(1200): os.mkdir('deepdir'); os.chdir('deepdir')"
    async with open_sandbox() as sandbox:
        assert (await python(sandbox, code)).ok
        await sandbox.remove("deepdir")
        assert await sandbox.list_dir() == []


async def many_at_once(open_sandbox: OpenSandbox) -> None:
    """Many files can be written and read concurrently."""
    async with open_sandbox() as sandbox:

        async def one(number: int) -> None:
            data = os.urandom(10_000)
            await sandbox.write_file(f"at/once/{number}", data)
            assert await sandbox.read_file(f"at/once/{number}") == data

        async with anyio.create_task_group() as tasks:
            for number in range(24):
                tasks.start_soon(one, number)


CHECKS = (
    written_and_read,
    empty_file,
    odd_names,
    large_file,
    too_large,
    endless_file,
    stream_left_early,
    not_found,
    is_a_directory,
    no_permission,
    no_path,
    atomic_write,
    broken_write,
    modes,
    links,
    listing,
    large_directory,
    removing_a_tree,
    removing_deep_trees,
    many_at_once,
)
