"""A loop's work comes to the user as a branch and a patch, and nothing of the user's is lost or moved by it."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import slow_after
from tests.loop.repository.conftest import TRAILERS, commit_everything, make, run_git, snapshot

from ringfence.loop.repository import Change, DeliveryRefused, LoopRepository

pytestmark = pytest.mark.anyio
BRANCH = "ringfence/loop-l1"


async def work(loop: LoopRepository, *changes: Change) -> str:
    """A story's commit on the loop's branch."""
    base = await loop.tip()
    made = await loop.commit(base, changes, message="A title", trailers=TRAILERS, at_s=1_700_000_000)
    await loop.fast_forward_or_rebase(made)
    return made


CHANGES = (
    Change(b"a.txt", 0o100644, b"changed\n"),
    Change(b"sub/b.txt", None),
    Change(b"sub2/new.sh", 0o100755, b"#!/bin/sh\n"),
    Change(b"link", 0o120000, b"a.txt"),
    Change(b"run.sh", None),
    Change(b"run.sh/now/a/directory", 0o100644, b"x"),
)


@pytest.fixture
async def tip(loop: LoopRepository) -> str:
    """The loop's work: a file changed, some new, some gone, one that is a directory now."""
    return await work(loop, *CHANGES)


def is_clean(root: Path) -> bool:
    """Whether a work tree and its index are as HEAD, nothing lies beside, and no lock was left."""
    status = run_git(root, "status", "--porcelain", "--ignored", "-uall")
    return status == "" and not [*(root / ".git").glob("*.lock"), *(root / ".git").glob("*ringfence*")]


async def test_branch_and_patch(loop: LoopRepository, tip: str, users: Path) -> None:
    """The branch is there, and files, HEAD, index and stash are untouched."""
    (users / "a.txt").write_text("stashed\n")
    run_git(users, "stash")
    (users / "a.txt").write_text("mine\n")
    (users / "b.txt").write_text("staged\n")
    run_git(users, "add", "b.txt")
    moved = (".git/objects", ".git/refs/heads", ".git/logs/refs/heads")
    before = {name: what for name, what in snapshot(users).items() if not name.startswith(moved)}
    found = await loop.deliver()
    assert (found.branch, found.tip) == (BRANCH, tip)
    assert run_git(users, "rev-parse", BRANCH) == tip
    assert before == {name: snapshot(users)[name] for name in before}
    run_git(users, "fsck", "--strict")


