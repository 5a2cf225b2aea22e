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

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.loop.repository import (
    Candidate,
    Change,
    Conflict,
    LoopRepository,
    Merged,
    NothingChanged,
    RepositoryRefused,
    RepositoryRemoved,
    WorkRefused,
    Worktree,
)

pytestmark = pytest.mark.anyio
AT_S = 1_700_000_000


async def commit(loop: LoopRepository, base: str, *changes: Change, message: str = "A title") -> str:
    """A commit of story S1."""
    return await loop.commit(base, changes, message=message, trailers=TRAILERS, at_s=AT_S)


async def revert(loop: LoopRepository, tip: str) -> Merged | Conflict:
    """Take back all of a story that began at the base."""
    return await loop.revert(loop.base, tip, message="Take back", trailers=TRAILERS, at_s=AT_S)


def write(path: str | bytes, data: bytes = b"new\n", mode: int = 0o100644) -> Change:
    """A file that is written."""
    return Change(os.fsencode(path), mode, data)


def is_exactly(slot: Worktree, sha: str) -> bool:
    """Whether a worktree's files and index are the commit, with nothing else there, ignored or not."""
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


async def test_a_tag_with_a_line_separator_in_its_name(users: Path, place: Path) -> None:
    """The loop starts in a repository whose tag has a separator of lines in its name, and has that tag."""
    run_git(users, "tag", "a\u2028--not")
    await make(users, place, loop="l1")
    assert (
        "refs/tags/a\u2028--not\n"
        in run_git(place / "loop.git", "for-each-ref", "--format=%(refname)") + "\n"
    )


async def test_users_repository_is_only_read(users: Path, place: Path) -> None:
    """To make a loop of it changes not a byte of the user's repository."""
    before = snapshot(users)
    loop = await make(users, place, loop="l1")
    await loop.checkout(0, loop.base)
    assert snapshot(users) == before


async def test_make_again_is_the_same(users: Path, place: Path) -> None:
    """Made again, after the user went on, it is the loop that began: the base stays."""
    first = await make(users, place, loop="l1")
    (users / "a.txt").write_text("later\n")
    commit_everything(users)
    again = await make(users, place, loop="l1")
    assert again.origin == first.origin == LoopRepository.open(place).origin
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
        made = await commit(loop, loop.base, write("a.txt"))
        slot = await loop.checkout(0, made)
        assert is_exactly(slot, made)
        assert await loop.fast_forward_or_rebase(made) == Merged(made)
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
    made = await commit(loop, loop.base, write("a.txt"))
    await loop.fast_forward_or_rebase(made)
    await loop.deliver()
    assert run_git(users, "rev-parse", "ringfence/loop-l1") == made
    assert owners(users) == {12_345}


async def test_worktree_is_exactly_a_commit(loop: LoopRepository) -> None:
    """From commit to commit it holds the files of the one it is at; files and directories take each other's place."""
    made = await commit(
        loop, loop.base, Change(b"a.txt", None), write("a.txt/inner"), Change(b"sub/b.txt", None), write("sub"),
        write(".gitignore", b"*.o\n"), write("x.o"), write("run.sh", b"#!/bin/sh\n"),
    )  # fmt: skip
    for sha in (loop.base, made, loop.base, made):
        assert is_exactly(await loop.checkout(0, sha), sha)


