"""A loop says before it starts what it will not see, and refuses what it cannot start from."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import slow_after
from tests.loop.repository.conftest import make, run_git, snapshot

from ringfence.loop.repository import RepositoryRefused, inspect_repository

pytestmark = pytest.mark.anyio


def said(notes: tuple[str, ...], *words: str) -> bool:
    """Whether one of the notes has all the words."""
    return any(all(word in note for word in words) for note in notes)


async def test_clean_repository_needs_no_words(users: Path) -> None:
    """Of a clean checkout there is nothing to tell; the base is HEAD and the branch the one it is on."""
    found = await inspect_repository(users)
    assert found.notes == ()
    assert (found.base, found.branch) == (run_git(users, "rev-parse", "HEAD"), "refs/heads/main")


async def test_looking_changes_nothing(users: Path) -> None:
    """Not even the index is refreshed, where git itself would."""
    (users / "a.txt").write_text("two\n")
    before = snapshot(users)
    await inspect_repository(users)
    assert snapshot(users) == before


async def test_dirty_tree_is_named(users: Path) -> None:
    """Changed, staged, deleted and untracked files are named: the loop sees none of them."""
    (users / "a.txt").write_text("changed\n")
    (users / "run.sh").unlink()
    (users / "new.py").write_text("")
    (users / "staged.py").write_text("")
    run_git(users, "add", "staged.py")
    found = await inspect_repository(users)
    assert said(found.notes, "uncommitted changes", "'a.txt'", "'run.sh'", "'staged.py'")
    assert said(found.notes, "untracked files", "'new.py'")


async def test_names_that_are_no_text_are_told(users: Path) -> None:
    """Names with line ends, quotes and bytes that are no UTF-8 are told in a way that a terminal can show."""
    for name in (b"a\nb", b'q"q', b"\xff\xfe"):
        (users / os.fsdecode(name)).write_text("")
    found = await inspect_repository(users)
    assert said(found.notes, r"'a\nb'", "'q\"q'", r"'\udcff\udcfe'")


async def test_detached_head_is_told(users: Path) -> None:
    """Off any branch there is none to merge into."""
    run_git(users, "checkout", "-q", "--detach")
    found = await inspect_repository(users)
    assert found.branch is None
    assert said(found.notes, "on no branch")


async def test_shallow_submodules_lfs_and_nested_are_told(users: Path, ground: Path) -> None:
    """What stays empty, a pointer, or out of sight is told by name, however long lines are."""
    run_git(users, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    attributes = f"{'a' * 500_000}\n*.bin filter=lfs diff=lfs merge=lfs -text\n"
    (users / ".gitattributes").write_text(attributes)
    run_git(users, "add", ".gitattributes")
    run_git(users, "commit", "-qm", "third")
    shallow = ground / "shallow"
    run_git(ground, "clone", "-q", "--depth=1", f"file://{users}", str(shallow))
    run_git(shallow, "init", "-q", "nested")
    notes = (await inspect_repository(shallow)).notes
    assert said(notes, "shallow")
    assert said(notes, "submodules", "'vendor/lib'")
    assert said(notes, "LFS", "'*.bin'")
    assert said(notes, "nested repositories", "'nested/'")


async def test_sparse_checkout_is_told(users: Path) -> None:
    """The loop sees all files where the user sees some; git notes that in a file of the work tree's own."""
    run_git(users, "sparse-checkout", "set", "sub")
    assert said((await inspect_repository(users)).notes, "sparse")


async def test_only_patterns_of_attributes_are_told(users: Path) -> None:
    """Comments and macros are none; files of attributes that were not read are counted."""
    text = "# *.psd filter=lfs\n[attr]large filter=lfs\n*.bin filter=lfs\n"
    for number in range(201):
        (users / str(number)).mkdir()
        (users / str(number) / ".gitattributes").write_text(text)
    run_git(users, "add", "--all")
    run_git(users, "commit", "-qm", "attributes")
    notes = (await inspect_repository(users)).notes
    assert said(notes, "pointers in the loop: '*.bin'")
    assert not said(notes, "LFS", "'#'")
    assert not said(notes, "LFS", "[attr]")
    assert said(notes, "only 200 of 201 .gitattributes files")


async def test_subdirectory_is_where_the_loop_works(users: Path, place: Path) -> None:
    """Given a directory of a repository, the loop works in the clone's directory of that name."""
    found = await inspect_repository(users / "sub")
    assert said(found.notes, "'sub'")
    loop = await make(users / "sub", place, loop="l1")
    assert (await loop.checkout(0, loop.base)).inside == loop.directory.root / "worktrees" / "0" / "sub"


