"""Finds all problems that prevent a loop, together, before anything is created."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from ringfence.check import Check
from ringfence.check.protected_files import ProtectedFiles
from ringfence.config import Effective, Flag
from ringfence.errors import ExitCode, RingfenceError, UsageError
from ringfence.loop.configuration import load_loop
from ringfence.loop.credentials import check_credentials, check_roles, with_second_writer
from ringfence.loop.loop import conventions_of
from ringfence.loop.pull_request import gh_program
from ringfence.loop.repository import Inspection, inspect_repository
from ringfence.loop.settings import LoopLimits, LoopSettings
from ringfence.loop.start import check_merge_target, checks_for, refuse_second
from ringfence.loop.story import Plan, check_plan, questions, read_plan


@dataclass(frozen=True)
class Problem:
    """A problem that prevents a loop from being started."""

    message: str
    exit_code: ExitCode
    """The exit code with which `loop start` would end."""


@dataclass
class Preflight:
    """The findings about a loop that is to be started."""

    plan: Plan | None = None
    inspection: Inspection | None = None
    checks: tuple[Check, ...] = ()
    protected: tuple[str, ...] = ()
    """Protected files, and other files that no attempt can add, each with the reason."""
    missing_checks: list[str] = field(default_factory=list)
    """Messages about kinds of checks that were not found."""
    limits: LoopLimits | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 without problems; 78 if one of them is a configuration error; otherwise that of the first problem."""
        codes = [problem.exit_code for problem in self.problems]
        if ExitCode.CONFIGURATION in codes:
            return ExitCode.CONFIGURATION
        return codes[0] if codes else ExitCode.OK

    @contextmanager
    def gathering(self, *, but: tuple[type[RingfenceError], ...] = ()) -> Iterator[None]:
        """Collect an error of the body as a problem, except errors of the types `but`, which are raised."""
        try:
            yield
        except but:
            raise
        except RingfenceError as exc:
            self.problems += [Problem(str(each), each.exit_code) for each in exc.gathered or (exc,)]


async def preflight(
    prd: Path, workspace: Path, effective: Effective, flags: Sequence[Flag] = ()
) -> Preflight:
    """Check stories, repository, roles and credentials as `loop start` does, and gather every problem.

    Nothing is written, and no program of the repository runs; each credential is tested by a request to its API.

    Args:
        prd: The file with the stories.
        workspace: The repository, or a directory in it.
        effective: The configuration of the loop's runs.
        flags: As for `load_loop`.

    Raises:
        UsageError: The value of an option is not valid, so that the remaining checks cannot be determined.
    """
    found, settings = Preflight(), LoopSettings()
    with found.gathering(but=(UsageError,)):
        settings = load_loop(effective, flags)
        found.limits = settings.limits
    with found.gathering():
        found.plan = await anyio.to_thread.run_sync(read_plan, prd)
        found.notes += [*found.plan.notes, *questions(found.plan)]
    source = await anyio.to_thread.run_sync(workspace.resolve)
    with found.gathering():
        await refuse_second(source)
    with found.gathering():
        settings = await with_second_writer(effective, settings, source, found.notes.append)
        await check_roles(effective, settings, source)
        await check_credentials(effective, settings, source, found.notes.append)
    tree = None
    with found.gathering():
        found.inspection = await inspect_repository(source, base=settings.base)
        found.notes += found.inspection.notes
        tree = found.inspection.tree
        check_merge_target(settings, found.inspection)
    with found.gathering():
        if settings.pr:
            gh_program(source)
    plan = found.plan
    if plan is not None and tree is not None:  # an unreadable file may say how tests are run
        with found.gathering():
            found.checks = checks_for(settings, plan, tree, found.missing_checks.append)
            found.notes.append("the checks were not run; `ringfence loop start` runs them first, on the base")
            conventions = conventions_of(found.checks, plan, settings, effective.settings.sandbox.setup)
            found.protected = await anyio.to_thread.run_sync(
                lambda: ProtectedFiles(tree.files, conventions).describe()
            )
    if found.plan is not None:
        has_check = bool(found.checks) or tree is None  # a tree that could not be examined is not reported
        for line in check_plan(found.plan, has_check=has_check):
            found.problems.append(Problem(line, ExitCode.CONFIGURATION))
    if found.limits is not None and found.limits.cost_usd is None:
        found.notes.append("there is no bound on money: state one by --max-cost-usd, or loop.limits.cost_usd")
    return found
