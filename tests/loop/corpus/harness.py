"""Runs an attempt through the gate of a loop: the command starts a loop whose roles are scripted and whose judge agrees.

So the gate alone decides. A case is a directory: `case.toml`, and trees of files that are laid over the base project
(`base`), written by the test writer (`tests`) and by the implementor (`attempt`). Names that this repository itself
must not hold, such as `.gitattributes`, are texts in `case.toml`.
"""

import base64
import io
import json
import os
import shlex
import shutil
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.loop.machine.project import COMMAND, Project, case

HERE = Path(__file__).parent
EXPECTED = ("passes", "rejected", "left out", "judges")
"""What may be expected of an attempt, see `README.md`."""
_STORY = "story"
_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")


@dataclass(frozen=True)
class Base:
    """A project in one language: its files, what runs its tests, and the tests of a story that need not have others."""

    name: str
    language: str
    command: str
    program: str
    """What must be installed."""
    judged_file: str
    """A file that the judge names as evidence."""

    @property
    def place(self) -> Path:
        """Its directory."""
        return HERE / "bases" / self.name


@dataclass(frozen=True)
class Case:
    """One attempt.

    Attributes:
        kind: The directory that it is in.
        expected: One of `EXPECTED`.
        blames: Words that the reasons for what became of it hold.
        files: Those that the story names.
        is_sample: Whether it is tried in `make test`.
        gap: Why the gate does something else today; empty: it does what is expected.
        script: Further commands of the implementor, after its files are written.
    """

    place: Path
    kind: str
    title: str
    base: Base
    expected: str
    blames: tuple[str, ...]
    files: tuple[str, ...]
    is_sample: bool
    gap: str
    command: str
    script: str
    delete: tuple[str, ...]
    texts: Mapping[str, str]
    links: Mapping[str, str]
    executable: tuple[str, ...]

    @property
    def name(self) -> str:
        """`kind/name`."""
        return f"{self.kind}/{self.place.name}"


@dataclass(frozen=True)
class Got:
    """What became of an attempt, and all that was said about it."""

    verdict: str
    """`passes`, `rejected`, `left out`, or a sentence if the loop did not come so far."""
    reasons: tuple[str, ...]

    def is_as_expected(self, case: Case) -> bool:
        """Whether the gate did what is written in the case."""
        wanted = "passes" if case.expected == "judges" else case.expected
        said = "\n".join(self.reasons)
        return self.verdict == wanted and all(word in said for word in case.blames)


@cache
def bases() -> dict[str, Base]:
    """All base projects by name."""
    found = tomllib.loads((HERE / "bases.toml").read_text())
    return {name: Base(name=name, **about) for name, about in found.items()}


@cache
def cases() -> dict[str, Case]:
    """All cases by name, in order."""
    found = (_case(file) for file in sorted((HERE / "cases").glob("*/*/case.toml")))
    return {each.name: each for each in found}


def _case(file: Path) -> Case:
    about = tomllib.loads(file.read_text())
    base = bases()[about.pop("base")]
    expected = about.pop("expected")
    if expected not in EXPECTED:
        raise ValueError(f"{file}: {expected!r} is none of {', '.join(EXPECTED)}")
    found = Case(
        place=file.parent,
        kind=file.parent.parent.name,
        title=about.pop("title"),
        base=base,
        expected=expected,
        blames=tuple(about.pop("blames", ())),
        files=tuple(about.pop("files", ())),
        is_sample=about.pop("sample", False),
        gap=about.pop("gap", ""),
        command=about.pop("command", base.command),
        script=about.pop("script", ""),
        delete=tuple(about.pop("delete", ())),
        texts=about.pop("texts", {}),
        links=about.pop("links", {}),
        executable=tuple(about.pop("executable", ())),
    )
    if about:
        raise ValueError(f"{file}: unknown keys {', '.join(sorted(about))}")
    return found


def missing(case: Case) -> str | None:
    """Why a case cannot be run on this machine; None: it can."""
    path = "/usr/local/bin:/usr/bin:/bin"  # what sandboxes have
    there = shutil.which(case.base.program, path=path)
    return None if there else f"{case.base.program!r} is not in {path}"


