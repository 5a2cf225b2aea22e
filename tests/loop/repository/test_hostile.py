"""Nothing that the user's repository names is run, followed or believed, by any step of a loop."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples, slow_after
from tests.loop.repository.conftest import TRAILERS, commit_everything, make, run_git, snapshot

from ringfence.loop.repository import (
    Change,
    DeliveryRefused,
    LoopRepository,
    Merged,
    WorkRefused,
    changes_between,
    inspect_repository,
)
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio
HOOKS = (
    "pre-commit", "post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-merge",
    "fsmonitor-watchman", "post-update", "pre-receive", "update", "post-receive", "post-commit", "post-rewrite",
)  # fmt: skip


@pytest.fixture
def canary(ground: Path) -> Iterator[Path]:
    """A program that leaves a trace; fails the test at its end if it was run."""
    cage = ground / "canary"
    cage.mkdir()
    cage.chmod(0o777)
    script = ground / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {cage}/sang-$$\ncat\n")
    script.chmod(0o755)
    yield script
    assert not list(cage.iterdir()), "a program that the repository named was run"


def plant(root: Path, script: Path) -> None:
    """Everything in a repository that can make git run a program."""
    for folder in (root / ".git/hooks", root / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in HOOKS:
            (folder / name).write_bytes(script.read_bytes())
            (folder / name).chmod(0o755)
    (root / ".git/info").mkdir(exist_ok=True)
    with (root / ".git/config").open("a") as config:
        config.write(
            f"""
[core]
    fsmonitor = {script}
    hooksPath = {root}/hooks
    pager = {script}
    sshCommand = {script}
    editor = {script}
    alternateRefsCommand = {script}
[filter "x"]
    clean = {script}
    smudge = {script}
    process = {script}
    required = true
[diff]
    external = {script}
[diff "x"]
    textconv = {script}
    command = {script}
[merge "x"]
    driver = {script} %A
[remote "origin"]
    url = ext::{script}
    promisor = true
[gpg]
    program = {script}
[commit]
    gpgSign = true
[uploadpack]
    packObjectsHook = {script}
[include]
    path = {root}/more.cfg