@pytest.mark.parametrize("damage", slow_after(2, ["files", "index", "closed", "refs"]))
async def test_worktree_of_a_killed_process_is_mended(damage: str, loop: LoopRepository) -> None:
    """Whatever was changed, added, ignored, nested, closed or locked in it, the next process finds the commit."""
    tree = await loop.checkout(0, loop.base)
    if damage == "files":
        (tree.path / ".gitignore").write_text("*.o\n")
        (tree.path / "x.o").write_text("ignored")
        (tree.path / "a.txt").unlink()
        (tree.path / "a.txt").mkdir()
        (tree.path / "a.txt" / "inner").write_text("")
        (tree.path / "run.sh").chmod(0o644)
        (tree.path / "empty" / "er").mkdir(parents=True)
        run_git(tree.path, "init", "-q", "nested")
        (tree.path / "sub" / "b.txt").unlink()
        (tree.path / "sub").rmdir()
        (tree.path / "sub").symlink_to("/etc")
        (tree.path / ".git" / "index.lock").write_text("")
    elif damage == "index":
        (tree.path / ".git" / "index").write_bytes(b"DIRC no index")
    elif damage == "closed":
        (tree.path / "closed" / "in").mkdir(parents=True)
        (tree.path / "closed" / "in" / "x").write_text("")
        (tree.path / "closed").chmod(0)
    else:
        (tree.path / ".git" / "refs" / "heads" / "loop.lock").write_text("")
        (tree.path / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    tree = await LoopRepository.open(loop.directory.root).checkout(0, loop.base)
    assert is_exactly(tree, loop.base)


async def test_worktree_shows_nothing_of_others(loop: LoopRepository) -> None:
    """Its refs are the tags and the branch at its commit: neither what other stories made, nor what runs left."""
    tree = await loop.checkout(0, loop.base)
    run_git(tree.path, "update-ref", "refs/ringfence/run/x", loop.base)
    first = await commit(loop, loop.base, write("one"))
    await loop.fast_forward_or_rebase(first)
    await loop.fast_forward_or_rebase(await commit(loop, loop.base, write("two")))
    second = await commit(loop, loop.base, write("three"))
    tree = await loop.checkout(0, second)
    refs = run_git(tree.path, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    assert [line for line in refs if "/tags/" not in line] == [f"refs/heads/loop {second}"]


async def test_commit_of_another_loop_is_refused(loop: LoopRepository) -> None:
    """A worktree is put at commits of its loop only, by their whole ids."""
    for name in ("HEAD", "main", loop.base[:10], "--help"):
        with pytest.raises(UsageError):
            await loop.checkout(0, name)
    with pytest.raises(InfrastructureFault):
        await loop.checkout(0, "f" * 40)


async def test_candidate_differs_by_the_changes_alone(loop: LoopRepository) -> None:
    """Files, programs and links are written, files removed; all else is as in the base, whose child the commit is."""
    own = loop.directory.git_dir
    names = [b"new\nline", b'quo"te\\', b"\xff\xfe", b"deep/er/file", b"A.TXT", b"trailing ", b"tab\there"]
    changes = [write(name) for name in names]
    changes += [write("run2", b"#!\n", 0o100755), write("link", b"../../etc/passwd", 0o120000)]
    changes += [Change(b"a.txt", None), Change(b"sub/b.txt", None), write("sub")]
    made = await commit(loop, loop.base, *changes)
    assert run_git(own, "rev-parse", f"{made}^") == loop.base
    assert set(await loop.changed(loop.base, made)) == {change.path for change in changes}
    assert run_git(own, "ls-tree", made, "run2", "link", "sub").split()[::4] == [
        "100755",
        "120000",
        "100644",
    ] or (
        run_git(own, "ls-tree", "--format=%(objectmode)", made, "run2", "link", "sub").split()
        == ["120000", "100755", "100644"]
    )
    assert is_exactly(await loop.checkout(0, made), made)
    run_git(own, "fsck", "--strict", made)


async def test_candidate_is_made_once(loop: LoopRepository) -> None:
    """The same again is the same commit; another time, message or file makes another."""
    first = await commit(loop, loop.base, write("x"))
    assert first == await commit(loop, loop.base, write("x"))
    later = await loop.commit(loop.base, [write("x")], message="A title", trailers=TRAILERS, at_s=AT_S + 1)
    assert len({first, later, await commit(loop, loop.base, write("x"), message="B")}) == 3


async def test_files_of_a_commit_that_was_just_made(loop: LoopRepository) -> None:
    """They are the same as another process reads them from git, those of a mebibyte or more without contents."""
    await loop.files(loop.base)
    made = await commit(
        loop,
        loop.base,
        Change(b"a.txt", None),
        write("sub/new", b"x" * 2_000_000),
        write("run.sh", b"", 0o100755),
    )
    assert await loop.files(made) == await LoopRepository.open(loop.directory.root).files(made)


async def test_files_are_restored_whatever_their_size(loop: LoopRepository) -> None:
    """They are as in an earlier commit, those that it has not are gone, and all else is kept."""
    lock = bytes(range(256)) * 8192
    before = await commit(loop, loop.base, write("sub/lock.json", lock))
    after = await commit(loop, before, write("sub/lock.json", b"{}"), write("new.toml"), write("x.py"))
    await loop.files(before)
    found = await loop.restore(
        after, [b"sub/lock.json", b"new.toml"], before, message="As before", trailers=TRAILERS, at_s=AT_S
    )
    assert await loop.changed(before, found) == (b"x.py",)
    assert (await loop.files(found)).files["x.py"].data == b"new\n"


HOSTILE = (
    ".git/config", ".GIT/hooks/x", ".git", "sub/.git/HEAD", ".git./x", ".git /x", ".g\u200cit/config", "git~1/config",
    ".git::$INDEX_ALLOCATION/x", "a\\.git\\config", "../x", "a/../b", "/etc/passwd", "a//b", "./a", "", "a/",
    ".gitmodules",     "sub/.GitModules", "GITMOD~1", "~1234567", "g~123456", ".gitattributes/x", "a/GITATT~1/x",
    "x" * 256, "/".join(["deep"] * 210), "prd.json", "state/x",
)  # fmt: skip


@pytest.mark.parametrize("path", slow_after(4, HOSTILE), ids=[ascii(path)[:30] for path in HOSTILE])
async def test_paths_that_no_commit_may_hold(path: str, loop: LoopRepository) -> None:
    """Git's own names in any spelling, ways out, submodules and the loop's own files are refused, the file named."""
    with pytest.raises(WorkRefused) as refused:
        await loop.commit(
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
        await commit(loop, loop.base, *changes)


async def test_nothing_changed_is_told(loop: LoopRepository) -> None:
    """No changes, or such as the base has already, make no commit."""
    for changes in ([], [write("a.txt", b"one\n")], [Change(b"not-there", None)]):
        with pytest.raises(NothingChanged):
            await commit(loop, loop.base, *changes)


async def test_rejected_work_is_kept(loop: LoopRepository) -> None:
    """Rejected work is a patch that applies to its base."""
    made = await commit(loop, loop.base, write("new.bin", bytes(range(256))), Change(b"a.txt", None))
    patch = await loop.keep_rejected(loop.base, made, story="S/1..lock", attempt=2)
    assert patch is not None
    tree = await loop.checkout(0, loop.base)
    run_git(tree.path, "apply", "--index", str(patch))
    assert run_git(tree.path, "write-tree") == run_git(tree.path, "rev-parse", f"{made}^{{tree}}")
    assert await loop.keep_rejected(loop.base, made, story="S/1..lock", attempt=2) == patch
    assert await loop.tip() == loop.base


async def test_merge_moves_the_branch_once(loop: LoopRepository) -> None:
    """What is on the branch's tip becomes it; again changes nothing."""
    tests = await commit(loop, loop.base, write("test_x"))
    code = await commit(loop, tests, write("x"))
    assert await loop.fast_forward_or_rebase(code) == await loop.fast_forward_or_rebase(code) == Merged(code)
    assert await loop.fast_forward_or_rebase(tests) == Merged(tests)
    assert await loop.tip() == code


async def test_story_that_was_overtaken_is_replayed(loop: LoopRepository) -> None:
    """Commits of a second story come out again on the first's, the same in all but parent; the branch waits."""
    first = await commit(loop, loop.base, write("one"), write("a.txt", b"zero\none\n"))
    tests = await commit(loop, loop.base, write("test_two"))
    code = await commit(loop, tests, write("two"), Change(b"sub/b.txt", None))
    await loop.fast_forward_or_rebase(first)
    found = await loop.fast_forward_or_rebase(code)
    assert isinstance(found, Candidate)
    assert found == await loop.fast_forward_or_rebase(code)
    assert (found.base, await loop.tip()) == (first, first)
    other = await loop.checkout(1, found.tip)
    assert is_exactly(other, found.tip)
    told = run_git(other.path, "log", "--format=%an %at %ct %B%x00", f"{first}..{found.tip}")
    assert told == run_git(other.path, "log", "--format=%an %at %ct %B%x00", f"{loop.base}..{code}")
    assert set(await loop.changed(first, found.tip)) == {b"test_two", b"two", b"sub/b.txt"}
    assert (
        await loop.fast_forward_or_rebase(found.tip)
        == await loop.fast_forward_or_rebase(code)
        == Merged(found.tip)
    )
    assert await loop.tip() == found.tip


async def test_conflict_names_the_files(loop: LoopRepository) -> None:
    """Two stories that wrote one file otherwise: the second is told which, and nothing moved."""
    first = await commit(loop, loop.base, write("a.txt", b"1\n"), write("b\n\xff".encode("latin-1"), b"1\n"))
    second = await commit(loop, loop.base, write("a.txt", b"2\n"), write("b\n\xff".encode("latin-1"), b"2\n"))
    await loop.fast_forward_or_rebase(first)
    found = await loop.fast_forward_or_rebase(second)
    assert found == Conflict(first, ("a.txt", "b\n\udcff"))
    assert await loop.tip() == first


async def test_strangers_commit_is_not_merged(loop: LoopRepository) -> None:
    """A commit without the loop's history, as only a mistake could make one, does not get on the branch."""
    first = await commit(loop, loop.base, write("x"))
    await loop.fast_forward_or_rebase(first)
    stranger = run_git(loop.directory.git_dir, "commit-tree", f"{loop.base}^{{tree}}", "-m", "no parent")
    with pytest.raises(UsageError, match="no line of commits"):
        await loop.fast_forward_or_rebase(stranger)
    assert await loop.tip() == first


async def test_revert_takes_back_a_story(loop: LoopRepository) -> None:
    """What a story changed is as before, what others changed stays; again changes nothing."""
    tests = await commit(loop, loop.base, write("test_one"))
    one = await commit(loop, tests, write("one"), Change(b"sub/b.txt", None))
    two = await commit(loop, one, write("two"), write("a.txt", b"2\n"))
    await loop.fast_forward_or_rebase(one)
    await loop.fast_forward_or_rebase(two)
    found = await revert(loop, one)
    assert isinstance(found, Merged)
    assert await loop.tip() == found.tip
    assert await loop.changed(loop.base, found.tip) == (b"a.txt", b"two")
    assert await revert(loop, one) == found
    assert run_git(loop.directory.git_dir, "rev-parse", f"{found.tip}^") == two


async def test_revert_that_does_not_fit(loop: LoopRepository) -> None:
    """What a later story changed, too, is named, and nothing moved; of commits elsewhere nothing is taken back."""
    one = await commit(loop, loop.base, write("a.txt", b"1\n"), write("x"))
    two = await commit(loop, one, write("a.txt", b"2\n"))
    other = await commit(loop, loop.base, write("y"))
    await loop.fast_forward_or_rebase(two)
    assert await revert(loop, one) == Conflict(two, ("a.txt",))
    with pytest.raises(UsageError, match="not on the loop's branch"):
        await revert(loop, other)
    assert await loop.tip() == two


async def test_loop_of_version_0_1_goes_on(loop: LoopRepository, ground: Path) -> None:
    """Version 0.1 had a clone for each story, with commits that were nowhere else: they are taken over, once."""
    slot = loop.directory.root / "slots" / "0"
    slot.parent.mkdir()
    run_git(ground, "clone", "-q", "--no-hardlinks", str(loop.directory.git_dir), str(slot))
    (slot / "work").write_text("x")
    made = commit_everything(slot, "in the clone")
    again = LoopRepository.open(loop.directory.root)
    assert not slot.parent.exists()
    assert is_exactly(await again.checkout(0, made), made)
    assert await again.fast_forward_or_rebase(made) == Merged(made)
    assert await LoopRepository.open(loop.directory.root).tip() == made


async def test_clean_removes_all(loop: LoopRepository, users: Path) -> None:
    """Nothing of the loop is left, the user's repository is as it was, and to clean again is no error."""
    await loop.checkout(0, loop.base)
    before = snapshot(users)
    await loop.clean()
    await loop.clean()
    assert not loop.directory.root.exists()
    assert snapshot(users) == before
    with pytest.raises(RepositoryRemoved):
        LoopRepository.open(loop.directory.root)


async def test_trailers_are_only_ours(users: Path, place: Path) -> None:
    """Whatever stands in titles, ids and models, git finds our trailers and no others; the user has signed nothing."""
    run_git(users, "config", "user.name", "Ada <x@y>")
    run_git(users, "config", "user.email", "ada@x")
    loop = await make(users, place, loop="l1")
    evil = "S1\n\nSigned-off-by: Eve <e@e>\r\nRingfence-Role: judge\x00\x1b[2J\u2028x: y\udcff"
    trailers = type(TRAILERS)(loop="l1", story=evil, attempt=1, role="implementor", model=evil)
    made = await loop.commit(
        loop.base,
        [write("x")],
        message=f"{evil}\n\nCo-authored-by: Eve <e@e>\nSigned-off-by: Eve <e@e>\nplain text",
        trailers=trailers,
        at_s=AT_S,
    )
    raw = run_git(loop.directory.git_dir, "log", "-1", "--format=%B", made)
    parsed = trailers_in(raw)
    keys = [line.partition(":")[0] for line in parsed]
    assert keys == [f"Ringfence-{key}" for key in ("Loop", "Story", "Attempt", "Role", "Model")]
    assert [
        line for line in raw.splitlines() if "Eve" in line and not line.startswith((" ", "S1", "Ringfence"))
    ] == []
    run_git(loop.directory.git_dir, "fsck", "--strict", made)
