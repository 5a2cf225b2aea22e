from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ringfence.sandbox import Sandbox
from ringfence.tool import ToolResult
from ringfence.tool.files import EditFileTool, ReadFileTool, WriteFileTool

pytestmark = pytest.mark.anyio
Call = Callable[..., Awaitable[ToolResult]]


async def test_lines_are_numbered(sandbox: Sandbox, call: Call) -> None:
    """As `cat -n` prints them."""
    await sandbox.write_file("a.txt", b"one\ntwo\n")
    assert await call(ReadFileTool(), path="a.txt") == ToolResult("     1\tone\n     2\ttwo")


async def test_a_range_of_lines(sandbox: Sandbox, call: Call) -> None:
    """Both ends are included."""
    await sandbox.write_file("a.txt", b"1\n2\n3\n4\n")
    result = await call(ReadFileTool(), path="a.txt", start_line=2, end_line=3)
    assert result.content == "     2\t2\n     3\t3"


async def test_a_long_file_says_where_to_go_on(sandbox: Sandbox, call: Call) -> None:
    """At most 2000 lines at a time."""
    await sandbox.write_file("a.txt", b"x\n" * 3000)
    result = await call(ReadFileTool(), path="a.txt")
    assert result.content.endswith("\n[lines 1-2000 of 3000; go on with start_line=2001]")


async def test_long_lines_are_cut_and_marked(sandbox: Sandbox, call: Call) -> None:
    """A minified file does not fill the window."""
    await sandbox.write_file("a.js", b"x" * 100_000)
    result = await call(ReadFileTool(), path="a.js")
    assert result.content.endswith("x[... 98000 characters cut ...]")


@pytest.mark.parametrize(
    ("data", "arguments", "expected"),
    [
        (b"\x7fELF\0\0", {}, "is binary (6 bytes)"),
        (b"caf\xe9", {}, "not UTF-8 text (byte 0xe9 at offset 3 of 4)"),
        (b"x\n", {"start_line": 5}, "past the end"),
        (b"x\n", {"start_line": 3, "end_line": 2}, "before start_line"),
    ],
    ids=["binary", "latin-1", "past the end", "backwards"],
)
async def test_what_cannot_be_read_is_an_error_result(
    sandbox: Sandbox, call: Call, data: bytes, arguments: dict[str, Any], expected: str
) -> None:
    """The text says what is the matter."""
    await sandbox.write_file("a", data)
    result = await call(ReadFileTool(), path="a", **arguments)
    assert result.is_error
    assert expected in result.content


async def test_an_absent_file_is_an_error_result(call: Call) -> None:
    """With the path."""
    result = await call(ReadFileTool(), path="nowhere.txt")
    assert result.is_error
    assert "nowhere.txt" in result.content


async def test_write_makes_parents(sandbox: Sandbox, call: Call) -> None:
    """A file in a directory that is not there yet."""
    assert await call(WriteFileTool(), path="a/b/c.txt", content="é") == ToolResult(
        "wrote 2 bytes to a/b/c.txt"
    )
    assert await sandbox.read_file("a/b/c.txt") == "é".encode()


async def test_writing_a_directory_is_an_error_result(sandbox: Sandbox, call: Call) -> None:
    """Nothing is lost."""
    await sandbox.write_file("d/file", b"")
    assert (await call(WriteFileTool(), path="d", content="x")).is_error


async def test_edit_replaces_one_occurrence(sandbox: Sandbox, call: Call) -> None:
    """The rest of the file stays, line ends too."""
    await sandbox.write_file("a.py", b"x = 1\r\ny = 2\r\n")
    result = await call(EditFileTool(), path="a.py", old_text="y = 2", new_text="y = 3")
    assert result == ToolResult("a.py: replaced 1 occurrence at line 2")
    assert await sandbox.read_file("a.py") == b"x = 1\r\ny = 3\r\n"


async def test_a_refused_edit_changes_nothing(sandbox: Sandbox, call: Call) -> None:
    """Ambiguous: the count and the lines are told."""
    await sandbox.write_file("a.py", b"x\nx\n")
    result = await call(EditFileTool(), path="a.py", old_text="x", new_text="y")
    assert result.is_error
    assert "2 times (at lines 1, 2)" in result.content
    assert await sandbox.read_file("a.py") == b"x\nx\n"


async def test_an_edit_keeps_the_mode(sandbox: Sandbox, call: Call) -> None:
    """A script stays executable."""
    await sandbox.write_file("run.sh", b"echo 1\n", mode=0o755)
    await call(EditFileTool(), path="run.sh", old_text="1", new_text="2")
    assert (await sandbox.run(["./run.sh"])).stdout == "2\n"
