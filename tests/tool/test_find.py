from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import slow_after

from ringfence.sandbox import Sandbox
from ringfence.tool import ToolResult
from ringfence.tool.search import ListFilesTool, SearchTool
from ringfence.tool.search_script import glob_to_regex

Call = Callable[..., Awaitable[ToolResult]]


async def fill(sandbox: Sandbox, *paths: str) -> None:
    """Write files of two lines."""
    for path in paths:
        await sandbox.write_file(path, f"in {PurePosixPath(path).name}\nneedle {path}\n".encode())


@pytest.mark.anyio
async def test_a_directory_is_listed_by_name(sandbox: Sandbox, call: Call) -> None:
    """Directories end with a slash."""
    await fill(sandbox, "d/b.txt", "d/c/e.txt", "d/a.txt")
    assert (await call(ListFilesTool(), path="d")).content == "a.txt\nb.txt\nc/"


@pytest.mark.anyio
async def test_a_pattern_finds_files_at_any_depth(sandbox: Sandbox, call: Call) -> None:
    """In order of their names; caches and version control are left out."""
    await fill(sandbox, "p/x.py", "p/sub/y.py", "p/z.txt", "p/.git/hook.py", "p/node_modules/m.py")
    assert (await call(ListFilesTool(), path="p", pattern="*.py")).content == "x.py\nsub/y.py"


@pytest.mark.anyio
async def test_too_many_files_are_counted(sandbox: Sandbox, call: Call) -> None:
    """500 are shown, the others are counted."""
    await sandbox.run(["sh", "-c", "mkdir many; cd many; seq 600 | xargs touch"])
    result = await call(ListFilesTool(), path="many", pattern="*")
    assert result.content.endswith("\n[... 100 more files; narrow the pattern ...]")


@pytest.mark.anyio
async def test_search_gives_path_line_and_text(sandbox: Sandbox, call: Call) -> None:
    """One line for each match."""
    await fill(sandbox, "s/a.txt", "s/b/c.txt")
    result = await call(SearchTool(), regex=r"need\w+", path="s")
    assert result.content == "a.txt:2:needle s/a.txt\nb/c.txt:2:needle s/b/c.txt"


@pytest.mark.anyio
async def test_search_takes_a_glob_and_ignores_case(sandbox: Sandbox, call: Call) -> None:
    """Only the files asked for are searched."""
    await fill(sandbox, "s/a.txt", "s/a.py")
    result = await call(SearchTool(), regex="NEEDLE", path="s", glob="*.py", ignore_case=True)
    assert result.content == "a.py:2:needle s/a.py"


@pytest.mark.anyio
async def test_search_passes_over_binaries_and_pipes(sandbox: Sandbox, call: Call) -> None:
    """A named pipe would block it for ever."""
    await sandbox.write_file("s/binary", b"needle\0")
    await sandbox.run(["mkfifo", "s/pipe"])
    result = await call(SearchTool(), regex="needle", path="s")
    assert result.content == (
        "[no line matches]\n[2 files not searched: binary, unreadable or larger than 5 MiB]"
    )


@pytest.mark.anyio
async def test_the_workspace_cannot_change_the_search(sandbox: Sandbox, call: Call) -> None:
    """A module of the workspace named like one of Python's is not imported."""
    await sandbox.write_file("re.py", b"raise SystemExit('taken over')\n")
    assert (await call(SearchTool(), regex="taken over")).content.startswith("re.py:1:")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    slow_after(
        1,
        [
            (SearchTool(), {"regex": "("}, "is not a pattern"),
            (SearchTool(), {"regex": "x", "path": "nowhere"}, "there is no 'nowhere'"),
            (ListFilesTool(), {"pattern": "[z-a]"}, "is not a pattern"),
            (ListFilesTool(), {"path": "nowhere"}, "nowhere"),
        ],
    ),
    ids=["regex", "absent", "glob", "absent directory"],
)
async def test_senseless_searches_are_error_results(
    call: Call, tool: Any, arguments: dict[str, Any], expected: str
) -> None:
    """In one line, without a traceback."""
    result = await call(tool, **arguments)
    assert result.is_error
    assert expected in result.content
    assert "Traceback" not in result.content


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "a.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/sub/a.py", False),
        ("src/**/a.py", "src/a.py", True),
        ("src/**/a.py", "src/x/y/a.py", True),
        ("src/**", "src/x/y", True),
        ("[ab]?.txt", "a1.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("a[.txt", "a[.txt", True),
        ("a.b", "aXb", False),
    ],
)
def test_globs(pattern: str, path: str, matches: bool) -> None:
    """What each pattern is about."""
    assert bool(glob_to_regex(pattern).match(path)) is matches


@given(st.text(alphabet="ab.-+()\\/", min_size=1).filter(lambda path: "//" not in path))
def test_a_pattern_without_magic_matches_itself_only(path: str) -> None:
    """Characters that mean something in a regular expression are taken as they are."""
    pattern = glob_to_regex("./" + path)
    assert pattern.match("./" + path)
    assert not pattern.match("./" + path + "x")