@pytest.mark.slow
async def test_a_path_with_blanks_is_no_obstacle(
    loop: LoopRepository, tip: str, users: Path, ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What git is told in words that blanks and commas end holds no path of the machine."""
    odd = ground / "a, b | c"
    odd.mkdir()
    odd.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    await loop.deliver()
    assert run_git(users, "rev-parse", BRANCH) == tip


async def test_delivery_again_and_onward(loop: LoopRepository, tip: str, users: Path) -> None:
    """Delivered again nothing changes; when the loop has gone on, its branch grows."""
    await loop.deliver()
    before = snapshot(users)
    await loop.deliver()
    assert snapshot(users) == before
    later = await work(loop, Change(b"more", 0o100644, b""))
    await loop.deliver()
    assert run_git(users, "rev-parse", BRANCH, f"{BRANCH}~1").split() == [later, tip]


async def test_work_after_a_delivery_without_work(loop: LoopRepository, users: Path) -> None:
    """The branch that lay where the loop began grows as any other does."""
    await loop.deliver()
    made = await work(loop, Change(b"more", 0o100644, b""))
    await loop.deliver()
    assert run_git(users, "rev-parse", BRANCH) == made


async def test_loop_without_work(loop: LoopRepository, users: Path) -> None:
    """Of a loop whose stories all failed the branch is the base, and a merge has nothing to do."""
    before = run_git(users, "status", "--porcelain")
    found = await loop.merge_to_user()
    assert (found.tip, found.branch) == (loop.base, "main")
    assert run_git(users, "rev-parse", BRANCH) == loop.base
    assert run_git(users, "status", "--porcelain") == before


def other_branch(users: Path) -> None:
    """A branch of that name with a commit of its own."""
    run_git(users, "branch", BRANCH, run_git(users, "commit-tree", "-m", "mine", "HEAD^{tree}").strip())


def in_the_way(users: Path) -> None:
    """A branch whose file would be a directory."""
    run_git(users, "branch", "ringfence")


def below(users: Path) -> None:
    """A branch in what would be a directory."""
    run_git(users, "branch", f"{BRANCH}/x")


def name_for_another(users: Path) -> None:
    """A name of that kind that stands for a branch which is not there yet."""
    run_git(users, "symbolic-ref", f"refs/heads/{BRANCH}", "refs/heads/not-yet")


def link_to_elsewhere(users: Path) -> None:
    """The directory of refs leads elsewhere."""
    (users.parent / "elsewhere").mkdir()
    (users / ".git/refs/heads/ringfence").symlink_to(users.parent / "elsewhere")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a branch with other commits": (other_branch, "other commits"),
    "a branch that leaves no room": (in_the_way, "leaves no room"),
    "a branch below": (below, "leaves no room"),
    "a name for another branch": (name_for_another, "name for another ref"),
    "a link in the place of a directory": (link_to_elsewhere, "is a link"),
}


@pytest.mark.parametrize("case", slow_after(2, REFUSED))
async def test_what_is_in_the_way_stays(case: str, loop: LoopRepository, tip: str, users: Path) -> None:
    """Refs of the user's are never moved or hidden; what to do is told, and then it comes."""
    spoil, words = REFUSED[case]
    spoil(users)
    before = snapshot(users)
    with pytest.raises(DeliveryRefused, match=words):
        await loop.deliver()
    assert snapshot(users) == before


async def test_branch_that_is_checked_out_is_not_moved(loop: LoopRepository, tip: str, users: Path) -> None:
    """The loop's branch, checked out by the user after an earlier delivery, does not change under the files."""
    await loop.deliver()
    run_git(users, "checkout", "-q", BRANCH)
    await work(loop, Change(b"more", 0o100644, b""))
    with pytest.raises(DeliveryRefused, match="checked out"):
        await loop.deliver()
    assert is_clean(users)
    assert run_git(users, "rev-parse", "HEAD") == tip


@pytest.mark.slow
async def test_rewritten_history_is_brought_whole(loop: LoopRepository, tip: str, users: Path) -> None:
    """Where the user has thrown the base away meanwhile, the branch comes with all it needs."""
    run_git(users, "checkout", "-q", "--orphan", "fresh")
    run_git(users, "commit", "-qm", "anew")
    run_git(users, "branch", "-qD", "main")
    run_git(users, "tag", "-d", "v1")
    run_git(users, "reflog", "expire", "--expire=now", "--all")
    run_git(users, "gc", "-q", "--prune=now")
    await loop.deliver()
    run_git(users, "fsck", "--strict")
    assert run_git(users, "rev-list", "--count", BRANCH) == "3"


async def test_unsound_objects_do_not_come_through(loop: LoopRepository, users: Path) -> None:
    """A commit that git's checks refuse, however it got into the loop's repository, is not among the user's objects."""
    own = loop.directory.git_dir
    blob = run_git(own, "hash-object", "-w", "--stdin", stdin="x")
    tree = run_git(own, "mktree", stdin=f"100644 blob {blob}\tconfig\n")
    raw = f"tree {tree}\nparent {loop.base}\nauthor x\n\nbad\n"
    bad = run_git(own, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=raw)
    (own / "refs/heads/loop").write_text(f"{bad}\n")
    before = snapshot(users)
    with pytest.raises(DeliveryRefused, match="missingEmail"):
        await loop.deliver()
    assert snapshot(users) == before


async def test_merge_moves_files_index_and_branch(loop: LoopRepository, tip: str, users: Path) -> None:
    """Asked for, the branch that is checked out goes forward with its files; after it git sees a clean tree."""
    (users / "untracked").write_text("mine")
    assert (await loop.merge_to_user()).branch == "main"
    assert run_git(users, "rev-parse", "HEAD", "main").split() == [tip, tip]
    assert run_git(users, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert run_git(users, "status", "--porcelain") == "?? untracked"
    assert (users / "sub2/new.sh").stat().st_mode & 0o111
    assert (users / "link").readlink() == Path("a.txt")
    assert not (users / "sub").exists()
    assert run_git(users, "reflog", "-1", "--format=%gs", "HEAD") == "ringfence loop l1"
    assert (await loop.merge_to_user()).branch == "main"
    assert run_git(users, "rev-parse", "main") == tip


async def test_merge_into_a_branch_that_is_not_checked_out(
    loop: LoopRepository, tip: str, users: Path
) -> None:
    """It goes forward alone: no file, HEAD or index is touched."""
    run_git(users, "checkout", "-q", "-b", "elsewhere")
    (users / "a.txt").write_text("mine\n")
    assert (await loop.merge_to_user()).branch == "main"
    assert run_git(users, "rev-parse", "main", "HEAD").split() == [tip, loop.base]
    assert run_git(users, "status", "--porcelain") == "M a.txt"


def dirty(users: Path) -> None:
    """A file that the work changes is changed."""
    (users / "a.txt").write_text("mine\n")


def made_a_program(users: Path) -> None:
    """A file that the work removes is made a program."""
    (users / "sub" / "b.txt").chmod(0o755)


def staged(users: Path) -> None:
    """A new file in the index has the name of one that the work makes."""
    (users / "link").write_text("mine\n")
    run_git(users, "add", "link")


def staged_and_put_back(users: Path) -> None:
    """Only the index has the change."""
    (users / "a.txt").write_text("mine\n")
    run_git(users, "add", "a.txt")
    (users / "a.txt").write_text("one\n")


def untracked_in_the_way(users: Path) -> None:
    """A file that the work makes is there already."""
    (users / "sub2").mkdir()
    (users / "sub2" / "new.sh").write_text("mine")


def ignored_in_the_way(users: Path) -> None:
    """A file that the repository itself ignores is where a link is to be."""
    (users / ".git/info").mkdir(exist_ok=True)
    (users / ".git/info/exclude").write_text("link\n")
    (users / "link").write_text("mine")


def ignored_by_a_file(users: Path) -> None:
    """A file that a `.gitignore` names is where a link is to be."""
    (users / ".gitignore").write_text("link\n")
    (users / "link").write_text("mine")


def ignored_directory(users: Path) -> None:
    """An ignored directory with a file is where a link is to be."""
    (users / ".gitignore").write_text("link/\n")
    (users / "link").mkdir()
    (users / "link" / "x").write_text("mine")


def file_for_a_directory(users: Path) -> None:
    """A file is where a directory is to be."""
    (users / "sub2").write_text("mine")


def link_for_a_directory(users: Path) -> None:
    """A link that leads out is where a directory is to be."""
    (users.parent / "outside").mkdir()
    (users / "sub2").symlink_to(users.parent / "outside")


def own_commit(users: Path) -> None:
    """The branch has a commit of its own."""
    (users / "z").write_text("mine\n")
    commit_everything(users)


def locked(users: Path) -> None:
    """Another git is at work."""
    (users / ".git/index.lock").write_text("")


def merging(users: Path) -> None:
    """A merge goes on."""
    (users / ".git/MERGE_HEAD").write_text("")


def sparse(users: Path) -> None:
    """Not all files are checked out."""
    run_git(users, "config", "core.sparseCheckout", "true")


def sparse_in_this_work_tree(users: Path) -> None:
    """Not all files are checked out, as git itself sets it up: in a configuration file of the work tree's own."""
    run_git(users, "sparse-checkout", "set", "sub")


def line_ends(users: Path) -> None:
    """Git changes line ends."""
    run_git(users, "config", "core.autocrlf", "true")


def filters(users: Path) -> None:
    """Git sends files through a filter."""
    (users / ".git/info").mkdir(exist_ok=True)
    (users / ".git/info/attributes").write_text("*.txt filter=lfs\n")


def gone(users: Path) -> None:
    """The branch is gone."""
    run_git(users, "checkout", "-q", "--detach")
    run_git(users, "branch", "-qD", "main")


UNMERGED: list[tuple[Callable[[Path], None], str]] = [
    (dirty, "a.txt Please commit your changes or stash them"),
    (staged_and_put_back, "a.txt Please commit your changes or stash them"),
    (untracked_in_the_way, "sub2/new.sh Please move or remove them"),
    (own_commit, "git merge ringfence/loop-l1"),
    (made_a_program, "sub/b.txt Please commit your changes or stash them"),
    (staged, "would be overwritten by merge: link"),
    (ignored_in_the_way, "link Please move or remove them"),
    (ignored_by_a_file, "link Please move or remove them"),
    (ignored_directory, "would lose untracked files"),
    (file_for_a_directory, "sub2 Please move or remove them"),
    (link_for_a_directory, "sub2 Please move or remove them"),
    (locked, "index.lock"),
    (merging, "MERGE_HEAD"),
    (sparse, "sparse"),
    (sparse_in_this_work_tree, "sparse"),
    (line_ends, "autocrlf"),
    (filters, "filter=lfs"),
    (gone, "no branch 'main'"),
]


@pytest.mark.parametrize(("spoil", "words"), slow_after(4, UNMERGED))
async def test_merge_that_could_lose_something(
    spoil: Callable[[Path], None], words: str, loop: LoopRepository, tip: str, users: Path
) -> None:
    """The branch is delivered, the merge is refused with what to type, and not a byte of the user's has changed."""
    spoil(users)
    before = {name: what for name, what in snapshot(users).items() if not name.startswith(".git/")}
    index = (users / ".git/index").read_bytes()
    head = run_git(users, "rev-parse", "HEAD")
    with pytest.raises(DeliveryRefused, match=re.escape(words)):
        await loop.merge_to_user()
    assert before == {name: what for name, what in snapshot(users).items() if not name.startswith(".git/")}
    assert (users / ".git/index").read_bytes() == index
    assert run_git(users, "rev-parse", "HEAD", BRANCH).split() == [head, tip]
    assert (users / ".git/index.lock").exists() == (spoil is locked)


async def test_bare_repository(users: Path, ground: Path, place: Path) -> None:
    """A repository without a work tree is given the branch; a loop that began on no branch of it moves none."""
    run_git(ground, "clone", "-q", "--bare", str(users), "bare.git")
    loop = await make(ground / "bare.git", place, loop="l1", base="main")
    made = await work(loop, *CHANGES)
    assert (await loop.deliver()).tip == made
    with pytest.raises(DeliveryRefused, match="began on no branch"):
        await loop.merge_to_user()
    assert run_git(ground / "bare.git", "rev-parse", BRANCH) == made


@pytest.mark.slow
async def test_submodules_stay_as_they_are(users: Path, ground: Path, place: Path) -> None:
    """Empty in the loop, untouched in the user's work tree, and no obstacle to a merge."""
    run_git(
        users, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(users), "vendor/lib"
    )
    base = commit_everything(users)
    (users / "vendor/lib/a.txt").write_text("at work\n")
    loop = await make(users, place, loop="l1")
    tree = await loop.checkout(0, base)
    assert list((tree.path / "vendor/lib").iterdir()) == []
    await work(loop, *CHANGES)
    assert (await loop.merge_to_user()).branch == "main"
    assert (users / "vendor/lib/a.txt").read_text() == "at work\n"
    assert run_git(users, "status", "--porcelain") == "M vendor/lib"


async def test_merge_by_itself(loop: LoopRepository, tip: str, users: Path) -> None:
    """The call that only merges says where the branch is, or is refused with where the work is and what to type."""
    (users / "a.txt").write_text("mine\n")
    with pytest.raises(DeliveryRefused, match=f"in branch '{BRANCH}'.* type `git merge --ff-only {BRANCH}`"):
        await loop.merge_to_user()
    run_git(users, "checkout", "-q", "a.txt")
    done = await loop.merge_to_user()
    assert (done.branch, done.tip) == ("main", tip)
    assert is_clean(users)


@pytest.mark.slow
async def test_merge_into_a_linked_work_tree(
    loop: LoopRepository, tip: str, users: Path, ground: Path
) -> None:
    """A branch that is checked out in another work tree is left alone; started from that one, it is merged there."""
    run_git(users, "checkout", "-q", "-b", "aside")
    run_git(users, "worktree", "add", "-q", str(ground / "linked"), "main")
    with pytest.raises(DeliveryRefused, match=re.escape(repr(str(ground / "linked")))):
        await loop.merge_to_user()
    there = await make(ground / "linked", ground / "another", loop="l2")
    made = await work(there, *CHANGES)
    assert (await there.merge_to_user()).branch == "main"
    assert run_git(ground / "linked", "status", "--porcelain") == ""
    assert run_git(ground / "linked", "rev-parse", "HEAD") == made


async def test_merge_leaves_other_changes(loop: LoopRepository, users: Path) -> None:
    """What the user changed, staged, stashed and left untracked beside the work is there afterwards as it was."""
    made = await work(loop, Change(b"new/x", 0o100644, b"x"))
    (users / "run.sh").write_text("stashed\n")
    run_git(users, "stash")
    (users / "a.txt").write_text("mine\n")
    (users / "sub" / "b.txt").write_text("staged\n")
    run_git(users, "add", "sub/b.txt")
    (users / "untracked").write_text("mine")
    files = {name: what for name, what in snapshot(users).items() if not name.startswith(".git/")}
    stash = run_git(users, "stash", "list", "--format=%H")
    status = run_git(users, "status", "--porcelain")
    await loop.merge_to_user()
    after = snapshot(users)
    assert files == {name: after[name] for name in files}
    assert run_git(users, "status", "--porcelain") == status
    assert run_git(users, "stash", "list", "--format=%H") == stash
    assert run_git(users, "rev-parse", "HEAD") == made


SETTINGS = """[include]
\tpath = ../settings
[core]
\thooksPath = {hooks}
\tfsmonitor = {program}
\tuntrackedCache = true
[merge]
\tautoStash = true
\tverifySignatures = true
[branch "main"]
\tmergeoptions = -s ours --no-ff
[commit]
\tgpgSign = true
[gpg]
\tprogram = {program}
[maintenance]
\tauto = true
"""


async def test_merge_runs_no_program_of_the_repository(
    loop: LoopRepository, tip: str, users: Path, ground: Path
) -> None:
    """Hooks, filters and monitors, in the configuration or in a file of the work tree that it includes, do not run."""
    ran, program = ground / "ran", ground / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >>{ran}\ncat\n")
    program.chmod(0o755)
    for folder in (ground / "hooks", users / ".git/hooks"):
        folder.mkdir(exist_ok=True)
        for name in ("post-merge", "reference-transaction", "post-index-change", "post-checkout"):
            (folder / name).write_text(program.read_text())
            (folder / name).chmod(0o755)
    config = users / ".git/config"
    config.write_text(config.read_text() + SETTINGS.format(hooks=ground / "hooks", program=program))
    (users / "settings").write_text(f'[filter "x"]\n\tsmudge = {program}\n\tclean = {program}\n')
    (users / ".gitattributes").write_text("* filter=x\n")
    os.utime(users / "a.txt")  # git reads the file again to see that it is as it was
    hooks = snapshot(users / ".git/hooks")
    await loop.merge_to_user()
    assert not ran.exists()
    assert snapshot(users / ".git/hooks") == hooks
    assert (users / "a.txt").read_bytes() == b"changed\n"
    (users / ".gitattributes").unlink()
    config.write_text(config.read_text().partition("[include]")[0])
    assert run_git(users, "rev-parse", "HEAD") == tip
    assert run_git(users, "status", "--porcelain") == "?? settings"


async def test_merge_that_was_interrupted_before_the_branch_moved(
    loop: LoopRepository, tip: str, users: Path
) -> None:
    """Files and index that are at the work already do not keep the branch from following."""
    await loop.merge_to_user()
    run_git(users, "update-ref", "refs/heads/main", loop.base)
    await loop.merge_to_user()
    assert run_git(users, "rev-parse", "main") == tip
    assert is_clean(users)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
async def test_merged_files_are_the_owners(users: Path, place: Path) -> None:
    """Root's merge into a user's work tree leaves files that belong to that user."""
    for folder, folders, names in os.walk(users):
        for name in (".", *folders, *names):
            os.chown(Path(folder, name), 12_345, 12_345, follow_symlinks=False)
    loop = await make(users, place, loop="l1")
    await work(loop, *CHANGES)
    assert (await loop.merge_to_user()).branch == "main"
    assert {
        what.lstat().st_uid for what in (users / "sub2", users / "sub2/new.sh", users / ".git/index")
    } == {12_345}


async def _made_of(users: Path, ground: Path, **files: str) -> LoopRepository:
    """A loop of the user's repository with more files in it."""
    for name, text in files.items():
        path = users / name.replace("__", "/").replace("dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    commit_everything(users, "more")
    return await make(users, ground / "another", loop="l1")


async def test_what_the_user_has_is_no_reason_against_the_work(users: Path, ground: Path) -> None:
    """Submodules with settings that git has come to refuse are the user's own: the branch is delivered all the same."""
    old = '[submodule "a"]\n\tpath = -a\n\turl = --upload-pack=x\n\tupdate = !sh\n'
    loop = await _made_of(users, ground, dot_gitmodules=old)
    made = await work(loop, Change(b"a.txt", 0o100644, b"changed\n"))
    assert (await loop.deliver()).tip == made
    assert run_git(users, "rev-parse", BRANCH) == made


async def test_work_that_git_refuses_is_told_and_left_as_a_patch(users: Path, ground: Path) -> None:
    """It is no fault of the loop's machinery, which would be tried again for ever."""
    loop = await _made_of(users, ground, odd__dot_gitattributes__x="x")
    await work(loop, Change(b"odd/new", 0o100644, b"new\n"))
    with pytest.raises(DeliveryRefused, match=r"gitattributesBlob.*`ringfence loop diff`"):
        await loop.deliver()
    assert b"odd/new" in (await loop.patch(loop.base, await loop.tip()) or b"")
