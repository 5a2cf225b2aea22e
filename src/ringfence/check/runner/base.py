"""Helpers for all test runners: run a command, and build a validated report.

A report is complete only if its results agree with the collected tests, the runner's exit status, the command's exit
code and the canary.
"""

from collections.abc import Collection, Mapping, Sequence

from ringfence.check.report import RED, Cause, Check, Report, TestResult
from ringfence.check.report_stream import ReportBuilder
from ringfence.sandbox import ExecResult, Sandbox

_NORMAL_STATUSES = (0, 1, 5)
"""Exit statuses of a runner that was not interrupted: green, red, no tests found."""
_MAX_LISTED = 3
_OUTPUT_NOTE_CHARS = 400
_MAX_OUTPUT_CHARS = 64_000


def build_report(
    check: Check,
    builder: ReportBuilder,
    ended: ExecResult,
    *,
    canary: str,
    guarded: Collection[str] = (),
    by_directory: bool = False,
) -> Report:
    """Build the report of a check from what its runner reported and how its command ended.

    Args:
        check: The check that was run.
        builder: The runner's results, and the problems found while they were received. More problems are added.
        ended: How the command ended.
        canary: Part of the ids of the tests that must fail; their results are left out of the report. Empty: no
            canary was run.
        guarded: Files that a canary was added to. Where a test of such a file passed, its canary must have failed.
        by_directory: Whether one canary guards all files of its directory.
    """
    _check_end(check, builder, ended)
    _check_results(builder, ended)
    if canary:
        _check_canaries(builder, canary)
        _check_guarded(builder, canary, guarded, by_directory=by_directory)
    results = {name: each for name, each in builder.results.items() if not canary or canary not in name}
    notes = () if results else ("no test was found",)
    output = truncated_output(ended)
    return Report(
        results=results,
        is_complete=not builder.problems,
        exit_code=ended.exit_code,
        ended_by=ended.ended_by,
        output=output,
        problems=(*builder.problems, *notes),
        altered=tuple(sorted(builder.altered)),
        runner=check.runner,
        altered_by_project=tuple(sorted(builder.altered_by_project)),
        shows_own_tests=bool(canary)
        and (canary in output or any(canary in name for name in (*builder.results, *builder.collected))),
    )


def truncated_output(ended: ExecResult) -> str:
    """Return a command's output, standard output before standard error, truncated in the middle."""
    return _cut_middle(ended.stdout + ended.stderr, _MAX_OUTPUT_CHARS)


