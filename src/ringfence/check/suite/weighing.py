"""Whether what a runner told holds together: complete, in keeping with the exit code, and with a canary that failed."""

from collections.abc import Collection

from ringfence.check.suite.collecting import Gathered
from ringfence.check.suite.model import RED, Check, Report, TestResult
from ringfence.sandbox import ExecResult

_ENDS = (0, 1, 5)
"""How a runner ends that came to its end: green, red, nothing found."""
_NAMED = 3
_OUTPUT_NOTE = 400


def weigh(
    check: Check,
    gathered: Gathered,
    ended: ExecResult,
    *,
    canary: str,
    guarded: Collection[str] = (),
    by_directory: bool = False,
    most_output: int = 64_000,
) -> Report:
    """Make a report of what came.

    Args:
        check: What was run.
        gathered: What was told; problems that were seen on the way are in it.
        ended: How the command ended.
        canary: Mark in the ids of tests that must fail, which are taken out; empty: there was none.
        guarded: Files that a canary was put into; one that was run must have told of it.
        by_directory: One canary stands for all files of its directory.
        most_output: Characters of the output that are kept.
    """
    _weigh_end(check, gathered, ended)
    _weigh_results(gathered, ended)
    if canary:
        _weigh_canaries(gathered, canary)
        _weigh_guarded(gathered, canary, guarded, by_directory=by_directory)
    results = {name: each for name, each in gathered.results.items() if not canary or canary not in name}
    notes = () if results else ("no test was found",)
    output = output_of(ended, most_output)
    return Report(
        results=results,
        is_complete=not gathered.problems,
        exit_code=ended.exit_code,
        ended_by=ended.ended_by,
        output=output,
        problems=(*gathered.problems, *notes),
        altered=tuple(sorted(gathered.altered)),
        runner=check.runner,
        altered_by_project=tuple(sorted(gathered.altered_by_project)),
        shows_own_tests=bool(canary)
        and (canary in output or any(canary in name for name in (*gathered.results, *gathered.collected))),
    )


def output_of(ended: ExecResult, most_chars: int = 64_000) -> str:
    """What a command printed, both streams, cut in the middle."""
    text = ended.stdout + ended.stderr
    if len(text) <= most_chars:
        return text
    head = most_chars // 3
    return f"{text[:head]}\n[... {len(text) - most_chars} characters cut ...]\n{text[head - most_chars :]}"


def _weigh_end(check: Check, gathered: Gathered, ended: ExecResult) -> None:
    if ended.ended_by == "timeout":
        gathered.complain(f"{check.name} was not done after {check.timeout_s:g} s")
    elif ended.ended_by != "exit":
        gathered.complain(f"{check.name} was ended by {ended.ended_by}")
    if not gathered.begun:
        said = " ".join((ended.stderr or ended.stdout)[-_OUTPUT_NOTE:].split())
        gathered.complain(
            f"{check.runner} did not report: {check.command!r} did not start it, or not with the environment "
            f"that it was given (exit code {ended.exit_code}{': ' if said else ''}{said})"
        )


def _weigh_results(gathered: Gathered, ended: ExecResult) -> None:
    # A file that was skipped, or could not be set up, is told by one result for its tests.
    without = sorted(
        name
        for name, file in gathered.collected.items()
        if name not in gathered.results and (file is None or file not in gathered.results)
    )
    if without:
        named = ", ".join(without[:_NAMED]) + (", ..." if len(without) > _NAMED else "")
        gathered.complain(f"{len(without)} collected tests have no result: {named}")
    is_red = any(each.outcome in RED for each in gathered.results.values())
    if ended.ended_by != "exit" or not gathered.begun:
        return
    for status in gathered.exits:
        if status not in _ENDS:
            gathered.complain(f"the runner broke off (its exit status: {status})")
    if is_red and ended.exit_code == 0:
        gathered.complain("the command ended with exit code 0 although tests failed: it hides its runner's")
    if is_red and gathered.exits and 0 in gathered.exits and len(gathered.exits) == gathered.begun == 1:
        gathered.complain("the runner says that all is well although tests failed")
    if not is_red and gathered.results and ended.exit_code != 0:
        gathered.complain(f"the command ended with exit code {ended.exit_code} although no test failed")


def _weigh_canaries(gathered: Gathered, canary: str) -> None:
    """Those of a file whose tests are all skipped may be skipped with them; each other one must be red."""
    canaries, others = list[TestResult](), list[TestResult]()
    for each in gathered.results.values():
        (canaries if canary in each.id else others).append(each)
    for each in canaries:
        if each.outcome == "skipped":
            is_well = all(other.outcome == "skipped" for other in others if other.file == each.file)
        else:
            is_well = each.outcome in RED
        if not is_well:
            place = each.file or "the suite"
            gathered.complain(
                f"a test that must fail was reported as {each.outcome} in {place}: the runner was made to say so"
            )
    was_run = any(each.outcome != "skipped" and each.file != each.id for each in others)
    if was_run and not any(each.outcome in RED for each in canaries):
        gathered.complain("the test that must fail was not run: what the runner says cannot be believed")


def _weigh_guarded(gathered: Gathered, canary: str, guarded: Collection[str], *, by_directory: bool) -> None:
    """Where a canary was put and a test passed, the canary must have failed."""

    def place(file: str) -> str:
        return file.rpartition("/")[0] if by_directory else file

    told = [each for each in gathered.results.values() if each.file is not None]
    seen = {place(each.file or "") for each in told if canary in each.id and each.outcome in RED}
    passed = {place(each.file or "") for each in told if canary not in each.id and each.outcome == "passed"}
    for where in sorted({place(file) for file in guarded} & passed - seen):
        gathered.complain(
            f"the test that must fail was not run in {where or '.'}: what it says cannot be believed"
        )
