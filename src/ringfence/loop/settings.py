"""What `loop:` can say in ringfence.yaml, as frozen models."""

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
    from ringfence.sandbox.registry import is_fence  # few configurations name a backend here

    if not is_fence(backend):
        raise ValueError(
            f"{backend!r} is no fence, and no role alone is without one; ask for it with --sandbox host"
        )
    return backend


class ModelChoice(_Section):
    """Who thinks."""

    runtime: Annotated[RuntimeName, BeforeValidator(full_runtime_name)] | None = None
    """null: the run's own."""
    model: Annotated[Text, AfterValidator(check_model_name)] | None = None
    """null: the run's own."""


class RoleSettings(ModelChoice):
    """One role: an agent of its own."""

    prompt: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """A file with its instructions, in place of the package's."""
    sandbox: Annotated[BackendName, AfterValidator(_a_fence)] | None = None
    """The kind of its fence; `host`, which is none, is only for a whole loop. null: the run's own, with its image."""
    image: Text | None = None
    """Its container image. null: the run's own, if `sandbox` is null too."""
    turns: Count | None = None
    """Model turns of one run of it. null: `limits.turns`."""
    tokens: Count | None = None
    """Tokens of one run of it. null: `limits.tokens`."""
    cost_usd: PositiveNumber | None = None
    """US dollars of one run of it. null: `limits.cost_usd`."""
    wall_clock: Seconds | None = None
    """Of one run of it. null: `limits.wall_clock`."""
    ladder: tuple[ModelChoice, ...] = ()
    """Who thinks on the first, second, … attempt; the last one stays. Empty: always the same."""


class CheckSettings(_Section):
    """A command that decides about a story's work."""

    kind: CheckKind = "test"
    """`test` commands are asked for single tests; of the others only the exit code counts."""
    command: Text
    """For `/bin/sh -c`, in the workspace."""
    runner: Literal["pytest", "unittest", "node", "go", "cargo", "maven"] | None = None
    """Whose report it writes. null: known by the command."""
    timeout: Seconds = 900.0
    """How long it may take."""


class LoopLimits(_Section):
    """What a loop may take before it ends."""

    agent_calls: Count = 200
    """Runs of agents, of all roles together."""
    tokens: Count = 40_000_000
    """Of all roles together, cached ones included."""
    cost_usd: PositiveNumber | None = None
    """US dollars; needs known prices. null: no bound."""
    wall_clock: Seconds = 8 * 3600.0
    """From its start or last resumption."""
    no_progress: Annotated[int, BeforeValidator(no_boolean), Field(ge=2, le=100)] = 3
    """So many attempts in a row, of whatever stories, that end with the very same complaint end the loop."""
    faults: Attempts = 3
    """Tries of one step that the model's service, the engine or an unreadable answer breaks."""


def _with_a_test(checks: tuple[CheckSettings, ...]) -> tuple[CheckSettings, ...]:
    if not any(check.kind == "test" for check in checks):
        raise ValueError("it names no test command; a loop works test-first: add one of kind `test`")
    return checks


class LoopSettings(_Section):
    """How stories are worked through."""

    attempts: Attempts = 3
    """At a story's code, and as many at its tests, before it is skipped."""
    parallel: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=16)] = 1
    """Stories at once."""
    base: Text | None = None
    """Branch, tag or commit to begin at. null: what is checked out."""
    baseline: Literal["record", "refuse"] = "record"
    """If tests fail before anything is done: go on and count only new failures, or refuse."""
    review: bool = True
    """Whether a reviewer answers before the judge does."""
    tests: tuple[Text, ...] = ()
    """Patterns of paths that are tests besides those of the runner's conventions, as of a shell: `checks/*.py`."""
    checks: Annotated[tuple[CheckSettings, ...], AfterValidator(_with_a_test)] | None = None
    """Instead of those that are found by the project's files."""
    roles: dict[RoleName, RoleSettings] = Field(default_factory=dict)
    """Who is who."""
    merge: bool = False
    """When the loop ends: move the branch it began at forward to what passed."""
    pr: bool = False
    """When the loop ends: push the branch with what passed, and open a pull request with `gh`."""
    limits: LoopLimits = LoopLimits()
    """When it ends."""

    def role(self, name: RoleName) -> RoleSettings:
        """A role as configured."""
        return self.roles.get(name, RoleSettings())

    def who(self, name: RoleName, attempt: int) -> ModelChoice:
        """Who thinks on an attempt (1-based)."""
        role = self.role(name)
        if not role.ladder:
            return role
        step = role.ladder[min(attempt, len(role.ladder)) - 1]
        return ModelChoice(runtime=step.runtime or role.runtime, model=step.model or role.model)
