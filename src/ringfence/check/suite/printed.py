"""Runners whose report is what they print: the command's whole output, both streams in one, bounded."""

from typing import TYPE_CHECKING

from ringfence.check.suite.collecting import Gathered
from ringfence.check.suite.model import Cause, Check, TestResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringfence.sandbox import ExecResult, Sandbox

MOST_OUTPUT = 32 * 1024**2
_MOST_DETAIL = 4000
_MOST_NAME = 900
_WEIGHTS = {"broken": 0, "foreign": 1, "absent": 2, "compiler": 3}


async def run_printed(
    check: Check, sandbox: "Sandbox", command: str, env: "Mapping[str, str]"
) -> "tuple[Gathered, ExecResult, str]":
    """Run a shell command; give what it printed in the order in which it did, as one text."""
    # In one pipe, since the headings are on the one stream and the tests on the other.
    ended = await sandbox.run(
        ["/bin/sh", "-c", f"exec 2>&1\n{command}"],
        timeout_s=check.timeout_s,
        env=env,
        output_limit_bytes=MOST_OUTPUT,
        on_output=check.on_output,
    )
    gathered = Gathered()
    if ended.stdout_total > MOST_OUTPUT:
        gathered.complain(f"more than {MOST_OUTPUT} bytes were printed: what the tests came to may be lost")
    return gathered, ended, ended.stdout


def worst(causes: "Sequence[Cause]") -> Cause:
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
