"""A small repository with stories, and a script that plays all roles of their loop."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked
from tests.forked import Forked

CHECK = "python3 -m unittest -q"
PATIENCE_S = 180.0
COMMAND = (sys.executable, "-m", "ringfence")


def state_environment(root: Path) -> dict[str, str]:
    """The environment of commands whose state and configuration are in a directory."""
    return {
        **os.environ,
        "RINGFENCE_STATE_DIR": str(root / "state"),
        "XDG_CACHE_HOME": str(root / "cache"),
        "XDG_CONFIG_HOME": str(root / "config"),
    }


def reviewed(*, good: bool = True) -> str:
    """What a reviewer says."""
    names = ("criteria_tested", "real_implementation", "truthful_tests", "intent_met")
    return json.dumps({"questions": [{"id": name, "answer": good, "evidence": "looked"} for name in names]})


def judged(test: str, *, verdict: str = "met") -> str:
    """What a judge says of one criterion."""
    is_met = verdict == "met"
    criterion = {
        "criterion": 1,
        "verdict": verdict,
        "evidence": [{"test": test}] if is_met else [],
        "reason": "seen",
    }
    feedback = "" if is_met else "do what the story says"
    return json.dumps(
        {"criteria": [criterion], "overall": "pass" if is_met else "reject", "feedback": feedback}
    )


def case(*when: str, run: str | None = None, say: str = "done") -> dict[str, Any]:
    """One part of the script: a command, and a last word."""
    work = [{"tools": [{"run": run}]}] if run is not None else []
    return {"when": [*when], "turns": [*work, {"text": say}]}


def story_of(name: str, **more: Any) -> dict[str, Any]:
    """A story: a function `name` in `pieces/name.py` that returns its own name."""
    return {
        "id": name,
        "title": f"The piece {name}",
        "description": f"pieces/{name}.py has a function {name}() that returns '{name}'.",
        "acceptance_criteria": [f"{name}() returns '{name}'"],
        **more,
    }


def events_of(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """What happened, as a command with `--json` told."""
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return [each for each in told if each["event"] != "loop.summary"]


def parts_of(name: str, *, code: str | None = None) -> list[dict[str, Any]]:
    """All roles' parts in a story that passes at once, or with other code."""
    test = (
        f"cat > tests/test_{name}.py <<'EOF'\nimport unittest\nfrom pieces.{name} import {name}\n\n"
        f"class Test(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual({name}(), '{name}')\nEOF"
    )
    code = (
        code if code is not None else f"printf 'def {name}():\\n    return \"{name}\"\\n' > pieces/{name}.py"
    )
    about = f"story: {name}"
    return [
        case("role: test_writer", about, run=test),
        case("role: implementor", about, run=code),
        case("role: reviewer", about, say=reviewed()),
        case("role: judge", about, say=judged(f"tests.test_{name}.Test.test_it")),
    ]


@dataclass(frozen=True)
class Recorded:
    """A run's record."""

    id: str
    kinds: list[str]
    """Of its events, in order."""


def instead(other: dict[str, Any], name: str = "one") -> list[dict[str, Any]]:
    """All roles' parts in a story, with another part for one of them."""
    role = next(each for each in other["when"] if each.startswith("role: "))
    return [other, *[each for each in parts_of(name) if role not in each["when"]]]


@dataclass
class Project:
    """A repository, its stories, and the state of loops on it."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(
        cls, root: Path, stories: Sequence[dict[str, Any]], cases: Sequence[dict[str, Any]]
    ) -> "Project":
        """Make the repository with one commit."""
        made = cls(root, state_environment(root))
        made.work.mkdir(parents=True)
        for folder in ("pieces", "tests"):
            (made.work / folder).mkdir()
            (made.work / folder / "__init__.py").touch()
        (made.work / "tests" / "test_old.py").write_text(
            "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test_old(self):\n        pass\n"
        )
        made.prd.write_text(json.dumps({"title": "Pieces", "stories": [*stories]}))
        made.play(cases)
        made.commit_base()
        return made

    def commit_base(self) -> None:
        """Make the checkout a repository, with all its files in one commit."""
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "--all")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "base")

    @property
    def work(self) -> Path:
        """The user's checkout."""
        return self.root / "work"

    @property
    def prd(self) -> Path:
        """The stories."""
        return self.root / "prd.json"

    @property
    def script(self) -> Path:
        """What the roles say."""
        return self.root / "script.yaml"

    def git(self, *words: str) -> str:
        """Git on the user's checkout."""
        done = subprocess.run(
            ["git", *words], cwd=self.work, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        return done.stdout.strip()

    def run(self, *words: str, command: Sequence[str] = COMMAND) -> "subprocess.CompletedProcess[str]":
        """A command of ringfence, to its end."""
        return forked.run(
            [*command, *words],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )

    def configure(self, **loop: Any) -> None:
        """Say in the user's own file how loops work."""
        file = self.root / "config" / "ringfence" / "ringfence.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"loop": loop}))

    def play(self, cases: Sequence[dict[str, Any]], *, price: float = 0) -> None:
        """Have the model say this from now on."""
        self.script.write_text(json.dumps({"price": {"input": price, "output": price}, "cases": [*cases]}))

    def begin(self, *words: str, command: Sequence[str] = COMMAND) -> "subprocess.Popen[str]":
        """A command of ringfence that goes on meanwhile, in a process group of its own."""
        return Forked[str](
            [*command, *words], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    @property
    def starting(self) -> tuple[str, ...]:
        """The words that start a loop."""
        return ("loop", "start", "--prd", str(self.prd), "--model", f"scripted:{self.script}")

    def start(self, *more: str, command: Sequence[str] = COMMAND) -> "subprocess.CompletedProcess[str]":
        """Start a loop, and work it to its end."""
        return self.run(*self.starting, *more, command=command)

    def runs(self) -> list[Recorded]:
        """All records."""
        found = []
        for path in sorted((self.root / "state" / "runs").glob("*/journal.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found.append(Recorded(path.parent.name, [line["event"] for line in lines]))
        return found

    def started(self, *more: str) -> "subprocess.Popen[str]":
        """Start a loop that works on, with its standard output."""
        words = ("loop", "start", "--prd", str(self.prd), "--model", f"scripted:{self.script}", *more)
        return Forked[str](
            [*COMMAND, *words], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    @property
    def branch(self) -> str:
        """The branch that was delivered."""
        (found,) = self.git("for-each-ref", "--format=%(refname)", "refs/heads/ringfence/").splitlines()
        return found

    def rows(self) -> dict[str, dict[str, Any]]:
        """The stories of the last loop, as `loop status` tells them."""
        told = json.loads(self.run("loop", "status", "--json").stdout)
        return {each["id"]: each for each in told["stories"]}

    def subjects(self, name: str | None = None) -> list[str]:
        """What the commits of a branch are called, the oldest first."""
        return self.git("log", "--reverse", "--format=%s", name or self.branch).splitlines()