def run_case(case: Case, root: Path) -> Got:
    """Run an attempt in a loop of one story.

    Args:
        case: The attempt.
        root: An empty directory for the project and the state of the loop.
    """
    project = _project(case, root)
    done = project.run(*project.starting, "--json", "--no-review", "--attempts", "1", command=COMMAND)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return _got(lines, f"exit {done.returncode}: {done.stderr[-2000:]}")


def _project(case: Case, root: Path) -> Project:
    project = Project(root)
    project.environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")},
        "HOME": str(root / "home"),
        "RINGFENCE_STATE_DIR": str(root / "state"),
        "XDG_CACHE_HOME": str(root / "cache"),
        "XDG_CONFIG_HOME": str(root / "config"),
    }
    (root / "home").mkdir(parents=True)
    project.work.mkdir()
    for tree in (case.base.place / "project", case.place / "base"):
        if tree.is_dir():
            shutil.copytree(tree, project.work, dirs_exist_ok=True)
    story = {
        "id": _STORY,
        "title": "Addition",
        "description": "add(a, b) returns the sum of two numbers.",
        "acceptance_criteria": ["add(1, 2) is 3, add(2, 2) is 4"],
        "files": list(case.files),
    }
    plan = {"title": "Sums", "test_command": case.command, "stories": [story]}
    project.prd.write_text(json.dumps(plan))
    project.play(list(_roles(case)))
    file = root / "config" / "ringfence" / "ringfence.yaml"
    file.parent.mkdir(parents=True)
    if case.base.language == "Python":
        packages = {"source": str(_packages(root)), "target": "/packages"}
        file.write_text(json.dumps({"sandbox": {"mounts": [packages], "env": {"PYTHONPATH": "/packages"}}}))
    project.git("init", "--quiet", "--initial-branch=main")
    project.git("add", "--all", "--force")
    project.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "base")
    return project


def _packages(root: Path) -> Path:
    """Pytest and what it needs, without the plugins that happen to be installed beside it."""
    source, target = Path(pytest.__file__).parents[1], root / "packages"
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir() and path.name.partition("-")[0] in _PACKAGES:
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name in _PACKAGES:
            shutil.copy(path, target)
    return target


def _roles(of: Case) -> Iterator[dict[str, Any]]:
    tests = of.place / "tests"
    tests = tests if tests.is_dir() else of.base.place / "tests"
    yield case("role: test_writer", run=_unpack(tests, (), {}, {}))
    attempt = _unpack(of.place / "attempt", of.executable, of.texts, of.links)
    removal = f"rm -rf -- {shlex.join(of.delete)}" if of.delete else ""
    yield case("role: implementor", run="\n".join(filter(None, (removal, attempt, of.script))))
    evidence = [{"file": of.base.judged_file, "line": 1}]
    criterion = {"criterion": 1, "verdict": "met", "evidence": evidence, "reason": "seen"}
    yield case("role: judge", say=json.dumps({"criteria": [criterion], "overall": "pass", "feedback": ""}))


def _unpack(
    tree: Path, executable: tuple[str, ...], texts: Mapping[str, str], links: Mapping[str, str]
) -> str:
    """A command that writes a tree of files into the workspace."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        found = sorted(path for path in tree.rglob("*") if path.is_file()) if tree.is_dir() else []
        files = {path.relative_to(tree).as_posix(): path.read_bytes() for path in found}
        for name, content in (files | {name: text.encode() for name, text in texts.items()}).items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if name in executable else 0o644
            archive.addfile(member, io.BytesIO(content))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    packed = base64.b64encode(data.getvalue()).decode()
    return f"printf %s {packed} | base64 -d | tar --extract --gzip --no-same-owner --absolute-names"


def _got(lines: list[dict[str, Any]], otherwise: str) -> Got:
    """What the events of a loop say of its only story."""
    events = {each["event"]: each for each in lines}
    committed = events.get("code.committed", {})
    left_out = tuple(committed.get("left_out", ()))
    if "story.passed" in events:
        return Got("left out" if left_out else "passes", left_out)
    failed = events.get("story.failed", {})
    reasons = (*failed.get("complaints", ()), *left_out)
    if failed.get("role") == "implementor":
        return Got("rejected", reasons)
    if failed:
        return Got("the tests are rejected", reasons)
    return Got("no verdict", (otherwise, *(str(each.get("reason", "")) for each in lines[-2:])))


def reason(got: Got) -> str:
    """The first reason in one line."""
    return " ".join((got.reasons or ("",))[0].split())
