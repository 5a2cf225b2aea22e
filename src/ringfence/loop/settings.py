"""Defines the settings below `loop:` in ringfence.yaml, as frozen models."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

from ringfence.config.names import BackendName, RuntimeName, check_model_name, full_runtime_name
from ringfence.config.units import Seconds
from ringfence.config.values import Count, PositiveNumber, Text, absolute_path, no_boolean

RoleName = Literal["planner", "test_writer", "implementor", "reviewer", "judge"]
CheckKind = Literal["test", "type", "lint", "other"]
Attempts = Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=20)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _a_fence(backend: str) -> str:
    from ringfence.sandbox.registry import is_fence  # on use, as few configurations name a backend here

    if not is_fence(backend):
        raise ValueError(
            f"{backend!r} is no fence, and no role alone is without one; ask for it with --sandbox host"
        )
    return backend


class ModelChoice(_Section):
    """The runtime and model of a role."""

    runtime: Annotated[RuntimeName, BeforeValidator(full_runtime_name)] | None = None
    """The runtime. null: as for runs."""
    model: Annotated[Text, AfterValidator(check_model_name)] | None = None
    """The model. null: as for runs."""


class RoleSettings(ModelChoice):
    """The settings of one role's agent."""

    prompt: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """A file with the role's instructions, instead of the built-in ones."""
    sandbox: Annotated[BackendName, AfterValidator(_a_fence)] | None = None
    """The sandbox backend, except `host`, which only a whole loop can use. null: as for runs, with the same image."""
    image: Text | None = None
    """The container image. null: as for runs, if `sandbox` is null, too."""
    turns: Count | None = None
    """Limit on model turns in one of its runs. null: `limits.turns`."""
    tokens: Count | None = None
    """Limit on tokens in one of its runs. null: `limits.tokens`."""
    cost_usd: PositiveNumber | None = None
    """Limit in US dollars on one of its runs. null: `limits.cost_usd`."""
    wall_clock: Seconds | None = None
    """Time limit of one of its runs. null: `limits.wall_clock`."""
    ladder: tuple[ModelChoice, ...] = ()
    """Runtime and model for the first, second, … attempt; the last entry applies to all later ones. Empty: no change."""


class CheckSettings(_Section):
    """A command that checks a story's work."""

    kind: CheckKind = "test"
    """The results of single tests are read from `test` commands; of the others only the exit code counts."""
    command: Text
    """The command, run by `/bin/sh -c` in the workspace."""
    runner: Literal["pytest", "unittest", "node", "go", "cargo", "maven"] | None = None
    """The test runner whose report it writes. null: detected from the command."""
    timeout: Seconds = 900.0
    """Time limit."""


class LoopLimits(_Section):
    """The limits of a loop."""

    agent_calls: Count = 200
    """Number of agent runs, for all roles together."""
    tokens: Count = 40_000_000
    """Tokens of all roles together, including cached tokens."""
    cost_usd: PositiveNumber | None = None
    """Cost in US dollars; requires known prices. null: no limit."""
    wall_clock: Seconds = 8 * 3600.0
    """Time since the loop was started or last resumed."""
    no_progress: Annotated[int, BeforeValidator(no_boolean), Field(ge=2, le=100)] = 3
    """The loop ends after this many consecutive attempts, at any stories, that fail with the same complaint."""
    faults: Attempts = 3
    """Number of tries of a step that fails because of the model's service, the engine or an unreadable answer."""


def _with_a_test(checks: tuple[CheckSettings, ...]) -> tuple[CheckSettings, ...]:
    if not any(check.kind == "test" for check in checks):
        raise ValueError("it names no test command; a loop works test-first: add one of kind `test`")
    return checks


class LoopSettings(_Section):
    """The settings of a loop."""

    attempts: Attempts = 3
    """Number of attempts at a story's code, and of those at its tests, before the story is skipped."""
    parallel: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=16)] = 1
    """Number of stories that are worked on at once."""
    base: Text | None = None
    """Branch, tag or commit to start from. null: the commit that is checked out."""
    baseline: Literal["record", "refuse"] = "record"
    """If tests fail before the first story: continue and count only new failures (`record`), or `refuse`."""
    review: bool = True
    """Whether a reviewer examines an attempt before the judge does."""
    tests: tuple[Text, ...] = ()
    """Shell patterns of paths that are tests, in addition to the runner's conventions: `checks/*.py`."""
    checks: Annotated[tuple[CheckSettings, ...], AfterValidator(_with_a_test)] | None = None
    """The checks, instead of those detected from the project's files."""
    roles: dict[RoleName, RoleSettings] = Field(default_factory=dict)
    """Settings of individual roles."""
    merge: bool = False
    """At the end of the loop, fast-forward the branch on which it was started to the stories that passed."""
    pr: bool = False
    """At the end of the loop, push the branch with the stories that passed, and open a pull request with `gh`."""
    limits: LoopLimits = LoopLimits()
    """Limits of the whole loop."""

    def role(self, name: RoleName) -> RoleSettings:
        """Return the settings of a role."""
        return self.roles.get(name, RoleSettings())

    def who(self, name: RoleName, attempt: int) -> ModelChoice:
        """Return the runtime and model for an attempt (counted from 1)."""
        role = self.role(name)
        if not role.ladder:
            return role
        step = role.ladder[min(attempt, len(role.ladder)) - 1]
        return ModelChoice(runtime=step.runtime or role.runtime, model=step.model or role.model)
