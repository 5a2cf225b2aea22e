"""Loops as their rows tell them: written by the store, in the order and form in which the machine does."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from ringfence.loop.directory import LoopDirectory
from ringfence.loop.plans import plan_to_json
from ringfence.loop.rows import LoopRow, StoryRow
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore, create_database
from ringfence.loop.story import Plan, Story

BEGUN_MS = 1_767_225_600_000
"""1 January 2026, 00:00 UTC."""
COMMIT = "c0ffee" + 34 * "0"


class Filling:
    """A loop that is written step by step.

    Args:
        state: The state directory.
        stories: Its stories.
    """

    def __init__(self, state: Path, *stories: Story, title: str = "Pieces") -> None:
        self.directory = LoopDirectory("20260101-000000-abcdef", state)
        self.plan = Plan(title, stories=stories)
        self.directory.make()

    async def begin(self, **changed: Any) -> "Filling":
        """Enter it."""
        values: dict[str, Any] = {
            "id": self.directory.id, "source": "/work/pieces", "state": LoopState.RUNNING, "reason": "",
            "plan": plan_to_json(self.plan), "configuration": "{}", "base": COMMIT, "round": 1,
            "branch": f"ringfence/loop-{self.directory.id}", "record_run_id": "2026-01-01T00-00-00-00000001",
            "created_ms": BEGUN_MS, "started_ms": BEGUN_MS, "ended_ms": None, **changed,
        }  # fmt: skip
        rows = [self._row(number, story) for number, story in enumerate(self.plan.ordered())]
        create_database(self.directory, LoopRow(**values), rows)
        self.store = LoopStore(self.directory.database, self.directory.id)
        return self

    def _row(self, number: int, story: Story) -> StoryRow:
        return StoryRow(
            loop=self.directory.id, id=story.id, position=number, state=StoryState.WAITING, reason="", generation=1,
            attempt=0, stage="", slot=None, base=None, tests_commit=None, code_commit=None, merged_commit=None,
        )  # fmt: skip

    async def step(
        self, story: str, name: str, *, outcome: str | None = "unverified", result: Any = None, **more: Any
    ) -> None:
        """A step, at its end or (None) not there yet."""
        row = self.store.story(story)
        tokens, cost = more.pop("tokens", 0), more.pop("cost_usd", 0.0)
        self.store.begin_step(row.key(name), run_id=more.pop("run_id", f"run-{name}"), **more)
        if outcome is not None:
            self.store.end_step(
                row.key(name), outcome=outcome, result=result or {}, tokens=tokens, cost_usd=cost
            )

    async def tests(self, story: str, *, said: str = "tests are there", number: int = 1) -> None:
        """Tests that were written and are red for the right reason."""
        self.store.update_story(story, state=StoryState.RUNNING, slot=0, stage="tests", base=COMMIT)
        answer = {"complaint": None, "answer": {"question": None, "summary": said}}
        await self.step(
            story, f"tests.{number}", role="test_writer", attempt=number, model="m", tokens=900, result=answer
        )
        await self.committed(story, f"tests.{number}", ["tests/test_it.py"])
        await self.step(story, f"red.{number}", outcome="check_red", result=reports(failed=1))
        self.store.update_story(story, tests_commit=COMMIT)

    async def code(
        self, story: str, number: int, *, said: str = "built", files: tuple[str, ...] = ("it.py",)
    ) -> None:
        """An attempt at its code, green."""
        self.store.update_story(story, attempt=number, stage="code")
        answer = {"complaint": None, "answer": {"question": None, "summary": said}}
        await self.step(
            story, f"code.{number}", role="implementor", attempt=number, model="m", tokens=12_000,
            cost_usd=0.25, result=answer,
        )  # fmt: skip
        await self.committed(story, f"code.{number}", files)
        await self.step(story, f"checks.{number}", outcome="check_red", result=reports(passed=3))
        self.store.add_event(
            f"{story}.1.checks.{number}", "checks.completed", story=story, attempt=number, is_green=True,
            checks={"unittest": "green"},
        )  # fmt: skip

    async def judged(self, story: str, number: int, *, words: str = "looked", **verdict: Any) -> None:
        """What reviewer and judge say."""
        names = ("criteria_tested", "real_implementation", "truthful_tests", "intent_met")
        questions = [{"id": name, "answer": True, "evidence": words} for name in names]
        await self.step(
            story, f"review.{number}", role="reviewer", attempt=number, model="m",
            result={"complaint": None, "answer": {"questions": questions}},
        )  # fmt: skip
        said = {
            "criterion": 1, "verdict": "met", "reason": "seen",
            "evidence": [{"test": "tests.test_it.Test.test_it"}, {"file": "it.py", "line": 3}], **verdict,
        }  # fmt: skip
        whole = {"criteria": [said], "overall": "pass", "feedback": ""}
        await self.step(
            story, f"judgement.{number}", role="judge", attempt=number, model="m",
            result={"complaint": None, "answer": {"verdict": whole, "complaints": []}},
        )  # fmt: skip

    async def rejected(self, story: str, number: int, *complaints: str, patch: str | None = None) -> None:
        """An attempt at its code is turned down."""
        result = {"complaints": [*complaints], "patch": patch, "commit": COMMIT}
        await self.step(
            story,
            f"rejected.implementor.{number}",
            outcome="rejected",
            attempt=number,
            run_id=None,
            result=result,
        )
        self.store.add_event(
            f"{story}.1.rejected.implementor.{number}", "story.retried", story=story, attempt=number,
            role="implementor", complaints=[*complaints],
        )  # fmt: skip

    async def committed(self, story: str, name: str, files: "list[str] | tuple[str, ...]") -> None:
        """What a turn left."""
        await self.step(
            story, f"{name}.commit", outcome="committed", run_id=None,
            result={"commit": COMMIT, "files": [*files]},
        )  # fmt: skip

    async def passed(self, story: str, *, reason: str = "") -> None:
        """It is on the branch."""
        self.store.update_story(
            story, state=StoryState.PASSED, stage="", code_commit=COMMIT, merged_commit=COMMIT, reason=reason
        )

    async def at_fixed_times(self) -> None:
        """Steps begin minute after minute, and take 30 s each; events come between."""
        steps = self.store.steps()
        with closing(sqlite3.connect(self.directory.database)) as link, link:
            for number, step in enumerate(steps):
                at = BEGUN_MS + 60_000 * number
                times = (at, None if step.outcome is None else at + 30_000, step.story, step.name)
                link.execute(
                    "UPDATE loop_steps SET began_ms = ?, ended_ms = ? WHERE story = ? AND name = ?", times
                )
            link.execute("UPDATE loop_events SET at_ms = ? + 61000 * number", (BEGUN_MS,))
        self.store.close()
        self.store = LoopStore(self.directory.database, self.directory.id)

    def close(self) -> None:
        """Leave the database."""
        self.store.close()


def reports(*, passed: int = 0, failed: int = 0) -> dict[str, Any]:
    """A gate's result with so many tests."""
    results = {
        f"t{number}": {"id": f"t{number}", "outcome": outcome, "file": None, "detail": "", "cause": None}
        for number, outcome in enumerate([*["passed"] * passed, *["failed"] * failed])
    }
    report = {
        "results": results, "is_complete": True, "exit_code": int(failed > 0), "ended_by": "exit", "output": "",
        "problems": [], "altered": [],
    }  # fmt: skip
    return {"reports": {"unittest": report}}


def story(name: str, **more: Any) -> Story:
    """A story with one criterion."""
    values: dict[str, Any] = {
        "title": f"The piece {name}", "description": "what", "criteria": (f"{name} is there",), "priority": 1.0, **more,
    }  # fmt: skip
    return Story(id=name, **values)
