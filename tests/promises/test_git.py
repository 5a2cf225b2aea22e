"""A private git directory stands in the place of the user's."""

import signal

import pytest
from tests.promises.needs import Fence
from tests.promises.product import PATIENCE_S, Event, Product, poll, says


def test_git_works_inside(product: Product, fence: Fence) -> None:
    """`git log`, `status`, `add` and `commit` work inside, on the user's history."""
    script = "git log --format=%s && echo two > app.py && git status --short && git add -A && git commit -qm second"
    ended = product.shell(f"{script} && git log --format=%s", *fence)
    assert ended.code == 0, ended
    assert ended.out.split() == ["first", "M", "app.py", "second", "first"]


def test_commits_come_out(product: Product, fence: Fence) -> None:
    """Commits made inside come out under `refs/ringfence/`, on top of the user's, and no branch moves."""
    head = product.git("rev-parse", "HEAD")
    owner = product.project.stat().st_uid
    product.shell("echo two > app.py; git commit -qam second", *fence)
    assert {path.lstat().st_uid for path in (product.project / ".git").rglob("*")} == {owner}
    (ref,) = product.recorded("work.exported")[0]["refs"]
    (name,) = product.git("for-each-ref", "--format=%(refname)", "refs/ringfence").split()
    assert name in str(ref)
    assert product.git("log", "--format=%s", name).split() == ["second", "first"]
    assert product.git("rev-parse", "main") == head


def _after_commit(product: Product, damage: str) -> tuple[list[str], str]:
    """Subjects of the commits that came out of a run that made one and then did this; the run's notes."""
    ended = product.shell(f"echo two > app.py && git commit -qam second && {damage}")
    assert ended.code == 0, ended
    exported = product.recorded("work.exported")[0]
    refs = product.git("for-each-ref", "--format=%(subject)", "refs/ringfence").splitlines()
    return refs, " ".join(map(str, exported["notes"]))


@pytest.mark.parametrize(
    "damage",
    [
        "echo '[' > .git/config",
        (
            "for each in extensions.partialClone=x remote.x.promisor=true protocol.ext.allow=always "
            '\'remote.x.url=ext::sleep 1000\'; do git config "${each%%=*}" "${each#*=}"; done; '
            f"echo {7:040d} > .git/refs/heads/other"
        ),
    ],
    ids=["broken", "promisor"],
)
def test_the_agents_configuration_has_no_say_in_what_comes_out(damage: str, product: Product) -> None:
    """Commits are brought out by a git that does not read the configuration the agent wrote."""
    assert _after_commit(product, damage)[0] == ["second"]


@pytest.mark.parametrize(
    ("damage", "note"),
    [
        ("rm .git/HEAD && mkfifo .git/HEAD", "HEAD is no file"),
        ("rm -f .git/packed-refs && mkfifo .git/packed-refs", "packed-refs is no file"),
        ("echo junk >> .git/packed-refs", "refs that git would not read were passed over"),
        ("echo junk > .git/refs/heads/other", "refs that git would not read were passed over"),
        (f"echo {7:040d} > .git/refs/heads/other", "leads to no commit"),
    ],
    ids=["fifo-as-head", "fifo-as-packed-refs", "line", "ref", "id"],
)
def test_damaged_refs_lose_only_themselves(damage: str, note: str, product: Product) -> None:
    """What an agent puts in the place of a ref delays nothing, loses no other commit, and is noted."""
    refs, notes = _after_commit(product, damage)
    assert refs == ["second"]
    assert note in notes


_HELD = (
    "echo two > app.py && git commit -qam second && path=.git/objects/$(git rev-parse HEAD | sed 's,^..,&/,') && "
    "rm -f $path && mkfifo $path"
)
"""Makes a commit that git waits for when it is to be read."""


