"""Carries out a person's decision about a story: accept a rejected attempt, reject a passed story, or retry a story.

A decision changes the loop's rows; a rejection also changes the loop's branch. The loop is resumed afterwards: it merges
accepted stories, works on waiting ones, delivers the branch and writes its report.
"""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.loop.completion import deliver_branch
from ringfence.loop.configuration import restore_configuration
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.journal import open_with_record
from ringfence.loop.plans import plan_from_json, plan_to_json, with_mended
from ringfence.loop.repository import Conflict, DeliveryRefused, LoopRepository, RepositoryRefused, Trailers
from ringfence.loop.rows import ACCEPTED_BY_PERSON, REJECTED_BY_PERSON, StoryRow, describe_rejection
from ringfence.loop.state import StoryState
from ringfence.loop.store import LoopStore, now_ms
from ringfence.loop.story import Plan

_MAX_SHOWN = 5
_MAX_REASON_CHARS = 2_000


@frozen
class _Decision:
    """A story about which a person decides, with its loop."""

    store: LoopStore
    repository: LoopRepository
    row: StoryRow
    plan: Plan

    @property
    def dependents(self) -> set[str]:
        """The stories that depend on this one, directly or indirectly, and have no question of their own."""
        found, added = set[str](), {self.row.id}
        while added:
            found |= added
            added = {each.id for each in self.plan.stories if found.intersection(each.depends_on)} - found
        with_question = {each.id for each in self.plan.stories if each.question is not None}
        return found - with_question - {self.row.id}

    def release_dependents(self) -> None:
        """Set the stories to waiting that were skipped or blocked because of this one, before they were started."""
        for each in self.store.stories:
            was_not_started = each.state in (StoryState.SKIPPED, StoryState.BLOCKED) and each.base is None
            if was_not_started and each.id in self.dependents:
                self.store.update_story(
                    each.id, state=StoryState.WAITING, generation=each.generation + 1, reason=""
                )


@contextmanager
def _decide(directory: LoopDirectory, story: str) -> Iterator[_Decision]:
    """Open a loop and its repository for a decision about a story."""
    with open_with_record(directory) as store:
        repository = LoopRepository.open(directory.repository_dir)
        yield _Decision(store, repository, store.story(story), plan_from_json(store.loop.plan))


async def retry(directory: LoopDirectory, story: str, answer: str | None) -> str | None:
    """Start a skipped or blocked story from the beginning, with its current text in the stories' file.

    Stories that were skipped or blocked because of it wait again, too.

    Args:
        directory: The loop's directories.
        story: The story's id.
        answer: The answer to a blocked story's question, for the roles' prompts.

    Returns:
        A line for the user if the story's text is not that of the stories' file; None if it is.

    Raises:
        UsageError: There is no such story, it is neither skipped nor blocked, or another process works on the loop.
        RepositoryRemoved: The loop's working files were removed.
        ConfigurationError: The stories' file is not valid.
    """
    with _decide(directory, story) as decision:
        store, row = decision.store, decision.row
        if row.state not in (StoryState.SKIPPED, StoryState.BLOCKED):
            raise UsageError(
                f"story {story!r} is {row.state.value}; only a skipped or blocked story can be retried"
            )
        if row.state is StoryState.BLOCKED and answer is None:
            raise UsageError(f"story {story!r} asks: {row.reason}; answer by --answer TEXT")
        plan, problem = await anyio.to_thread.run_sync(with_mended, decision.plan, story)
        with store.transaction():
            store.update_loop(plan=plan_to_json(plan))
            store.update_story(
                story, state=StoryState.WAITING, generation=row.generation + 1, attempt=0, stage="", base=None,
                tests_commit=None, code_commit=None, reason="", slot=None,
                answer=row.answer if answer is None else answer,
            )  # fmt: skip
            _Decision(store, decision.repository, row, plan).release_dependents()
            store.begin_round()
        return (
            None if problem is None else f"{story}: {problem}; its text is as it was when it was last started"
        )


