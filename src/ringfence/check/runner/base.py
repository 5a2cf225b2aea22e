"""What all runners need: a run for its output, and a report whose parts fit each other, the exit code and the canary."""

from collections.abc import Collection, Mapping, Sequence

from ringfence.check.report import RED, Cause, Check, Report, TestResult
from ringfence.check.report_stream import ReportBuilder
from ringfence.sandbox import ExecResult, Sandbox

_ENDS = (0, 1, 5)
"""How a runner ends that came to its end: green, red, nothing found."""
_NAMED = 3
_OUTPUT_NOTE = 400


def build_report(
    check: Check,
    builder: ReportBuilder,
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
        builder: What was told; problems that were seen on the way are in it.
        ended: How the command ended.
        canary: Mark in the ids of tests that must fail, which are taken out; empty: there was none.
        guarded: Files that a canary was put into; one that was run must have told of it.
        by_directory: One canary stands for all files of its directory.
        most_output: Characters of the output that are kept.
    """
    _check_end(check, builder, ended)
    _check_results(builder, ended)
    if canary:
        _check_canaries(builder, canary)
        _check_guarded(builder, canary, guarded, by_directory=by_directory)
    results = {name: each for name, each in builder.results.items() if not canary or canary not in name}
    notes = () if results else ("no test was found",)
    output = output_of(ended, most_output)
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


def output_of(ended: ExecResult, most_chars: int = 64_000) -> str:
    """What a command printed, both streams, cut in the middle."""
    text = ended.stdout + ended.stderr
    if len(text) <= most_chars:
        return text
    head = most_chars // 3
    return f"{text[:head]}\n[... {len(text) - most_chars} characters cut ...]\n{text[head - most_chars :]}"


def _check_end(check: Check, builder: ReportBuilder, ended: ExecResult) -> None:
    if ended.ended_by == "timeout":
        builder.add_problem(f"{check.name} was not done after {check.timeout_s:g} s")
    elif ended.ended_by != "exit":
        builder.add_problem(f"{check.name} was ended by {ended.ended_by}")
    if not builder.begun:
        said = " ".join((ended.stderr or ended.stdout)[-_OUTPUT_NOTE:].split())
        builder.add_problem(
            f"{check.runner} did not report: {check.command!r} did not start it, or not with the environment "
            f"that it was given (exit code {ended.exit_code}{': ' if said else ''}{said})"
        )


def _check_results(builder: ReportBuilder, ended: ExecResult) -> None:
    # A file that was skipped, or could not be set up, is told by one result for its tests.
    without = sorted(
        name
        for name, file in builder.collected.items()
        if name not in builder.results and (file is None or file not in builder.results)
    )
    if without:
        named = ", ".join(without[:_NAMED]) + (", ..." if len(without) > _NAMED else "")
        builder.add_problem(f"{len(without)} collected tests have no result: {named}")
    is_red = any(each.outcome in RED for each in builder.results.values())
    if ended.ended_by != "exit" or not builder.begun:
        return
    for status in builder.exits:
        if status not in _ENDS:
            builder.add_problem(f"the runner broke off (its exit status: {status})")
    if is_red and ended.exit_code == 0:
        builder.add_problem("the command ended with exit code 0 although tests failed: it hides its runner's")
    if is_red and builder.exits and 0 in builder.exits and len(builder.exits) == builder.begun == 1:
        builder.add_problem("the runner says that all is well although tests failed")
    if not is_red and builder.results and ended.exit_code != 0:
        builder.add_problem(f"the command ended with exit code {ended.exit_code} although no test failed")


def _check_canaries(builder: ReportBuilder, canary: str) -> None:
    """Those of a file whose tests are all skipped may be skipped with them; each other one must be red."""
    canaries, others = list[TestResult](), list[TestResult]()
    for each in builder.results.values():
        (canaries if canary in each.id else others).append(each)
    for each in canaries:
        if each.outcome == "skipped":
            is_well = all(other.outcome == "skipped" for other in others if other.file == each.file)
        else:
            is_well = each.outcome in RED
        if not is_well:
            place = each.file or "the suite"
            builder.add_problem(
                f"a test that must fail was reported as {each.outcome} in {place}: the runner was made to say so"
            )
    was_run = any(each.outcome != "skipped" and each.file != each.id for each in others)
    if was_run and not any(each.outcome in RED for each in canaries):
        builder.add_problem("the test that must fail was not run: what the runner says cannot be believed")


def _check_guarded(
    builder: ReportBuilder, canary: str, guarded: Collection[str], *, by_directory: bool
) -> None:
    """Where a canary was put and a test passed, the canary must have failed."""

    def place(file: str) -> str:
        return file.rpartition("/")[0] if by_directory else file

    told = [each for each in builder.results.values() if each.file is not None]
    seen = {place(each.file or "") for each in told if canary in each.id and each.outcome in RED}
    passed = {place(each.file or "") for each in told if canary not in each.id and each.outcome == "passed"}
    for where in sorted({place(file) for file in guarded} & passed - seen):
        builder.add_problem(
            f"the test that must fail was not run in {where or '.'}: what it says cannot be believed"
        )


MOST_OUTPUT = 32 * 1024**2
_MOST_DETAIL = 4000
_MOST_NAME = 900
_WEIGHTS = {"broken": 0, "foreign": 1, "absent": 2, "compiler": 3}


async def run_for_output(
    check: Check, sandbox: Sandbox, command: str, env: Mapping[str, str]
) -> tuple[ReportBuilder, ExecResult, str]:
    """Run a shell command; give what it printed in the order in which it did, as one text."""
    # In one pipe, since the headings are on the one stream and the tests on the other.
    ended = await sandbox.run(
        ["/bin/sh", "-c", f"exec 2>&1\n{command}"],
        timeout_s=check.timeout_s,
        env=env,
        output_limit_bytes=MOST_OUTPUT,
        on_output=check.on_output,
    )
    builder = ReportBuilder()
    if ended.stdout_total > MOST_OUTPUT:
        builder.add_problem(f"more than {MOST_OUTPUT} bytes were printed: what the tests came to may be lost")
    return builder, ended, ended.stdout


def worst(causes: Sequence[Cause]) -> Cause:
    """Of what a compiler said of one file, that which weighs most; of foreign packages all the names."""
    first = min(causes, key=lambda each: _WEIGHTS[each.type])
    if first.type != "foreign":
        return first
    names = dict.fromkeys(each.name for each in causes if each.type == "foreign" and each.name)
    return Cause("foreign", first.message, " ".join(names))


def result(
    name: str, outcome: str, file: str | None = None, detail: str = "", cause: Cause | None = None
) -> TestResult:
    """A result, each part within its bound. An outcome that is none is an error."""
    if len(detail) > _MOST_DETAIL:
        head = _MOST_DETAIL // 4
        cut = len(detail) - _MOST_DETAIL
        detail = f"{detail[:head]}\n[... {cut} characters cut ...]\n{detail[head - _MOST_DETAIL :]}"
    file = file[:_MOST_NAME] if file else None
    match outcome:
        case "passed" | "failed" | "skipped":
            return TestResult(name[:_MOST_NAME], outcome, file, detail, cause)
        case _:
            return TestResult(name[:_MOST_NAME], "error", file, detail, cause)