def test_a_run_that_is_stopped_there_is_cancelled(product: Product) -> None:
    """A run that is stopped while its commits are brought out is no success, also where no check is wanted."""
    model = product.script(says("", _HELD), says("Done."))
    with product.started("run", "--model", model, "--no-verify", "Do it.") as process:
        poll(lambda: [one for one in _sandboxes(product) if one["purpose"] == "export"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 130
    assert product.ended()["state"] == "cancelled"


def test_one_interrupt_ends_what_brings_commits_out(product: Product) -> None:
    """Commits that git cannot read to their end do not hold a run: one SIGTERM ends that, and the run is sealed."""
    with product.started("exec", "--", "sh", "-c", _HELD) as process:
        poll(lambda: [one for one in _sandboxes(product) if one["purpose"] == "export"])
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    (exported,) = product.recorded("work.exported")
    assert "commits made inside were not imported" in " ".join(map(str, exported["notes"]))
    assert (exported["files_changed"], exported["refs"]) == (1, [])
    assert product("runs verify", "last").code == 0


_PLANTED = (
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".husky/pre-commit",
    ".envrc",
    ".github/workflows/ci.yml",
)


def _commit_by_plumbing(*paths: str) -> str:
    """A script that commits files which are in no directory."""
    add = "; ".join(
        f"git update-index --add --cacheinfo 100755,$(echo planted | git hash-object -w --stdin),{path}"
        for path in paths
    )
    commit = "git update-ref HEAD $(git commit-tree -p HEAD -m planted $(git write-tree))"
    return f"export GIT_INDEX_FILE=/tmp/index; git read-tree HEAD; {add}; {commit}"


def test_what_only_commits_change_is_flagged(product: Product) -> None:
    """Files that are in a commit and never were in the workspace pass the same table as all others."""
    model = product.script(says("", _commit_by_plumbing(*_PLANTED)), says("Done."))
    ended = product.run(model)
    (exported,) = product.recorded("work.exported")
    assert exported["runs_on_your_machine"] == sorted(_PLANTED)
    assert (exported["files_changed"], exported["files_changed_by_commits"]) == (0, len(_PLANTED))
    shown = ended.out + ended.err
    assert "no files changed" not in shown
    assert "0 files changed" not in shown
    assert "git merge" not in shown
    assert f"{len(_PLANTED)} files changed in commits only" in shown
    flagged = product.does("diff", "last", "--flagged").out
    assert [path for path in _PLANTED if f"{path}: " not in flagged] == []
    assert "refs/ringfence/" in flagged


@pytest.mark.parametrize("rename", ["file", "directory"])
def test_a_change_that_a_merge_moves_is_flagged(rename: str, product: Product) -> None:
    """A change of a file that the user has renamed since is checked at the path to which a merge brings it."""
    lines = "".join(f"line {number}\n" for number in range(30))
    product.write("ci.yml", lines)
    product.write("old/test_a.py", lines)
    product.git("add", "-A")
    product.git("commit", "-qm", "before")
    product.write(".github/workflows/x")
    product.git("mv", "ci.yml", ".github/workflows/ci.yml")
    product.git("mv", "old", "acceptance")
    product.git("commit", "-qm", "renamed")
    product.configure(sandbox={"protect": ["acceptance/"]})
    change = {"file": "echo evil >> ci.yml", "directory": "echo evil > old/new.py"}[rename]
    product.shell(f"git checkout -qfb other HEAD~1; {change}; git add -A; git commit -qm evil")
    (exported,) = product.recorded("work.exported")
    wanted = {"file": ".github/workflows/ci.yml", "directory": "acceptance/new.py"}[rename]
    assert wanted in exported["runs_on_your_machine"], exported


def test_diff_shows_what_only_commits_change(product: Product) -> None:
    """`diff` prints the lines that a commit brings and the workspace does not have, and says where they are."""
    product.shell(f"echo two > app.py; {_commit_by_plumbing('hidden.py')}")
    shown = product.does("diff", "last")
    assert "+two" in shown.out
    assert "+planted" in shown.out
    assert "1 file changed in commits only, in refs/ringfence/" in shown.err
    assert "hidden.py" in product.does("diff", "last", "--stat").err
    assert "planted" not in product.does("diff", "last", "--raw").out


_ADD_AND_REMOVE = (
    "echo x > .envrc && git add -f .envrc && git commit -qm add && git rm -q .envrc && git commit -qm remove"
)


@pytest.mark.parametrize(
    "before",
    [
        "true",
        (
            "git checkout -qb other && git commit -q --allow-empty -m other && git checkout -q - && "
            "git commit -q --allow-empty -m more && git merge -q --no-commit other"
        ),
    ],
    ids=["commit", "merge"],
)
def test_a_file_of_an_earlier_commit_is_flagged(before: str, product: Product) -> None:
    """A file that one commit, or merge, adds and the next removes is named: single commits can be taken, too."""
    ended = product.shell(f"{before} && {_ADD_AND_REMOVE}")
    assert ended.code == 0, ended
    assert product.recorded("work.exported")[0]["runs_on_your_machine"] == [".envrc"]
    assert "in a commit before the last" in product.does("diff", "last").err


def test_ordinary_commits_are_not_counted_twice(product: Product) -> None:
    """A commit of what the workspace holds is no further change, and may be merged as printed."""
    model = product.script(says("", "echo two > app.py; git commit -qam second"), says("Done."))
    ended = product.run(model)
    (exported,) = product.recorded("work.exported")
    assert (exported["files_changed"], exported["files_changed_by_commits"]) == (1, 0)
    assert f"git merge --ff-only {exported['refs'][0]}" in ended.out + ended.err


def test_a_name_that_is_no_files_hides_no_other_branch(product: Product) -> None:
    """A branch whose name no file can have is left out with a note, and what the others change is flagged as ever."""
    product.shell(
        "git checkout -qb work; mkdir -p .github/workflows; echo evil > .github/workflows/ci.yml; git add -A; "
        "git commit -qm second; git checkout -q main; git pack-refs --all; "
        "printf '%s refs/heads/%0300d\\n' $(git rev-parse work) 0 >> $(git rev-parse --git-dir)/packed-refs"
    )
    (exported,) = product.recorded("work.exported")
    (ref,) = product.git("for-each-ref", "--format=%(refname)", "refs/ringfence").split()
    assert exported["refs"] == [ref]
    assert exported["runs_on_your_machine"] == [".github/workflows/ci.yml"]


def _sandboxes(product: Product) -> list[Event]:
    journals = product.file("run", run="").glob("*/journal.jsonl")
    return product.recorded("sandbox.created") if any(journals) else []


def test_author_is_the_users(product: Product) -> None:
    """A commit inside has the name and the address that the user's configuration gives."""
    product.git("config", "user.name", 'Ada "A" O\'Neil')
    product.git("config", "user.email", "ada@example.com")
    ended = product.shell("git commit -q --allow-empty -m x && git log -1 --format='%an %ae'")
    assert ended.out.strip() == 'Ada "A" O\'Neil ada@example.com'


def test_nothing_secret_of_the_configuration_is_inside(product: Product) -> None:
    """Remotes, credentials and aliases of the user's configuration are not inside; harmless settings are."""
    product.git("config", "core.autocrlf", "input")
    product.git("config", "remote.origin.url", "https://user:s3cret-token@example.com/x.git")
    product.git("config", "alias.x", "!echo secret-alias")
    product.git("config", "credential.helper", "store --file=/secret-place")
    ended = product.shell("git config --list; git remote -v; cat .git/config; grep -rs secret .git; true")
    assert ended.code == 0
    assert "s3cret" not in ended.out
    assert "secret" not in ended.out
    assert "core.autocrlf=input" in ended.out.splitlines()


def test_hooks_of_the_user_stay(product: Product, fence: Fence) -> None:
    """Nothing inside changes the user's hooks, configuration, refs or index."""
    hook = product.write(".git/hooks/pre-commit", "#!/bin/sh\n", 0o755)
    before = {path: path.read_bytes() for path in (product.project / ".git").rglob("*") if path.is_file()}
    product.shell(
        "echo evil > .git/hooks/pre-commit; echo evil > .git/hooks/post-checkout; git config core.pager evil; "
        "git config core.fsmonitor evil; rm -rf .git/refs; echo evil > .git/HEAD; rm -rf .git; mv .git other",
        *fence,
    )
    assert {path: path.read_bytes() for path in before} == before
    assert hook.read_text() == "#!/bin/sh\n"
    assert not (product.project / ".git/hooks/post-checkout").exists()


def test_hooks_of_the_user_are_not_run_inside(product: Product) -> None:
    """A hook of the user's is not run by a commit inside."""
    product.write(".git/hooks/pre-commit", "#!/bin/sh\ntouch hooked\nexit 1\n", 0o755)
    assert product.shell("git commit -q --allow-empty -m x").code == 0
    assert not (product.project / "hooked").exists()


def test_what_an_agent_configures_is_not_run_outside(product: Product) -> None:
    """Programs that an agent names in git's configuration or attributes are not run on the host by later commands."""
    mark = product.place / "marked"
    command = f"touch {mark}"
    product.shell(
        f"git config core.fsmonitor '{command}'; git config diff.external '{command}'; "
        f"git config filter.f.clean '{command}'; echo '* filter=f diff=f' > .gitattributes; "
        f"git config diff.f.textconv '{command}'; echo two > app.py; git commit -qam x"
    )
    product.does("diff", "last")
    product.does("undo", "last")
    product.does("apply", "last")
    product.exec("true")
    assert not mark.exists()


def test_a_repository_that_an_agent_makes_is_named(product: Product) -> None:
    """A repository that an agent makes in the workspace is named as what runs on the user's machine."""
    product.shell("mkdir sub && cd sub && git init -q && git config core.fsmonitor evil")
    assert any("sub" in path for path in product.recorded("work.exported")[0]["runs_on_your_machine"])


def test_branches_and_tags_are_seen(product: Product) -> None:
    """The user's branches and tags are seen inside."""
    product.git("branch", "topic")
    product.git("tag", "v1")
    assert set(product.shell("git branch --format='%(refname:short)'; git tag").out.split()) == {
        "main",
        "topic",
        "v1",
    }


def test_stash_is_the_sandboxs_own(product: Product) -> None:
    """`git stash` works inside, and the user's stash stays as it is."""
    product.write("app.py", "stashed\n")
    product.git("stash")
    before = product.git("stash", "list")
    assert product.shell("echo x > app.py && git stash -q && cat app.py").out == "print('one')\n"
    assert product.git("stash", "list") == before


def test_a_linked_worktree(product: Product) -> None:
    """In a linked worktree git works inside as in any other workspace."""
    linked = product.place / "linked"
    product.git("worktree", "add", "-q", str(linked), "-b", "topic")
    product.project = linked
    product.write("new")
    ended = product.shell("git status --short && git add -A && git commit -qm linked && git log --format=%s")
    assert ended.out.split() == ["??", "new", "linked", "first"]
    assert product.recorded("work.exported")[0]["refs"]


def test_a_repository_without_commits(product: Product) -> None:
    """In a repository without a commit an agent can make the first one."""
    empty = product.place / "empty"
    empty.mkdir()
    product.project = empty
    product.git("init", "-q", "-b", "main")
    product.write("file", "x")
    assert product.shell("git add -A && git commit -qm start && git log --format=%s").out.strip() == "start"


def test_a_git_directory_is_no_workspace(product: Product) -> None:
    """A git directory itself is refused as a workspace."""
    assert product("exec", "-C", product.project / ".git", "--", "true").ends_as("refused")


def test_nothing_above_is_seen_from_a_subdirectory(product: Product) -> None:
    """In a subdirectory of a repository an agent sees that directory alone, without history."""
    product.write("sub/file", "x")
    ended = product.shell("git log 2>&1; ls -A; ls ..", cwd=product.project / "sub")
    assert "first" not in ended.out
    assert "app.py" not in ended.out
    assert "file" in ended.out.split()


def test_work_below_another_owner(product: Product) -> None:
    """Git inside takes the workspace for its own, whoever owns it outside."""
    ended = product.shell("git status --short && git rev-parse --show-toplevel")
    assert (ended.code, ended.out.strip()) == (0, str(product.project))