async def accept(directory: LoopDirectory, story: str, number: int | None) -> str:
    """Accept a rejected attempt at a story as if the judge had accepted it; the resumed loop merges it.

    Stories that were skipped because of this one wait again.

    Args:
        directory: The loop's directories.
        story: The story's id.
        number: The attempt's number, as for `loop diff STORY --rejected N`. None: the last attempt.

    Returns:
        A line for the user, which says whether the attempt failed its checks.

    Raises:
        UsageError: There is no such story or attempt, the story has passed or was rejected by a person, or another
            process works on the loop.
        RepositoryRemoved: The loop's working files were removed.
    """
    with _decide(directory, story) as decision:
        store, row = decision.store, decision.row
        if row.state is StoryState.PASSED:
            raise UsageError(f"story {story!r} has passed: nothing of it is left to accept")
        rejected = store.step(row.key(REJECTED_BY_PERSON))
        if rejected is not None and rejected.outcome is not None:
            raise UsageError(
                f"story {story!r} was {row.reason or 'rejected by a person'}; such a story is not accepted again, and "
                f"`ringfence loop retry` starts it again"
            )
        settings = restore_configuration(store.loop.configuration, loop=directory.id)[1]
        attempt, commit = _find_attempt(store, row, number, settings.attempts)
        with store.transaction():
            by, failing = _user_name(), _failing_checks(store, row, attempt)
            result = {"commit": commit, "by": by, "is_failing": failing is not None}
            store.keep_step(row.key(ACCEPTED_BY_PERSON), outcome="accepted", result=result, attempt=attempt)
            store.update_story(
                story, state=StoryState.RUNNING, stage="merge", code_commit=commit, attempt=attempt, reason="",
                slot=_free_worktree(store),
            )  # fmt: skip
            decision.release_dependents()
            store.begin_round()
        shown = (row.generation - 1) * settings.attempts + attempt
        how = "" if failing is None else f" although {failing}"
        return f"{story}: attempt {shown} is accepted by {by}{how}"


def _failing_checks(store: LoopStore, row: StoryRow, attempt: int) -> str | None:
    """Return what is wrong with an attempt's checks, as the end of a sentence; None if it passed them."""
    step = store.step(row.key(f"checks.{attempt}"))
    events = [
        event.data for event in store.events if (event.type, event.story) == ("checks.completed", row.id)
    ]
    found = next((data for data in reversed(events) if data.get("attempt") == attempt), None)
    if step is None or step.outcome is None or found is None:
        return "its checks were not run"
    if found.get("is_green"):
        return None
    red = [name for name, colour in found.get("checks", {}).items() if colour == "red"]
    return f"its checks failed ({', '.join(red)})" if red else "its checks failed"


def _free_worktree(store: LoopStore) -> int:
    """Return the number of a worktree that no story uses which is resumed."""
    used = {each.slot for each in store.stories if each.state is StoryState.RUNNING}
    return next(number for number in count() if number not in used)


async def reject(directory: LoopDirectory, story: str, reason: str | None) -> str:
    """Reject a story that passed, or that waits to be merged; its merged commits are reverted on the loop's branch.

    A call that was interrupted can be repeated.

    Args:
        directory: The loop's directories.
        story: The story's id.
        reason: Why, for events and report, and for the agents of the next attempt; its first 2,000 characters are kept.

    Returns:
        A line for the user.

    Raises:
        UsageError: There is no such story, it neither passed nor was accepted, other stories depend on it, another of
            the user's branches contains it, or another process works on the loop.
        RepositoryRemoved: The loop's working files were removed.
        DeliveryRefused: The story is rejected, but the user's repository cannot take the branch as it is now.
        InfrastructureFault: Git failed.
    """
    with _decide(directory, story) as decision:
        store, row, by = decision.store, decision.row, _user_name()
        is_accepted = row.state is StoryState.RUNNING and row.stage == "merge"
        if row.state is not StoryState.PASSED and not is_accepted:
            raise UsageError(
                f"story {story!r} is {row.state.value}; only a story that passed, or that was accepted, can be rejected"
            )
        why = (reason or "").strip()[:_MAX_REASON_CHARS]
        commit = None if row.merged_commit is None else await _revert(decision, row.merged_commit, by, why)
        patch = await _keep_patch(decision)
        result = {"commit": commit, "by": by, "reason": why, "patch": patch}
        with store.transaction():
            store.keep_step(
                row.key(REJECTED_BY_PERSON), outcome="rejected", result=result, attempt=row.attempt
            )
            store.update_story(
                story,
                state=StoryState.SKIPPED,
                stage="",
                merged_commit=None,
                reason=describe_rejection(result),
                slot=None,
            )
            store.begin_round()
            store.add_event(
                f"{story}.{row.generation}.{REJECTED_BY_PERSON}", "story.rejected", story=story, attempt=row.attempt,
                commit=commit, by=by, reason=why,
            )  # fmt: skip
        if commit is not None:
            await _deliver(decision, story)
        taken_back = "" if commit is None else f"; taken back from {store.loop.branch}"
        return f"{story}: rejected by {by}{f': {why}' if why else ''}{taken_back}"