async def test_linked_work_tree(users: Path, ground: Path) -> None:
    """A work tree made by `git worktree add` is as good as the first."""
    run_git(users, "worktree", "add", "-q", "-b", "other", str(ground / "linked"))
    found = await inspect_repository(ground / "linked")
    assert (found.branch, found.notes) == ("refs/heads/other", ())


async def test_replacements_and_grafts_are_not_followed(users: Path, place: Path) -> None:
    """A replaced commit is taken as it was made, which is told."""
    head = run_git(users, "rev-parse", "HEAD")
    other = run_git(users, "commit-tree", "HEAD^{tree}", "-m", "another history")
    run_git(users, "replace", head, other)
    (users / ".git" / "info").mkdir(exist_ok=True)
    (users / ".git" / "info" / "grafts").write_text(f"{head}\n")
    assert said((await inspect_repository(users)).notes, "git replace")
    assert said((await inspect_repository(users)).notes, "grafts")
    await make(users, place, loop="l1")
    assert run_git(place / "loop.git", "rev-list", "--count", "loop") == "2"


def make_link(root: Path) -> None:
    """Put the git directory elsewhere, and a link in its place."""
    (root / ".git").rename(root / "g")
    (root / ".git").symlink_to("g")


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no repository": (lambda root: (root / ".git").rename(root.parent / "elsewhere"), "is no git repository"),
    "no commit": (lambda root: run_git(root, "checkout", "-q", "--orphan", "new"), "has no commit yet"),
    "not there": (lambda root: root.rename(root.parent / "elsewhere"), "is no directory"),
    "leans on another": (
        lambda root: (root / ".git/objects/info/alternates").write_text("/srv/objects\n"),
        "git repack -a -d",
    ),
    "unknown extension": (
        lambda root: run_git(root, "config", "extensions.refStorage", "reftable"),
        "'refstorage'",
    ),
    ".git is a link": (
        make_link,
        "neither a directory nor a file",
    ),
}


@pytest.mark.parametrize("case", slow_after(3, REFUSED))
async def test_what_a_loop_cannot_start_from(case: str, users: Path, place: Path) -> None:
    """Each is refused by name before anything is made."""
    spoil, words = REFUSED[case]
    spoil(users)
    with pytest.raises(RepositoryRefused, match=words.replace(".", r"\.")):
        await make(users, place, loop="l1")
    assert not (place / "loop.git").exists()


@pytest.mark.parametrize("base", slow_after(2, ["nothing", "--all", "", "v1^{tree}", "HEAD~9", "a" * 40]))
async def test_base_that_is_no_commit(base: str, users: Path) -> None:
    """A base that git does not know as a commit is refused with its name."""
    with pytest.raises(RepositoryRefused, match="names no commit"):
        await inspect_repository(users, base=base)


async def test_bare_repository_needs_a_base(users: Path, ground: Path, place: Path) -> None:
    """Without a work tree nothing is checked out: the base is to be said, and then it serves."""
    run_git(ground, "clone", "-q", "--bare", str(users), "bare.git")
    with pytest.raises(RepositoryRefused, match="--base"):
        await inspect_repository(ground / "bare.git")
    loop = await make(ground / "bare.git", place, loop="l1", base="main")
    assert loop.base == run_git(users, "rev-parse", "main")


async def test_directory_that_is_not_in_the_commit(users: Path) -> None:
    """A directory that only the work tree has is refused: the loop would find nothing there."""
    (users / "fresh").mkdir()
    (users / "fresh" / "x").write_text("")
    with pytest.raises(RepositoryRefused, match="'fresh' is not in commit"):
        await inspect_repository(users / "fresh")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
async def test_repository_of_another_user_further_up(users: Path) -> None:
    """A `.git` that somebody else put above the directory is no repository of it."""
    os.chown(users / ".git", 12_345, 12_345)
    with pytest.raises(RepositoryRefused, match="another user"):
        await inspect_repository(users / "sub")


async def test_commit_with_missing_files(users: Path, place: Path) -> None:
    """A repository that lost an object of the base is refused, and nothing half-made is left for a loop."""
    blob = run_git(users, "rev-parse", "HEAD:a.txt")
    (users / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(RepositoryRefused, match="missing"):
        await make(users, place, loop="l1")
    assert not (place / "loop.git").exists()
