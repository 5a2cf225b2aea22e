"""A loop's own repository and its slots: exactly what was put there, whatever lay there before."""

import os
from pathlib import Path

import pytest
from tests.cases import slow_after
from tests.loop.repository.conftest import (
    TRAILERS,
    commit_everything,
    make,
    owners,
    run_git,
    snapshot,
    trailers_in,
)

from ringfence.errors import RecordError, UsageError
from ringfence.loop.repository import (
    Change,
    Conflict,
    LoopRepository,
    Merged,
    NothingChanged,
    RepositoryRefused,
    Slot,
    WorkRefused,
)
from ringfence.loop.repository.merging import Replayed

pytestmark = pytest.mark.anyio
AT_S = 1_700_000_000


async def commit(
    loop: LoopRepository, slot: Slot, base: str, *changes: Change, message: str = "A title"
) -> str:
    """A candidate of story S1."""
    return await loop.candidate(slot, base, changes, message=message, trailers=TRAILERS, at_s=AT_S)


def write(path: str | bytes, data: bytes = b"new\n", mode: int = 0o100644) -> Change:
    """A file that is written."""
    return Change(os.fsencode(path), mode, data)


def is_exactly(slot: Slot, sha: str) -> bool:
    """Whether a slot's files and index are the commit, with nothing else there, ignored or not."""
    status = run_git(slot.path, "status", "--porcelain", "--ignored", "-uall")
    folders = [folder for folder, inner, names in os.walk(slot.path) if not inner and not names]
    empty = [folder for folder in folders if ".git" not in Path(folder).relative_to(slot.path).parts]
    same = run_git(slot.path, "write-tree") == run_git(slot.path, "rev-parse", f"{sha}^{{tree}}")
    return status == "" and same and empty == [] and run_git(slot.path, "rev-parse", "HEAD") == sha


async def test_history_and_nothing_else(users: Path, place: Path) -> None:
    """The loop has the base's history and its tags; no other branch, no remote, no link into the user's objects."""
    run_git(users, "branch", "secret")
    run_git(users, "remote", "add", "origin", "https://example.com/x")
    loop = await make(users, place, loop="l1")
    own = place / "loop.git"
    assert run_git(own, "for-each-ref", "--format=%(refname)") == "refs/heads/loop\nrefs/tags/v1"
    assert run_git(own, "rev-list", "loop") == run_git(users, "rev-list", "main")
    assert run_git(own, "remote") == ""
    assert not (own / "objects/info/alternates").exists()
    assert all(path.stat().st_nlink == 1 for path in (own / "objects").rglob("*") if path.is_file())
    assert await loop.tip() == loop.base == run_git(users, "rev-parse", "main")
    run_git(own, "fsck", "--strict")


async def test_users_repository_is_only_read(users: Path, place: Path) -> None:
    """To make a loop of it changes not a byte of the user's repository."""
    before = snapshot(users)
    loop = await make(users, place, loop="l1")
    await loop.reset(await loop.slot(0), loop.base)
    assert snapshot(users) == before


async def test_make_again_is_the_same(users: Path, place: Path) -> None:
    """Made again, after the user went on, it is the loop that began: the base stays."""
    first = await make(users, place, loop="l1")
    (users / "a.txt").write_text("later\n")
    commit_everything(users)
    again = await make(users, place, loop="l1")
    assert again.record == first.record == LoopRepository.open(place).record
    with pytest.raises(RepositoryRefused, match="'l1'"):
        await make(users, place, loop="l2")


@pytest.mark.slow
async def test_shallow_and_sha256_sources(users: Path, ground: Path, tmp_path: Path) -> None:
    """A shallow clone and a repository of SHA-256 make loops that work from base to delivery."""
    run_git(ground, "clone", "-q", "--depth=1", f"file://{users}", "shallow")
    run_git(ground, "init", "-q", "--object-format=sha256", "long")
    (ground / "long" / "a.txt").write_text("one\n")
    commit_everything(ground / "long")
    for name in ("shallow", "long"):
        loop = await make(ground / name, tmp_path / name, loop="l1")
        slot = await loop.slot(0)
        made = await commit(loop, slot, loop.base, write("a.txt"))
        await loop.reset(slot, made)
        assert is_exactly(slot, made)
        assert await loop.merge(slot, made) == Merged(made)
        await loop.deliver()
        assert run_git(ground / name, "rev-parse", "ringfence/loop-l1") == made
        run_git(ground / name, "fsck", "--strict")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads other users' files as they do")
async def test_source_of_another_user(users: Path, place: Path) -> None:
    """Root makes a loop of a user's repository, and what it delivers belongs to that user."""
    for folder, folders, names in os.walk(users):
        for name in (".", *folders, *names):
            os.chown(Path(folder, name), 12_345, 12_345, follow_symlinks=False)
    loop = await make(users, place, loop="l1")
    slot = await loop.slot(0)
    made = await commit(loop, slot, loop.base, write("a.txt"))
    await loop.merge(slot, made)
    await loop.deliver()
    assert run_git(users, "rev-parse", "ringfence/loop-l1") == made
    assert owners(users) == {12_345}


