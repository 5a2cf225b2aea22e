"""Formats a report's figures, states and table of stories for people, and suggests commands."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ringfence.escape import visible
from ringfence.loop.report.model import (
    INTERRUPTED,
    STAGES,
    Answer,
    Attempt,
    CriterionVerdict,
    DiffSummary,
    LoopReport,
    RunReport,
    StoryReport,
    Usage,
)

_VERDICTS = {"met": "met", "not_met": "not met", "unclear": "unclear", None: "not judged"}
_QUESTIONS = {
    "criteria_tested": "Is every criterion tested?",
    "real_implementation": "Is the implementation real, and not a pretence?",
    "truthful_tests": "Do the tests match the story?",
    "intent_met": "Is the intent of the story met?",
}
_MAX_RETRIES = 5
_LIMITS = ("--max-agent-calls N", "--max-tokens N", "--max-cost-usd USD")
_MAX_COLUMN_CHARS = 24
"""Width limit of a column; a longer id shifts only its own line."""


def one_line(text: str) -> str:
    """Format a text of any number of lines in one line."""
    return " ".join(text.split())


def duration(seconds: float) -> str:
    """`-`, `3.2 s`, `42 s`, `3:05`, `2:03:05`."""
    if seconds <= 0:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


def tokens(count: int) -> str:
    """`812`, `9,870`, `41.2k`, `3.1M`."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def cost(usd: float) -> str:
    """US dollars; `-` for none, or none that is known."""
    if usd <= 0:
        return "-"
    return f"${usd:.4f}" if usd < 0.01 else f"${usd:,.2f}"


def moment(at_ms: int) -> str:
    """A time in UTC: `2026-11-22 10:23 UTC`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def stat_words(stat: DiffSummary) -> str:
    """`3 files, +12 -4`."""
    files = f"{stat.count:,} {'file' if stat.count == 1 else 'files'}"
    return f"{'more than ' if stat.is_truncated else ''}{files}, +{stat.insertions:,} -{stat.deletions:,}"


def used_words(used: Usage) -> str:
    """`7 agent calls, 41.2k tokens, $0.31, 3:05 at work`."""
    calls = f"{used.calls:,} agent {'call' if used.calls == 1 else 'calls'}"
    money = f", {cost(used.cost_usd)}" if used.cost_usd > 0 else ""
    return f"{calls}, {used.tokens:,} tokens{money}, {duration(used.seconds)} at work"


def verdict_words(given: CriterionVerdict) -> str:
    """Format a verdict in one or two words."""
    return _VERDICTS[given.verdict]


def attempt_name(attempt: Attempt, story: StoryReport) -> str:
    """`Code, attempt 2`; with the generation if the story was restarted."""
    start = f" of start {attempt.generation}" if story.generation > 1 else ""
    return f"{attempt.kind.capitalize()}, attempt {attempt.number}{start}"


def attempts_made(story: StoryReport) -> str:
    """The attempts at a story's code; those at its tests if there was none at its code."""
    return (
        f"{story.tests_attempt} (tests)" if story.tests_attempt and not story.attempt else str(story.attempt)
    )


def role_name(role: str) -> str:
    """A role's name; checks have none."""
    return role.replace("_", " ") or "checks"


def outcome(turn: RunReport) -> str:
    """How a run ended. An agent's run ends `unverified`, as the loop verifies its work."""
    if turn.outcome is None:
        return "under way"
    is_done = turn.outcome in ("unverified", "succeeded", "check_red")
    words = "done" if is_done else turn.outcome.replace("_", " ")
    return f"{words}, {turn.tries} tries" if turn.tries > 1 else words


def question(answer: Answer) -> str:
    """The reviewer's question that was answered."""
    return _QUESTIONS.get(answer.id, answer.id)


def status_table(report: LoopReport) -> Iterator[str]:
    """Yield a heading, and a line per story: its state, its last stage, and the time, tokens and money it used."""
    rows = [("story", "state", "attempt", "stage", "time", "tokens", "cost", "title")]
    for story in report.stories:
        attempt, used = story.attempt or story.tests_attempt, story.used
        rows.append(
            (
                visible(story.id, one_line=True),
                story.state,
                f"{attempt}/{story.max_attempts}" if attempt else "",
                _last_stage(story),
                duration(used.seconds),
                tokens(used.tokens),
                cost(used.cost_usd),
                story.title,
            )
        )
    widths = [min(max(len(row[column]) for row in rows), _MAX_COLUMN_CHARS) for column in range(7)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, (*widths, 0), strict=True)]
        yield "  ".join(cells).rstrip()


def _last_stage(story: StoryReport) -> str:
    """The last stage that a story reached, with its result; or the person who rejected the story."""
    if story.rejected_by is not None:
        return f"rejected by {visible(story.rejected_by.by, one_line=True)}"
    reached = [f"{name} {result}" for name, result in zip(STAGES, story.stages, strict=True) if result]
    return reached[-1] if reached else ""


def next_steps(report: LoopReport) -> list[str]:
    """The commands that are useful next; the first is the most likely."""
    short, has_work = report.id[-6:], any(story.merged for story in report.stories)
    merge = (
        [f"git merge {report.branch}"] if has_work and report.is_delivered and not report.is_merged else []
    )
    if report.state == "running":
        return [f"ringfence loop logs --follow {short}"]
    if not report.has_repository:
        return _next_without_clones(report, short, merge)
    if report.state == "succeeded":
        return [*([f"ringfence loop resume {short}"] if report.outstanding else []), *merge]
    if report.state in ("incomplete", "blocked"):
        return [*_retries(report, short), *merge]
    if report.state == "configuration" and not report.is_started:
        return [_start(report)]
    limit = next((f" {option}" for option in _LIMITS if option.split()[0] in report.reason), "")
    return [f"ringfence loop resume {short}{limit if report.state == 'limit' else ''}"]


def _next_without_clones(report: LoopReport, short: str, merge: list[str]) -> list[str]:
    """The commands for a loop without working files, which cannot be resumed; its branch exists if it has ended."""
    found = [*merge]
    if report.state == "succeeded":
        return found
    if report.state not in ("incomplete", "cancelled"):  # it would prevent another loop
        found = [*found, f"ringfence loop cancel {short}"]
    if report.state != INTERRUPTED and any(story.merged for story in report.stories):
        return [*found, f"ringfence loop export FILE --loop {short}", "ringfence loop start --prd FILE"]
    return [*found, _start(report)]


def _start(report: LoopReport) -> str:
    """The command that starts another loop with the same stories."""
    stories = f"--prd {shlex.quote(report.prd)}" if report.prd is not None else "--goal TEXT"
    return f"ringfence loop start {stories}"


def _retries(report: LoopReport, short: str) -> list[str]:
    """Commands that restart stories that have their own reason; stories that only wait for them follow automatically."""
    lost = {story.id for story in report.stories if story.state in ("blocked", "skipped")}
    own = [story for story in report.stories if story.id in lost and not lost.intersection(story.depends_on)]
    found = list[str]()
    for story in sorted(own, key=lambda story: story.state):  # blocked ones first
        options = f"{' --answer TEXT' if story.state == 'blocked' else ''} --loop {short}"
        name = shlex.quote(story.id)
        words = f"{options} -- {name}" if story.id.startswith("-") else f" {name}{options}"
        found.append(f"ringfence loop retry{words}")
    return found[:_MAX_RETRIES]


FILTERS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        attempt_name, attempts_made, cost, duration, moment, outcome, question, role_name, stat_words, tokens,
        used_words, verdict_words,
    )
}  # fmt: skip
"""Filters for both templates; only `question` may return text that is not constant."""
