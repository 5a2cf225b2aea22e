"""The steps of a story. Each can be repeated: what it came to is known by its name, and not done again."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ringfence.errors import ConfigurationError
from ringfence.loop.briefing import TaskBuilder
from ringfence.loop.machine.clones import Clones
from ringfence.loop.machine.gates import Gates
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.rejecting import Rejecting
from ringfence.loop.machine.stop import Stop
from ringfence.loop.machine.turns import Turn, Turns
from ringfence.loop.repository import Change, NothingChanged, WorkRefused
from ringfence.loop.rows import CODE, TESTS, StoryRow, tests_steps
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopState, StoryState

Json = dict[str, Any]
Part = Callable[[StoryRow, int], Awaitable[Json]]
_SHOWN = 20


class Stories:
    """What is done about single stories.

    Args:
        loop: Theirs.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.clones = Clones(loop)
        self.gates = Gates(loop, self.clones)
        self._turns = Turns(loop, self.clones)
        self._tasks = TaskBuilder(loop, self.clones, self.gates.removed_tests)
        self._rejecting = Rejecting(loop, self.clones)
        self._parts: Mapping[str, tuple[str, Part]] = {
            "begin": ("tests", self._begin),
            "tests": ("tests", self._write_tests),
            "red": ("tests", self._see_tests_fail),
            "code": ("code", self._write_code),
            "checks": ("checks", self._check),
            "review": ("review", self._review),
            "judgement": ("judgement", self._judge),
        }
        """The stage that a story is in meanwhile, and what is done."""

    async def work(self, story: str) -> Json:
        """One story to its end: tests first, then code until it is accepted or its attempts are used up.

        The answer's `next` says how it ended: `passed`, `skipped` or `blocked`; `stop` ends the loop. A story that is
        worked on again after its process died comes to the same at once, up to the step that was interrupted.
        """
        answer = await self._do("begin", story, 0)
        for parts in (TESTS, CODE):
            if answer["next"] == "on":
                answer = await self._attempts(story, parts)
        return await self._end(story, answer)

    async def _attempts(self, story: str, parts: Sequence[str]) -> Json:
        """Try until all parts say `on`; one that says `again` begins the next attempt."""
        answer: Json = {}
        for attempt in range(1, self.loop.settings.attempts + 1):
            for name in parts:
                answer = await self._do(name, story, attempt)
                if answer["next"] != "on":
                    break
            if answer["next"] != "again":
                return answer
        return {"next": "skipped", "reason": answer["reason"]}

    async def _do(self, name: str, story: str, attempt: int) -> Json:
        """Do a part. What ends the loop is an answer of it: other stories come to their ends first."""
        stage, part = self._parts[name]
        self.loop.store.update_story(story, stage=stage)
        try:
            return await part(self.loop.store.story(story), attempt)
        except Stop as exc:
            return {"next": "stop", "state": exc.state.value, "reason": exc.reason}
        except ConfigurationError as exc:
            return {"next": "stop", "state": LoopState.CONFIGURATION.value, "reason": str(exc)}

    async def _begin(self, row: StoryRow, _attempt: int) -> Json:
        """Note the commit of the loop's branch that the story is begun at."""
        base = row.base or await self.loop.repository.tip()
        self.loop.store.update_story(row.id, base=base)
        self.loop.tell(row, "dispatched", "story.dispatched", base=base, slot=row.slot)
        return {"next": "on"}

    async def _write_tests(self, row: StoryRow, attempt: int) -> Json:
        """The test writer's turn: of its work, the tests are taken."""
        assert row.base is not None
        past = await self._rejecting.past(row, "test_writer")
        task = await self._tasks.test_writer(row, attempt, past)
        turn = await self._turns.take(row, f"tests.{attempt}", task)
        ended = await self._ended(row, turn, "test_writer", attempt)
        if ended is not None:
            return ended
        changes = await self._changes(turn)
        if isinstance(changes, str):
            return await self._rejecting.again(row, "test_writer", attempt, [changes])
        kept, dropped = self.clones.only_tests(changes)
        if not kept:
            others = f"; these are none: {', '.join(dropped[:_SHOWN])}" if dropped else ""
            return await self._rejecting.again(
                row, "test_writer", attempt, [f"no test file was written{others}"]
            )
        return await self._committed(row, row.base, kept, turn, "test_writer", attempt)

    async def _see_tests_fail(self, row: StoryRow, attempt: int) -> Json:
        """Run the suite with the new tests: they must be red, and for the right reason."""
        made = await self._made(row, f"tests.{attempt}")
        complaints = await self.gates.tests_are_red(row, f"red.{attempt}", made["commit"], made["files"])
        if complaints:
            return await self._rejecting.again(row, "test_writer", attempt, complaints, commit=made["commit"])
        self.loop.store.update_story(row.id, tests=made["commit"])
        self.loop.tell(
            row,
            "tests",
            "tests.written",
            of=tests_steps(attempt),
            commit=made["commit"],
            files=made["files"][:_SHOWN],
        )
        return {"next": "on"}

    async def _write_code(self, row: StoryRow, attempt: int) -> Json:
        """The implementor's turn: its work is taken unless it touches what decides about it."""
        assert row.tests is not None
        self.loop.store.update_story(row.id, attempt=attempt)
        past = await self._rejecting.past(row, "implementor")
        task = await self._tasks.implementor(row, attempt, past)
        turn = await self._turns.take(row, f"code.{attempt}", task)
        ended = await self._ended(row, turn, "implementor", attempt)
        if ended is not None:
            return ended
        changes = await self._changes(turn)
        if isinstance(changes, str):
            return await self._rejecting.again(row, "implementor", attempt, [changes])
        reported = await self.gates.tested_files(row)
        assembled = await self.clones.assemble(row, row.tests, changes, reported=reported)
        if assembled.complaints or not assembled.changes:
            complaints = [*assembled.complaints, *_left_out(assembled.left_out)]
            return await self._rejecting.again(row, "implementor", attempt, complaints)
        answer = await self._committed(
            row, row.tests, assembled.changes, turn, "implementor", attempt,
            left_out=list(assembled.left_out),
            configuration=sorted(os.fsdecode(path) for path in assembled.configuration),
        )  # fmt: skip
        if answer["next"] != "on":
            return answer
        self.loop.tell(
            row,
            f"code.{attempt}",
            "code.committed",
            of=[f"code.{attempt}"],
            attempt=attempt,
            commit=answer["commit"],
            files=len(assembled.changes),
            left_out=assembled.left_out[:_SHOWN],
        )
        return answer

    async def _check(self, row: StoryRow, attempt: int) -> Json:
        """All checks in a new sandbox: what was green stays green, the story's tests have become so."""
        made = await self._made(row, f"code.{attempt}")
        commit = made["commit"]
        complaints, told = await self.gates.green(row, f"checks.{attempt}", commit)
        if not complaints and made.get("configuration"):
            complaints = await self._check_with_old_configuration(row, attempt, commit, made["configuration"])
        if not complaints:
            complaints = await self.gates.own_tests_alone(row, attempt, commit)
        is_green = not complaints
        if complaints:
            complaints = [*complaints, *_left_out(made.get("left_out", ()))]
        self.loop.tell(
            row,
            f"checks.{attempt}",
            "checks.completed",
            of=[f"checks.{attempt}"],
            attempt=attempt,
            is_green=is_green,
            checks=told,
        )
        if complaints:
            return await self._rejecting.again(row, "implementor", attempt, complaints, commit=commit)
        return {"next": "on", "checks": told}

    async def _check_with_old_configuration(
        self, row: StoryRow, attempt: int, commit: str, configuration: Sequence[str]
    ) -> list[str]:
        """What is wrong with a candidate whose configuration is as it was before the story."""
        other = await self.clones.with_old(row, commit, configuration, attempt=attempt)
        complaints, _ = await self.gates.green(row, f"configuration.{attempt}", other)
        return [f"with {', '.join(configuration)} as before the story: {each}" for each in complaints]

    async def _review(self, row: StoryRow, attempt: int) -> Json:
        """The reviewer's answers, for the judge."""
        if self.loop.settings.review:
            commit = (await self._made(row, f"code.{attempt}"))["commit"]
            await self._turns.take(row, f"review.{attempt}", await self._tasks.reviewer(row, attempt, commit))
        return {"next": "on"}

    async def _judge(self, row: StoryRow, attempt: int) -> Json:
        """The judge's verdict; one that cannot be read or relied on is nobody's attempt."""
        commit = (await self._made(row, f"code.{attempt}"))["commit"]
        task = await self._tasks.judge(row, attempt, commit)
        verdict = (await self._turns.take(row, f"judgement.{attempt}", task)).answer
        if verdict["complaints"]:
            return await self._rejecting.again(
                row, "implementor", attempt, verdict["complaints"], commit=commit
            )
        return {"next": "passed", "commit": commit}

    async def _end(self, story: str, answer: Json) -> Json:
        """Write down how it ended."""
        row, store = self.loop.store.story(story), self.loop.store
        match answer["next"]:
            case "passed":
                store.update_story(story, tip=answer["commit"], stage="merge")
            case "skipped":
                store.update_story(story, state=StoryState.SKIPPED, reason=answer["reason"], stage="")
                self.loop.tell(row, "ended", "story.skipped", reason=answer["reason"])
            case "blocked":
                store.update_story(story, state=StoryState.BLOCKED, reason=answer["reason"], stage="")
                self.loop.tell(row, "ended", "story.blocked", question=answer["reason"])
            case _:
                store.update_story(story, state=StoryState.WAITING)
        return answer

    async def _ended(self, row: StoryRow, turn: Turn, role: RoleName, attempt: int) -> Json | None:
        """What comes of a turn that made nothing: a question, or a run that failed."""
        if turn.complaint is not None:
            return await self._rejecting.again(row, role, attempt, [turn.complaint])
        if turn.answer.get("question"):
            return {"next": "blocked", "reason": turn.answer["question"]}
        return None

    async def _changes(self, turn: Turn) -> list[Change] | str:
        try:
            found = await self.clones.changes(turn.run_id)
        except WorkRefused as exc:
            return str(exc)
        return found or "nothing was changed"

    async def _committed(
        self,
        row: StoryRow,
        base: str,
        changes: Sequence[Change],
        turn: Turn,
        role: RoleName,
        attempt: int,
        **more: Any,
    ) -> Json:
        """Commit what is taken; both sides of a crash find the same commit. `more` is kept beside it."""
        try:
            commit = await self.clones.commit(
                row, base, changes, role=role, attempt=attempt, model=turn.model, at_s=turn.at_s
            )
        except (WorkRefused, NothingChanged) as exc:
            return await self._rejecting.again(row, role, attempt, [str(exc)])
        name = f"{'tests' if role == 'test_writer' else 'code'}.{attempt}.commit"
        files = [change.path.decode("utf-8", "surrogateescape") for change in changes]
        shown = [path.encode("utf-8", "backslashreplace").decode() for path in files]
        self.loop.store.begin_step(row, name, run_id=None, attempt=attempt)
        self.loop.store.end_step(
            row, name, outcome="committed", result={"commit": commit, "files": shown, **more}
        )
        return {"next": "on", "commit": commit}

    async def _made(self, row: StoryRow, name: str) -> Json:
        """The commit that a turn's work became, and its files."""
        step = self.loop.store.step(row, f"{name}.commit")
        assert step is not None
        return dict(step.result)


def _left_out(changes: Sequence[str]) -> list[str]:
    """What an attempt is told about its changes of protected files."""
    if not changes:
        return []
    shown = [*changes[:_SHOWN], *([f"and {len(changes) - _SHOWN} more"] if len(changes) > _SHOWN else [])]
    return [f"these changes were left out, as the files are protected: {'; '.join(shown)}"]