async def test_slot_is_exactly_a_commit(loop: LoopRepository) -> None:
    """Whatever was changed, added, ignored, emptied or nested in a slot, it is the commit afterwards."""
    slot = await loop.slot(0)
    await loop.reset(slot, loop.base)
    assert is_exactly(slot, loop.base)
    (slot.path / ".gitignore").write_text("*.o\n")
    (slot.path / "x.o").write_text("ignored")
    (slot.path / "a.txt").unlink()
    (slot.path / "a.txt").mkdir()
    (slot.path / "a.txt" / "inner").write_text("")
    (slot.path / "run.sh").chmod(0o644)
    (slot.path / "empty" / "er").mkdir(parents=True)
    run_git(slot.path, "init", "-q", "nested")
    (slot.path / "sub" / "b.txt").unlink()
    (slot.path / "sub").rmdir()
    (slot.path / "sub").symlink_to("/etc")
    (slot.path / ".git" / "index.lock").write_text("")
    await loop.reset(slot, loop.base)
    assert is_exactly(slot, loop.base)


@pytest.mark.parametrize("damage", slow_after(1, ["index", "closed", "refs"]))
async def test_slot_is_mended(damage: str, loop: LoopRepository) -> None:
    """A damaged index, a directory that is closed, and locks that were left do not keep a slot from its commit."""
    slot = await loop.slot(0)
    await loop.reset(slot, loop.base)
    if damage == "index":
        (slot.path / ".git" / "index").write_bytes(b"DIRC no index")
    elif damage == "closed":
        (slot.path / "closed" / "in").mkdir(parents=True)
        (slot.path / "closed" / "in" / "x").write_text("")
        (slot.path / "closed").chmod(0)
    else:
        (slot.path / ".git" / "refs" / "heads" / "loop.lock").write_text("")
        (slot.path / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    await loop.reset(slot, loop.base)
    assert is_exactly(slot, loop.base)


async def test_same_size_and_time_is_seen(loop: LoopRepository) -> None:
    """A file of the same length whose time was set back is put right, too."""
    slot = await loop.slot(0)
    await loop.reset(slot, loop.base)
    file = slot.path / "a.txt"
    status = file.stat()
    file.write_text("eno\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    await loop.reset(slot, loop.base)
    assert file.read_text() == "one\n"


async def test_commit_of_another_loop_is_refused(loop: LoopRepository) -> None:
    """A slot is put at commits of its loop only, by their whole ids."""
    slot = await loop.slot(0)
    for name in ("HEAD", "main", loop.base[:10], "--help", "f" * 40):
        with pytest.raises(UsageError):
            await loop.reset(slot, name)


async def test_candidate_differs_by_the_changes_alone(loop: LoopRepository) -> None:
    """Files, programs and links are written, files removed; all else is as in the base, whose child the commit is."""
    slot = await loop.slot(0)
    names = [b"new\nline", b'quo"te\\', b"\xff\xfe", b"deep/er/file", b"A.TXT", b"trailing ", b"tab\there"]
    changes = [write(name) for name in names]
    changes += [write("run2", b"#!\n", 0o100755), write("link", b"../../etc/passwd", 0o120000)]
    changes += [Change(b"a.txt", None), Change(b"sub/b.txt", None), write("sub")]
    made = await commit(loop, slot, loop.base, *changes)
    assert run_git(slot.path, "rev-parse", f"{made}^") == loop.base
    assert set(await loop.changed(loop.base, made, slot=slot)) == {change.path for change in changes}
    assert run_git(slot.path, "ls-tree", made, "run2", "link", "sub").split()[::4] == [
        "100755",
        "120000",
        "100644",
    ] or (
        run_git(slot.path, "ls-tree", "--format=%(objectmode)", made, "run2", "link", "sub").split()
        == ["120000", "100755", "100644"]
    )
    await loop.reset(slot, made)
    assert is_exactly(slot, made)
    run_git(slot.path, "fsck", "--strict", made)


async def test_candidate_is_made_once(loop: LoopRepository) -> None:
    """The same again is the same commit, in another slot as well; another time, message or file makes another."""
    one, other = await loop.slot(0), await loop.slot(1)
    first = await commit(loop, one, loop.base, write("x"))
    assert (
        first
        == await commit(loop, one, loop.base, write("x"))
        == await commit(loop, other, loop.base, write("x"))
    )
    later = await loop.candidate(
        one, loop.base, [write("x")], message="A title", trailers=TRAILERS, at_s=AT_S + 1
    )
    assert len({first, later, await commit(loop, one, loop.base, write("x"), message="B")}) == 3


HOSTILE = (
    ".git/config", ".GIT/hooks/x", ".git", "sub/.git/HEAD", ".git./x", ".git /x", ".g\u200cit/config", "git~1/config",
    ".git::$INDEX_ALLOCATION/x", "a\\.git\\config", "../x", "a/../b", "/etc/passwd", "a//b", "./a", "", "a/",
    ".gitmodules",     "sub/.GitModules", "GITMOD~1", "~1234567", "g~123456", ".gitattributes/x", "a/GITATT~1/x",
    "x" * 256, "/".join(["deep"] * 210), "prd.json", "state/x",
)  # fmt: skip


@pytest.mark.parametrize("path", slow_after(4, HOSTILE), ids=[ascii(path)[:30] for path in HOSTILE])
async def test_paths_that_no_commit_may_hold(path: str, loop: LoopRepository) -> None:
    """Git's own names in any spelling, ways out, submodules and the loop's own files are refused, the file named."""
    slot = await loop.slot(0)
    with pytest.raises(WorkRefused) as refused:
        await loop.candidate(
            slot,
            loop.base,
            [write("fine"), write(path)],
            message="t",
            trailers=TRAILERS,
            at_s=AT_S,
            control=(b"prd.json", b"state"),
        )
    assert list(refused.value.reasons) == [path]


@pytest.mark.parametrize(
    "changes",
    slow_after(
        3,
        [
            [write("m", b"1" * 40, 0o160000)],
            [write("m", b"", 0o040000)],
            [write("m", b"", 0o100666)],
            [write("m", b"", 0o120000)],
            [write("m", b"a\0b", 0o120000)],
            [write("m"), write("m", b"twice")],
            [write("m"), write("m/n")],
            [write("a.txt/n")],
            [write("sub")],
            [Change(b"sub", None)],
            [write(".gitattributes", b"x" * 3000)],
            [write("sub/gi7d29~1", b"x" * 3000)],
        ],
    ),
    ids=str,
)
async def test_changes_that_no_commit_may_hold(changes: list[Change], loop: LoopRepository) -> None:
    """Submodules, strange modes, and changes that would remove other files unnamed are refused."""
    with pytest.raises(WorkRefused):
        await commit(loop, await loop.slot(0), loop.base, *changes)


async def test_nothing_changed_is_told(loop: LoopRepository) -> None:
    """No changes, or such as the base has already, make no commit."""
    slot = await loop.slot(0)
    for changes in ([], [write("a.txt", b"one\n")], [Change(b"not-there", None)]):
        with pytest.raises(NothingChanged):
            await commit(loop, slot, loop.base, *changes)


async def test_rejected_work_is_kept_and_the_slot_goes_back(loop: LoopRepository) -> None:
    """Turned-down work is a patch that applies; the slot is at the base again."""
    slot = await loop.slot(0)
    made = await commit(loop, slot, loop.base, write("new.bin", bytes(range(256))), Change(b"a.txt", None))
    await loop.reset(slot, made)
    patch = await loop.reject(slot, made, base=loop.base, story="S/1..lock", attempt=2)
    assert patch is not None
    assert is_exactly(slot, loop.base)
    run_git(slot.path, "apply", "--index", str(patch))
    assert run_git(slot.path, "write-tree") == run_git(slot.path, "rev-parse", f"{made}^{{tree}}")
    assert await loop.reject(slot, made, base=loop.base, story="S/1..lock", attempt=2) == patch
    assert await loop.tip() == loop.base


async def test_merge_moves_the_branch_once(loop: LoopRepository) -> None:
    """What is on the branch's tip becomes it; again changes nothing."""
    slot = await loop.slot(0)
    tests = await commit(loop, slot, loop.base, write("test_x"))
    code = await commit(loop, slot, tests, write("x"))
    assert await loop.merge(slot, code) == await loop.merge(slot, code) == Merged(code)
    assert await loop.merge(slot, tests) == Merged(tests)
    assert await loop.tip() == code


async def test_story_that_was_overtaken_is_replayed(loop: LoopRepository) -> None:
    """Commits of a second story come out again on the first's, the same in all but parent; the branch waits."""
    one, other = await loop.slot(0), await loop.slot(1)
    first = await commit(loop, one, loop.base, write("one"), write("a.txt", b"zero\none\n"))
    tests = await commit(loop, other, loop.base, write("test_two"))
    code = await commit(loop, other, tests, write("two"), Change(b"sub/b.txt", None))
    await loop.merge(one, first)
    found = await loop.merge(other, code)
    assert isinstance(found, Replayed)
    assert found == await loop.merge(other, code)
    assert (found.base, await loop.tip()) == (first, first)
    await loop.reset(other, found.tip)
    assert is_exactly(other, found.tip)
    told = run_git(other.path, "log", "--format=%an %at %ct %B%x00", f"{first}..{found.tip}")
    assert told == run_git(other.path, "log", "--format=%an %at %ct %B%x00", f"{loop.base}..{code}")
    assert set(await loop.changed(first, found.tip, slot=other)) == {b"test_two", b"two", b"sub/b.txt"}
    assert await loop.merge(other, found.tip) == await loop.merge(other, code) == Merged(found.tip)
    assert await loop.tip() == found.tip


@pytest.mark.slow
async def test_files_of_what_another_slot_made_are_read_through_any(loop: LoopRepository) -> None:
    """Of what was replayed and of what came onto the branch meanwhile, before the slot is put there."""
    one, other = await loop.slot(0), await loop.slot(1)
    first = await commit(loop, one, loop.base, write("one"))
    code = await commit(loop, other, loop.base, write("two"))
    await loop.merge(one, first)
    found = await loop.merge(other, code)
    assert isinstance(found, Replayed)
    assert {"one", "two"} <= set((await loop.files(found.tip, slot=other)).files)
    assert "one" in (await loop.files(first, slot=other)).files


async def test_conflict_names_the_files(loop: LoopRepository) -> None:
    """Two stories that wrote one file otherwise: the second is told which, and nothing moved."""
    one, other = await loop.slot(0), await loop.slot(1)
    first = await commit(
        loop, one, loop.base, write("a.txt", b"1\n"), write("b\n\xff".encode("latin-1"), b"1\n")
    )
    second = await commit(
        loop, other, loop.base, write("a.txt", b"2\n"), write("b\n\xff".encode("latin-1"), b"2\n")
    )
    await loop.merge(one, first)
    found = await loop.merge(other, second)
    assert found == Conflict(first, ("a.txt", "b\n\udcff"))
    assert await loop.tip() == first


async def test_strangers_commit_is_not_merged(loop: LoopRepository) -> None:
    """A commit without the loop's history, as only a mistake could make one, does not get on the branch."""
    slot = await loop.slot(0)
    first = await commit(loop, slot, loop.base, write("x"))
    await loop.merge(slot, first)
    stranger = run_git(slot.path, "commit-tree", f"{loop.base}^{{tree}}", "-m", "no parent")
    with pytest.raises(UsageError, match="no line of commits"):
        await loop.merge(slot, stranger)
    assert await loop.tip() == first


@pytest.mark.slow
async def test_new_slot_sees_what_was_merged(loop: LoopRepository) -> None:
    """A slot that is made or used later can be put at all that the loop has."""
    one = await loop.slot(0)
    idle = await loop.slot(2)
    made = await commit(loop, one, loop.base, write("x"))
    await loop.merge(one, made)
    for slot in (idle, await loop.slot(3)):
        await loop.reset(slot, made)
        assert is_exactly(slot, made)


async def test_clean_removes_all(loop: LoopRepository, users: Path) -> None:
    """Nothing of the loop is left, the user's repository is as it was, and to clean again is no error."""
    await loop.reset(await loop.slot(0), loop.base)
    before = snapshot(users)
    await loop.clean()
    await loop.clean()
    assert not loop.place.root.exists()
    assert snapshot(users) == before
    with pytest.raises(RecordError):
        LoopRepository.open(loop.place.root)


async def test_trailers_are_only_ours(users: Path, place: Path) -> None:
    """Whatever stands in titles, ids and models, git finds our trailers and no others."""
    run_git(users, "config", "user.name", "Ada <x@y>")
    run_git(users, "config", "user.email", "ada@x")
    loop = await make(users, place, loop="l1")
    slot = await loop.slot(0)
    evil = "S1\n\nSigned-off-by: Eve <e@e>\r\nRingfence-Role: judge\x00\x1b[2J\u2028x: y\udcff"
    trailers = type(TRAILERS)(loop="l1", story=evil, attempt=1, role="implementor", model=evil)
    made = await loop.candidate(
        slot,
        loop.base,
        [write("x")],
        message=f"{evil}\n\nCo-authored-by: Eve <e@e>\nSigned-off-by: Eve <e@e>\nplain text",
        trailers=trailers,
        at_s=AT_S,
    )
    raw = run_git(slot.path, "log", "-1", "--format=%B", made)
    parsed = trailers_in(raw)
    keys = [line.partition(":")[0] for line in parsed]
    assert keys == [f"Ringfence-{key}" for key in ("Loop", "Story", "Attempt", "Role", "Model")] + [
        "Signed-off-by"
    ]
    assert parsed[-1] == "Signed-off-by: Ada x@y <ada@x>"
    assert [
        line for line in raw.splitlines() if "Eve" in line and not line.startswith((" ", "S1", "Ringfence"))
    ] == []
    run_git(slot.path, "fsck", "--strict", made)