"""
        )


async def go_through(users: Path, place: Path) -> LoopRepository:
    """Every step of a loop, from the look to the merge."""
    await inspect_repository(users)
    loop = await make(users, place, loop="l1")
    made = []
    for number, name in enumerate((b"x", b"y")):
        await loop.checkout(number, loop.base)
        change = Change(name, 0o100644, b"1")
        made.append(await loop.commit(loop.base, [change], message="t", trailers=TRAILERS, at_s=1))
        await loop.checkout(number, made[-1])
    await loop.fast_forward_or_rebase(made[0])
    await loop.fast_forward_or_rebase(made[1])
    await loop.revert(loop.base, made[0], message="t", trailers=TRAILERS, at_s=1)
    await loop.keep_rejected(loop.base, made[1], story="S", attempt=1)
    with suppress(DeliveryRefused):  # files that git would send through a filter stay as they are
        await loop.merge_to_user()
    return loop


async def test_no_program_of_the_repository_runs(users: Path, place: Path, canary: Path) -> None:
    """Hooks, filters, fsmonitor, textconv, merge drivers, pagers, signing: none is started, and files come as stored."""
    (users / ".gitattributes").write_text("* filter=x diff=x merge=x text eol=crlf ident\n")
    (users / "more.cfg").write_text(f"[core]\n\tfsmonitor = {canary}\n")
    (users / "id.txt").write_text("$Id$\n")
    commit_everything(users)
    plant(users, canary)
    (users / "a.txt").write_text("changed\n")
    loop = await go_through(users, place)
    tree = await loop.checkout(0, loop.base)
    assert (tree.path / "id.txt").read_bytes() == b"$Id$\n"


async def test_objects_from_elsewhere_are_not_taken(users: Path, place: Path, ground: Path) -> None:
    """A loose object that is a link is no object of the repository: what it leads to stays where it is."""
    run_git(ground, "init", "-q", "private")
    secret, objects = ground / "private" / "secret", users / ".git/objects"
    secret.write_text("secret")
    while (objects / (blob := run_git(ground / "private", "hash-object", "secret"))[:2]).exists():
        secret.write_text(secret.read_text() + "!")  # its objects must lie in a directory that is not there
    commit_everything(ground / "private")
    (objects / blob[:2]).symlink_to(ground / "private/.git/objects" / blob[:2])
    with pytest.raises(Exception, match="nothing that git keeps there"):
        await make(users, place, loop="l1")


@pytest.mark.slow
async def test_names_of_any_bytes(users: Path, place: Path) -> None:
    """Line ends, quotes, spaces, bytes that are no text, names that differ by case: all come through, byte by byte."""
    names = [
        b"a\nb",
        b'q"q\\',
        b"\xff\xfe\x80",
        b" lead",
        b"trail ",
        b"tab\t",
        b"A.TXT",
        b"-dash",
        b":colon",
        b"~",
        b"$(x)",
    ]
    for name in names:
        Path(os.fsdecode(os.fsencode(users) + b"/" + name)).write_bytes(name)  # noqa: ASYNC240 - a test
    base = commit_everything(users)
    loop = await make(users, place, loop="l1")
    await loop.checkout(0, base)
    changes = [Change(name, 0o100755, name * 2) for name in names]
    made = await loop.commit(base, changes, message="t", trailers=TRAILERS, at_s=1)
    tree = await loop.checkout(0, made)
    found = {os.fsencode(path.name): path.read_bytes() for path in tree.path.iterdir() if path.is_file()}
    assert {name: found[name] for name in names} == {name: name * 2 for name in names}
    await loop.fast_forward_or_rebase(made)
    assert (await loop.merge_to_user()).branch == "main"
    assert run_git(users, "status", "--porcelain") == ""


async def test_path_of_the_repository_itself(ground: Path, place: Path) -> None:
    """A repository that lies in a directory with line ends, quotes and bytes that are no text makes a loop."""
    root = ground / os.fsdecode(b'we\nird "\xff')
    root.mkdir()
    run_git(root, "init", "-q")
    (root / "x").write_text("")
    commit_everything(root)
    loop = await go_through(root, place)
    assert LoopRepository.open(place).origin.source_path == root
    assert run_git(root, "rev-parse", "ringfence/loop-l1") == await loop.tip()


IDS = ["../up", "a/b", ".lock", "x.lock", "-x", "~", "a..b", "\udcff", "@{", "x" * 500, "\n"]


@pytest.mark.parametrize("name", slow_after(3, IDS))
async def test_ids_of_any_text(name: str, users: Path, place: Path) -> None:
    """Whatever a loop and its stories are called, refs and files of theirs are git's and lie where they should."""
    loop = await make(users, place, loop=name.replace("\udcff", "é"))
    change = Change(b"x", 0o100644)
    made = await loop.commit(loop.base, [change], message=name, trailers=TRAILERS, at_s=1)
    patch = await loop.keep_rejected(loop.base, made, story=name, attempt=1)
    assert patch is not None
    assert patch.is_relative_to(loop.directory.root)
    await loop.fast_forward_or_rebase(made)
    found = await loop.deliver()
    assert run_git(users, "rev-parse", f"refs/heads/{found.branch}") == made
    run_git(users, "fsck", "--strict")


