"""The loop that is being worked on: its settings, rows, repository and checks, and the tests of its limits."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ringfence.check.protected_files import Conventions
from ringfence.check.report import Check
from ringfence.config import Effective
from ringfence.frozen import frozen
from ringfence.job.resolution import secret_values
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.exceptions import LoopStopped
from ringfence.loop.repository import LoopRepository
from ringfence.loop.rows import Spent, StoryRow
from ringfence.loop.runs import Runs
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopEnd, LoopState
from ringfence.loop.store import LoopStore, now_ms
from ringfence.loop.story.model import Plan, Story
from ringfence.secret import Redactor

_OWN_CHECK_S = 900.0


@frozen
class Loop:
    """A loop that this process works on."""

    directory: LoopDirectory
    store: LoopStore
    plan: Plan
    settings: LoopSettings
    effective: Effective
    repository: LoopRepository
    runs: Runs
    checks: tuple[Check, ...]
    """The checks of every story."""

    @property
    def id(self) -> str:
        """The loop's id."""
        return self.directory.id

    @cached_property
    def conventions(self) -> Conventions:
        """Which files are tests and which are configuration, by the test runners of the checks."""
        setup = self.effective.settings.sandbox.setup
        return conventions_of(self.checks, self.plan, self.settings, setup)

    @cached_property
    def redactor(self) -> Redactor:
        """Redacts the user's secrets in stored results and reports."""
        return Redactor(secret_values(self.effective.settings))

    @property
    def test_check_names(self) -> frozenset[str]:
        """Names of the checks that run tests."""
        return frozenset(check.name for check in self.checks if check.kind == "test")

    def story(self, name: str) -> Story:
        """Return a story of the plan by its id."""
        return next(story for story in self.plan.stories if story.id == name)

    def checks_of(self, story: Story) -> tuple[Check, ...]:
        """Return the checks of a story: the loop's checks, and the story's own."""
        if story.check is None:
            return self.checks
        own = Check(kind="other", name=f"check of {story.id}", command=story.check, timeout_s=_OWN_CHECK_S)
        return (*self.checks, own)

    def add_event(
        self, row: StoryRow, key: str, kind: str, *, of: Sequence[str] | None = None, **data: Any
    ) -> None:
        """Record an event of a story; `of` names the steps whose runs prove it."""
        if of is not None:
            data["runs"] = self.store.runs_of(row, of)
        self.store.add_event(f"{row.id}.{row.generation}.{key}", kind, story=row.id, **data)

    def check_not_stopped(self) -> None:
        """Check that the loop has time left and was not cancelled; its agents' usage is not considered.

        Raises:
            LoopStopped: Its time is used up, or it was cancelled.
        """
        end = self.why_stopped()
        if end is not None:
            raise LoopStopped(end)

    def check_agent_may_run(self) -> None:
        """Check that the loop has time left, was not cancelled, and that its limits allow one more run of an agent.

        Raises:
            LoopStopped: A limit or its time is used up, or it was cancelled.
        """
        self.check_not_stopped()
        spent, most = self.store.spent, self.settings.limits.agent_calls
        end = self.used_up(spent)
        if end is None and spent.calls >= most:
            end = _used_up(most, "agent calls", "--max-agent-calls")
        if end is not None:
            raise LoopStopped(end)

    @property
    def seconds_left(self) -> float:
        """The seconds until the loop's time is used up."""
        return self.settings.limits.wall_clock - (now_ms() - self.store.loop.started_ms) / 1000

    def why_stopped(self) -> LoopEnd | None:
        """Return how the loop ends if its time is used up or it was cancelled; None if it may continue."""
        if self.seconds_left <= 0:
            most = self.settings.limits.wall_clock
            return LoopEnd(
                LoopState.TIMED_OUT,
                f"the loop's time of {most:g} s is used up; raise --timeout and resume it",
            )
        return LoopEnd(LoopState.CANCELLED, "cancelled") if self.runs.is_stopping else None

    def used_up(self, spent: Spent) -> LoopEnd | None:
        """Return how the loop ends if its tokens or its dollars are used up; None if they are not."""
        limits = self.settings.limits
        if spent.tokens >= limits.tokens:
            return _used_up(limits.tokens, "tokens", "--max-tokens")
        if limits.cost_usd is not None and spent.cost_usd >= limits.cost_usd:
            return _used_up(limits.cost_usd, "US dollars", "--max-cost-usd")
        return None


def conventions_of(
    checks: Sequence[Check], plan: Plan, settings: LoopSettings, setup: Sequence[str]
) -> Conventions:
    """Return which files are tests and which are configuration in a loop.

    Args:
        checks: The checks of every story.
        plan: The plan, whose stories may have their own checks.
        settings: The loop's settings.
        setup: Commands that install the programs that checks need.
    """
    runners = [check.runner for check in checks if check.kind == "test"]
    return Conventions(
        # A command that is judged by its exit code can run tests of any kind.
        runners=frozenset() if None in runners else frozenset(filter(None, runners)),
        commands=(*(check.command for check in checks), *setup),
        story_commands=tuple(story.check for story in plan.stories if story.check is not None),
        tests=settings.tests,
    )


def _used_up(most: float, what: str, option: str) -> LoopEnd:
    return LoopEnd(LoopState.LIMIT, f"the loop's {most} {what} are used up; raise {option} and resume it")
