"""The kernel enforces bounds on git on the host, and only one module starts git."""

import ast
import re
from pathlib import Path

import pytest
from tests.sandbox.workspace.git.bombs import delta_bomb

import ringfence
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached, GitBounds, write_clean_git_dir
from ringfence.sandbox.workspace.git.packs import PackRefused, take_pack
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio
_STARTERS = {"run_process", "start_process", "open_process", "Popen", "create_subprocess_exec"}
_HOME = Path("sandbox/workspace/git/command.py")


@pytest.fixture
def empty(tmp_path: Path) -> Git:
    """An empty git directory that ringfence made."""
    write_clean_git_dir(tmp_path / "git")
    return Git(tmp_path / "git")


async def test_small_pack_with_a_large_object_stops_at_the_memory_limit(empty: Git):
    """A pack of a few hundred bytes cannot have git on the host take more memory than its limit."""
    pack, _ = delta_bomb(512)
    assert len(pack) < 5000
    git = Git(empty.directory, bounds=GitBounds(memory_bytes=128 * 1024**2))
    with pytest.raises(GitBoundReached, match="more memory than its limit, 128 MiB") as caught:
        await take_pack(git, pack)
    assert caught.value.bound == "memory"


async def test_too_large_an_object_is_refused(empty: Git):
    """A pack that git could just unpack is refused if the user's own git would later have trouble with an object."""
    with pytest.raises(PackRefused, match="bytes unpacked"):
        await take_pack(empty, delta_bomb(300)[0])


async def test_delta_of_ordinary_size_is_imported(empty: Git):
    """A pack with deltas is imported if its objects have an ordinary size."""
    pack, commit = delta_bomb(2)
    await take_pack(empty, pack)
    assert (await empty.run("cat-file", "-s", f"{commit}:zeros")).stdout == b"%d\n" % (2 * 1024**2)


@pytest.mark.parametrize(
    ("bounds", "command", "bound"),
    [
        (GitBounds(file_bytes=4096), ("hash-object", "-w", "--stdin"), "file size"),
        (GitBounds(memory_bytes=8 * 1024**2), ("hash-object", "--stdin"), "memory"),
    ],
    ids=["file-size", "memory"],
)
async def test_bound_is_named(bounds: GitBounds, command: tuple[str, ...], bound: str, empty: Git):
    """The error has the bound that ended git as an attribute, not only in its text."""
    data = bytes(range(256)) * 256 * 1024
    git = Git(empty.directory, bounds=bounds, options=("core.compression=0",))
    with pytest.raises(GitBoundReached) as caught:
        await git.run(*command, stdin=data)
    assert caught.value.bound == bound


@pytest.mark.parametrize(
    "name", ["bomb", '!b*[o]\\m "b"\n', "n" * 200 + "/" + "m" * 200], ids=["plain", "odd", "long"]
)
async def test_file_with_too_many_lines_counts_as_binary(name: str, workspace: Path, store: SnapshotStore):
    """A file with more lines than git may hold is shown as binary and is in the patch; other files are text."""
    before = await store.take("r/before")
    (workspace / name).parent.mkdir(exist_ok=True)
    (workspace / name).write_bytes(b"\n" * (25 * 1024**2))
    (workspace / "text").write_text("text\n")
    after = await store.take("r/after", base=before.id)
    bomb, text = sorted(
        (await store.diff(before.id, after.id)).files, key=lambda change: change.path == "text"
    )
    assert (bomb.path, bomb.kind, bomb.binary, text.insertions) == (name, "added", True, 1)
    patch = await store.patch(before.id, after.id)
    assert patch.count(b"GIT binary patch") == 1
    assert b"\n+text\n" in patch
    assert len(patch) < 1024**2


def test_git_is_started_in_one_module():
    """Only one module starts git, so that its bounds hold for every git process."""
    root = Path(ringfence.__file__).parent
    others = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root) != _HOME
        if re.search('"git"|git_program', text := path.read_text())
        for line in _starts_git(ast.parse(text))
    ]
    assert others == []


def _starts_git(module: ast.Module) -> list[int]:
    """Lines that name git as a program, or look for it, in a module that can start programs of the host."""
    found = []
    names = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    for node in ast.walk(module):
        first: ast.expr | None = None
        if isinstance(node, ast.List | ast.Tuple) and node.elts and names & _STARTERS:
            first = node.elts[0]
        elif isinstance(node, ast.Call) and _called(node) in {"host_program", "which"} and node.args:
            first = node.args[0]
        is_name = isinstance(first, ast.Constant) and first.value == "git"
        if first is not None and (
            is_name or (isinstance(first, ast.Call) and _called(first) == "git_program")
        ):
            found.append(first.lineno)
    return found


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))