async def _deliver(decision: _Decision, story: str) -> None:
    """Deliver the branch without the story; the rejection is recorded already.

    Raises:
        DeliveryRefused: The branch cannot be delivered to the user's repository, or the repository was removed.
    """
    try:
        await deliver_branch(decision.repository, decision.store)
    except (DeliveryRefused, RepositoryRefused) as exc:
        raise DeliveryRefused(
            f"story {story!r} is rejected, but the branch without it could not be delivered: {exc}; then "
            f"`ringfence loop resume {decision.store.loop_id[-6:]}` delivers it"
        ) from exc


async def _keep_patch(decision: _Decision) -> str | None:
    """Keep the rejected attempt as a patch, like attempts that checks reject. Return the path of its file.

    Returns None if its commits are not known, or the patch would be too large.
    """
    store, row = decision.store, decision.row
    if row.tests_commit is None or row.code_commit is None:
        return None
    settings = restore_configuration(store.loop.configuration, loop=store.loop_id)[1]
    number = (row.generation - 1) * settings.attempts + row.attempt
    file = await decision.repository.keep_rejected(
        row.tests_commit, row.code_commit, story=row.id, attempt=number
    )
    return None if file is None else str(file)


async def _revert(decision: _Decision, merged: str, by: str, why: str) -> str:
    """Revert a story on the loop's branch, and return the branch's commit.

    Raises:
        UsageError: Other stories depend on it or changed the same lines, or another of the user's branches contains it.
    """
    store, repository, row = decision.store, decision.repository, decision.row
    passed = [each.id for each in store.stories if each.state is StoryState.PASSED]
    dependents = [name for name in passed if name in decision.dependents]
    if dependents:
        raise UsageError(
            f"story {row.id!r} cannot be rejected: {_names(dependents)} "
            + (
                "depends on it; reject that first"
                if len(dependents) == 1
                else "depend on it; reject these first"
            )
        )
    if row.base is None or row.code_commit is None:
        raise UsageError(
            f"story {row.id!r} cannot be rejected: its record does not name its commits; revert it by hand"
        )
    before = await repository.before_story(merged, row.base, row.code_commit)
    holders = [name for name in await repository.branches_with(merged) if name != store.loop.branch]
    if holders:
        raise UsageError(
            f"story {row.id!r} is already in your branch {_names(holders)}, which no loop changes; revert it there: "
            f"`git revert --no-commit {before[:12]}..{merged[:12]}`"
        )
    one_line = " ".join(why.split())  # no line of it is taken for a trailer
    title = next((each.title for each in decision.plan.stories if each.id == row.id), row.id)
    done = await repository.revert(
        before,
        merged,
        message=f"Revert: {title}\n\nRejected by {by}{f': {one_line}' if one_line else '.'}",
        trailers=Trailers(store.loop_id, row.id, row.attempt, "person"),
        at_s=now_ms() // 1000,
    )
    if isinstance(done, Conflict):
        raise UsageError(
            f"story {row.id!r} cannot be rejected: later stories changed the same parts of {_names(done.paths)}; "
            "reject those stories first, or revert it by hand in your branch after you merged the loop's"
        )
    return done.tip


def _names(names: "list[str] | tuple[str, ...]") -> str:
    """The first names as a list in a sentence: `'S1', 'S2' and 'S3'`."""
    shown = [repr(name) for name in names[:_MAX_SHOWN]]
    if len(names) > _MAX_SHOWN:
        shown.append(f"{len(names) - _MAX_SHOWN} more")
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


def _user_name() -> str:
    """Return the user's login name, or the uid if the user has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        import os

        return f"uid {os.getuid()}"


def _find_attempt(store: LoopStore, row: StoryRow, number: int | None, attempts: int) -> tuple[int, str]:
    """Return the number within its generation, and the commit, of an attempt at a story's code.

    Raises:
        UsageError: The story has no attempt of this number, or none since it was last started.
    """
    commits = {
        (step.generation - 1) * attempts + step.attempt: (step.attempt, str(step.result["commit"]))
        for step in store.steps(row.id)
        if step.name == f"code.{step.attempt}.commit" and step.generation == row.generation
    }
    if row.base is None or not commits:
        raise UsageError(f"story {row.id!r} has no attempt at its code since it was last started")
    if number is not None and number not in commits:
        numbers = ", ".join(map(str, sorted(commits)))
        raise UsageError(f"story {row.id!r} has no attempt {number} that can be accepted; it has {numbers}")
    return commits[max(commits) if number is None else number]