def _cut_middle(text: str, max_chars: int) -> str:
    """Return the first quarter and the last three quarters of a text's limit; an end says more than a beginning."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 4
    return f"{text[:head]}\n[... {len(text) - max_chars} characters cut ...]\n{text[head - max_chars :]}"


def _check_end(check: Check, builder: ReportBuilder, ended: ExecResult) -> None:
    if ended.ended_by == "timeout":
        builder.add_problem(f"{check.name} was not done after {check.timeout_s:g} s")
    elif ended.ended_by != "exit":
        builder.add_problem(f"{check.name} was ended by {ended.ended_by}")
    if not builder.started_runners:
        note = " ".join((ended.stderr or ended.stdout)[-_OUTPUT_NOTE_CHARS:].split())
        builder.add_problem(
            f"{check.runner} sent no report: {check.command!r} did not start it, or changed the environment that "
            f"makes it report (exit code {ended.exit_code}{': ' if note else ''}{note})"
        )


def _check_results(builder: ReportBuilder, ended: ExecResult) -> None:
    # A file that was skipped, or whose set-up failed, has one result for all its tests.
    missing = sorted(
        name
        for name, file in builder.collected.items()
        if name not in builder.results and (file is None or file not in builder.results)
    )
    if missing:
        listed = ", ".join(missing[:_MAX_LISTED]) + (", ..." if len(missing) > _MAX_LISTED else "")
        builder.add_problem(f"{len(missing)} collected tests have no result: {listed}")
    is_red = any(each.outcome in RED for each in builder.results.values())
    if ended.ended_by != "exit" or not builder.started_runners:
        return
    for status in builder.exit_statuses:
        if status not in _NORMAL_STATUSES:
            builder.add_problem(f"the runner broke off (its exit status: {status})")
    if is_red and ended.exit_code == 0:
        builder.add_problem(
            "the command exited with 0 although tests failed; it hides the runner's exit status"
        )
    if is_red and builder.exit_statuses == [0] and builder.started_runners == 1:
        builder.add_problem("the runner's exit status is 0 although tests failed")
    if not is_red and builder.results and ended.exit_code != 0:
        builder.add_problem(f"the command ended with exit code {ended.exit_code} although no test failed")


def _check_canaries(builder: ReportBuilder, canary: str) -> None:
    """Require that each canary is red; one may be skipped if every test of its file is skipped."""
    canaries, others = list[TestResult](), list[TestResult]()
    for each in builder.results.values():
        (canaries if canary in each.id else others).append(each)
    for each in canaries:
        if each.outcome == "skipped":
            is_as_expected = all(other.outcome == "skipped" for other in others if other.file == each.file)
        else:
            is_as_expected = each.outcome in RED
        if not is_as_expected:
            builder.add_problem(
                f"a test that must fail was reported as {each.outcome} in {each.file or 'the suite'}: the runner's "
                "results cannot be trusted"
            )
    was_run = any(each.outcome != "skipped" and each.file != each.id for each in others)
    if was_run and not any(each.outcome in RED for each in canaries):
        builder.add_problem("the test that must fail was not run: the runner's results cannot be trusted")


def _check_guarded(
    builder: ReportBuilder, canary: str, guarded: Collection[str], *, by_directory: bool
) -> None:
    """Require that the canary failed in each guarded file or directory in which a test passed."""

    def unit(file: str) -> str:
        return file.rpartition("/")[0] if by_directory else file

    located = [each for each in builder.results.values() if each.file is not None]
    failed = {unit(each.file or "") for each in located if canary in each.id and each.outcome in RED}
    passed = {unit(each.file or "") for each in located if canary not in each.id and each.outcome == "passed"}
    for path in sorted({unit(file) for file in guarded} & passed - failed):
        builder.add_problem(
            f"the test that must fail was not run in {path or '.'}: the results there cannot be trusted"
        )


MAX_OUTPUT_BYTES = 32 * 1024**2
_MAX_DETAIL_CHARS = 4000
_MAX_NAME_CHARS = 900
_CAUSE_ORDER = {"broken": 0, "foreign": 1, "absent": 2, "compiler": 3}
"""Types of a compiler's causes; the one that says most about a file comes first."""


async def run_for_output(
    check: Check, sandbox: Sandbox, command: str, env: Mapping[str, str]
) -> tuple[ReportBuilder, ExecResult, str]:
    """Run a shell command, and return its standard output and standard error as one text, in order."""
    # One pipe for both streams, to keep the order: headings are printed to one and tests to the other.
    ended = await sandbox.run(
        ["/bin/sh", "-c", f"exec 2>&1\n{command}"],
        timeout_s=check.timeout_s,
        env=env,
        output_limit_bytes=MAX_OUTPUT_BYTES,
        on_output=check.on_output,
    )
    builder = ReportBuilder()
    if ended.stdout_total > MAX_OUTPUT_BYTES:
        builder.add_problem(f"more than {MAX_OUTPUT_BYTES} bytes were printed: results may be missing")
    return builder, ended, ended.stdout


def main_cause(causes: Sequence[Cause]) -> Cause:
    """Return the cause that says most of a compiler's errors in one file; `foreign` names all foreign packages."""
    first = min(causes, key=lambda each: _CAUSE_ORDER[each.type])
    if first.type != "foreign":
        return first
    names = dict.fromkeys(each.name for each in causes if each.type == "foreign" and each.name)
    return Cause("foreign", first.message, " ".join(names))


def result(
    name: str, outcome: str, file: str | None = None, detail: str = "", cause: Cause | None = None
) -> TestResult:
    """Return a result with each part within its limit. An unknown outcome counts as `error`."""
    detail = _cut_middle(detail, _MAX_DETAIL_CHARS)
    file = file[:_MAX_NAME_CHARS] if file else None
    match outcome:
        case "passed" | "failed" | "skipped":
            return TestResult(name[:_MAX_NAME_CHARS], outcome, file, detail, cause)
        case _:
            return TestResult(name[:_MAX_NAME_CHARS], "error", file, detail, cause)
