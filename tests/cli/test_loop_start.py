"""What `ringfence loop start` refuses, and how it leaves the user's repository."""

import json
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_USAGE, _REFUSED, _CONFIGURATION = 2, 4, 78


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A repository in which nothing is ever begun."""
    return Project.make(tmp_path_factory.mktemp("refused"), [story_of("one")], parts_of("one"))


def _says(project: Project, told: object) -> Path:
    file = project.work / "ringfence.yaml"
    file.write_text(json.dumps(told))
    return file


def test_an_untrusted_file_says_nothing_of_loops(project: Project):
    """A repository that was cloned cannot configure who works unattended."""
    file = _says(project, {"loop": {"attempts": 2}})
    done = project.start()
    file.unlink()
    assert (done.returncode, "ringfence config trust" in done.stderr) == (_REFUSED, True), done


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        ({"atempts": 2}, "attempts"),
        ({"limits": {"tokenz": 2}}, "tokens"),
        ({"roles": {"juge": {"model": "m"}}}, "judge"),
        ({"engine": {"type": "postgres", "url": "postgresql://host/name"}}, "loop.engine: there is no"),
    ],
)
def test_a_wrong_key_is_named_with_its_place(project: Project, told: dict[str, object], hint: str):
    """File, line and column, and what was probably meant."""
    project.configure(**told)
    done = project.start()
    project.configure()
    assert done.returncode == _CONFIGURATION, done
    assert "ringfence.yaml:1:" in done.stderr
    assert hint in done.stderr


@pytest.mark.parametrize("role", ["judge", "juge=api", "judge=nothing:m"])
def test_a_role_that_makes_no_sense_is_refused(project: Project, role: str):
    """By the option that said it."""
    done = project.start("--role", role)
    assert (done.returncode, "--role" in done.stderr) == (_USAGE, True), done
    assert not (project.root / "state" / "loops").exists() or not [
        *(project.root / "state" / "loops").glob("2*")
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "HEAD of "), (("--base", "main"), "and --base 'main' starts from")],
    ids=["HEAD", "base"],
)
def test_a_merge_without_a_branch_is_refused_before_anything_is_made(
    project: Project, options: tuple[str, ...], said: str
):
    """With 2: at the end of the loop the work would be done, and its own exit code hidden."""
    project.git("checkout", "--quiet", "--detach")
    done = project.start("--merge", *options)
    project.git("checkout", "--quiet", "main")
    assert (done.returncode, said in done.stderr, done.stdout) == (_USAGE, True, ""), done
    assert not [*(project.root / "state").glob("loops/2*")]


def test_the_users_checkout_stays_as_it_is(tmp_path: Path):
    """Dirty, on no branch, with a stash, hooks, filters and programs in its configuration: none of them is run."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    work, trap = project.work, tmp_path / "sprung"
    (work / "tests" / "test_old.py").write_text("# mine\n")
    project.git("-c", "user.name=t", "-c", "user.email=t@example.org", "stash")
    project.git("checkout", "--quiet", "--detach")
    spring = f"touch {trap}"
    (work / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    project.git("add", ".gitattributes")
    (work / "untracked").write_text("mine")
    for key in (
        "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.external", "core.fsmonitor",
        "core.sshCommand", "gpg.program", "core.pager", "uploadpack.packObjectsHook", "alias.log",
    ):  # fmt: skip
        project.git("config", key, f"!{spring}" if key == "alias.log" else f"sh -c '{spring}; cat'")
    for hook in (
        "post-checkout",
        "reference-transaction",
        "pre-commit",
        "post-commit",
        "update",
        "post-index-change",
    ):
        file = work / ".git" / "hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{spring}\n")
        file.chmod(0o755)
    trap.unlink(missing_ok=True)
    before = _state(work)
    done = project.start()
    assert done.returncode == 0, done
    assert not trap.exists()
    assert _state(work) == before


def _state(work: Path) -> dict[str, bytes]:
    git = work / ".git"
    kept = [
        git / "HEAD",
        git / "index",
        git / "config",
        git / "refs/stash",
        git / "logs/HEAD",
        git / "refs/heads/main",
    ]
    files = [
        path for path in work.rglob("*") if path.is_file() and ".git" not in path.relative_to(work).parts
    ]
    return {
        str(path): path.read_bytes() for path in [*kept, *files, *(git / "hooks").iterdir()] if path.exists()
    }