async def test_what_a_run_changed(users: Path, place: Path, tmp_path: Path) -> None:
    """A run's two checkpoints become a commit of exactly what differs between them, links and programs included."""
    loop = await make(users, place, loop="l1")
    tree = await loop.checkout(0, loop.base)
    store = SnapshotStore(tree.path, tmp_path / "state")
    before = await store.take("r/before")
    copy = tmp_path / "inside"  # as in mode clone: the worktree itself is not written to
    copy.mkdir()
    for path in ("a.txt", "sub/b.txt"):
        (copy / path).parent.mkdir(exist_ok=True)
        (copy / path).write_bytes((tree.path / path).read_bytes())
    (copy / "new").symlink_to("/etc/passwd")
    (copy / "a.txt").chmod(0o755)
    after = await store.take("r/after", base=before.id, root=copy)
    changes = await changes_between(store, before.id, after.id)
    assert [(change.path, change.git_mode) for change in changes] == [
        (b"a.txt", 0o100755),
        (b"new", 0o120000),
        (b"run.sh", None),
    ]
    made = await loop.commit(loop.base, changes, message="t", trailers=TRAILERS, at_s=1)
    assert await loop.changed(loop.base, made) == (b"a.txt", b"new", b"run.sh")
    assert await loop.fast_forward_or_rebase(made) == Merged(made)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> LoopRepository:
    """A loop to make commits in, of a repository with one file."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "project").mkdir()
    run_git(root / "project", "init", "-q")
    (root / "project" / "zz").write_text("")
    commit_everything(root / "project")
    return anyio.run(lambda: make(root / "project", root / "loop", loop="l1"))


_OF_GIT = [
    b".git", b".GIT", b"git~1", b".gitmodules", b"GITMOD~1", b"gi7eb~12", b".gitattributes", b".gitignore", b".mailmap",
]  # fmt: skip
_NOT_UTF8 = [
    b"\xff",
    b"\x80",
    b"\xc0\xae",
    b"\xed\xa0\x80",
    b"\xef\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xe2\x80",
]
"""Where git stops reading a name, as what follows can be on no file system of a Mac: no UTF-8, and two code points."""
_PARTS = st.one_of(
    st.sampled_from(_OF_GIT),
    st.tuples(st.sampled_from(_OF_GIT), st.sampled_from(_NOT_UTF8), st.sampled_from([b"", b"x"])).map(
        b"".join
    ),
    st.sampled_from(["\u200c.git", ".g\u200dit", ".git\ufeff", ".git ", ".git:x", "..", "."]).map(str.encode),
    st.binary(min_size=1, max_size=6).map(lambda text: text.replace(b"\0", b"x").replace(b"/", b"y")),
)


@given(
    st.lists(_PARTS, min_size=1, max_size=3).map(b"/".join),
    st.sampled_from([0o100644, 0o100755, 0o120000]),
    st.sampled_from(
        [b"x", b'[submodule "a"]\n\turl = -u./x\n\tpath = -p\n\tupdate = !x\n', b"../.git", b"x" * 3000]
    ),
)
@settings(max_examples=examples(60), deadline=None)
def test_what_is_accepted_passes_gits_own_checks(
    hostile: LoopRepository, path: bytes, mode: int, data: bytes
) -> None:
    """Whatever a path, its kind and its contents: it is refused by name, or git's strictest look finds nothing in it."""
    change = Change(path, mode, data)
    try:
        made = anyio.run(
            lambda: hostile.commit(hostile.base, [change], message="t", trailers=TRAILERS, at_s=1)
        )
    except WorkRefused as refused:
        named = list(refused.reasons)
    else:
        named = [os.fsdecode(path)]
        options = ("-c", "core.protectHFS=true", "-c", "core.protectNTFS=true")
        run_git(hostile.directory.git_dir, *options, "fsck", "--strict", "--no-dangling", made)
        run_git(hostile.directory.git_dir, *options, "read-tree", made)
    assert named == [os.fsdecode(path)]


async def test_many_bad_paths_are_told_in_one_line(loop: LoopRepository) -> None:
    """Ten thousand refused paths make one bounded line, with nothing in it that a terminal obeys."""
    changes = [Change(b".git/\x1b[2J%d" % number, 0o100644) for number in range(10_000)]
    with pytest.raises(WorkRefused) as refused:
        await loop.commit(loop.base, changes, message="t", trailers=TRAILERS, at_s=1)
    text = str(refused.value)
    assert len(refused.value.reasons) == 10_000
    assert len(text) < 2000
    assert text.isprintable()


DAMAGED: dict[str, Callable[[Path], object]] = {
    "index": lambda root: (root / ".git/index").write_bytes(b"DIRC\0\0\0\2 no index"),
    "no index": lambda root: (root / ".git/index").unlink(),
    "packed-refs": lambda root: (root / ".git/packed-refs").write_bytes(b"\0" * 1000 + b"x y\n"),
    "config": lambda root: (root / ".git/config").write_bytes(b"[core\n\0"),
    "refs": lambda root: (root / ".git/refs/heads/broken").write_text("nonsense"),
    "many refs": lambda root: [
        (root / f".git/refs/tags/t{number}").write_text("1" * 40) for number in range(300)
    ],
}


@pytest.mark.parametrize("case", slow_after(2, DAMAGED))
async def test_damaged_repository(case: str, users: Path, place: Path) -> None:
    """What of the user's repository is damaged but not needed does not keep a loop from it, and stays as it is."""
    DAMAGED[case](users)
    before = snapshot(users)
    loop = await make(users, place, loop="l1")
    await loop.checkout(0, loop.base)
    await inspect_repository(users)
    assert snapshot(users) == before
