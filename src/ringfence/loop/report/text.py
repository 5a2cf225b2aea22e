"""Figures and words of the report as people read them, and the commands that it suggests."""

import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ringfence.loop.report.model import (
    INTERRUPTED,
    Answer,
    Attempt,
    CriterionVerdict,
    LoopReport,
    Stat,
    StoryReport,
    Turn,
    Used,
)

_MINUTE_S, _HOUR_S = 60, 3600
_THOUSAND, _MILLION = 1_000, 1_000_000
_EXACT = 10_000
_CENT = 0.01
VERDICTS = {"met": "met", "not_met": "not met", "unclear": "unclear", None: "not judged"}
QUESTIONS = {
    "criteria_tested": "Is every criterion tested?",
    "real_implementation": "Is it really built, not made to look so?",
    "truthful_tests": "Do the tests say what the story says?",
    "intent_met": "Is what the story is about done?",
}
_MOST_RETRIES = 5
_BOUNDS = ("--max-agent-calls N", "--max-tokens N", "--max-cost-usd USD")


def one_line(text: str) -> str:
    """A text of any number of lines in one line."""
    return " ".join(text.split())


def duration(seconds: float) -> str:
    """`-`, `3.2 s`, `42 s`, `3:05`, `2:03:05`."""
    if seconds <= 0:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    hours, rest = divmod(whole, _HOUR_S)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def tokens(count: int) -> str:
    """`812`, `9,870`, `41.2k`, `3.1M`."""
    if count < _EXACT:
        return f"{count:,}"
    return f"{count / _THOUSAND:.1f}k" if count < _MILLION else f"{count / _MILLION:.1f}M"


def cost(usd: float) -> str:
    """US dollars; `-` for none, or none that is known."""
    if usd <= 0:
        return "-"
    return f"${usd:.4f}" if usd < _CENT else f"${usd:,.2f}"


def moment(at_ms: int) -> str:
    """When, in UTC: `2026-11-22 10:23 UTC`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def stat_words(stat: Stat) -> str:
    """`3 files, +12 -4`."""
    files = f"{stat.count:,} {'file' if stat.count == 1 else 'files'}"
    return f"{'more than ' if stat.is_partial else ''}{files}, +{stat.insertions:,} -{stat.deletions:,}"


def used_words(used: Used) -> str:
    """`7 agent calls, 41.2k tokens, $0.31, 3:05 at work`."""
    calls = f"{used.calls:,} agent {'call' if used.calls == 1 else 'calls'}"
    money = f", {cost(used.cost_usd)}" if used.cost_usd > 0 else ""
    return f"{calls}, {used.tokens:,} tokens{money}, {duration(used.seconds)} at work"


def verdict_words(said: CriterionVerdict) -> str:
    """A verdict in a word or two."""
    return VERDICTS[said.verdict]


def attempt_title(attempt: Attempt, story: StoryReport) -> str:
    """`Code, attempt 2: rejected`."""
    begun = f" of the {attempt.generation}. beginning" if story.generation > 1 else ""
    return f"{attempt.kind.capitalize()}, attempt {attempt.number}{begun}: {attempt.state}"


def attempts_made(story: StoryReport) -> str:
    """At a story's code; where it did not come to that, at its tests."""
    return (
        f"{story.tests_attempt} (tests)" if story.tests_attempt and not story.attempt else str(story.attempt)
    )


def who(role: str) -> str:
    """A role's name; without one it is checks that ran."""
    return role.replace("_", " ") or "checks"


def outcome(turn: Turn) -> str:
    """How a run ended. An agent's ends `unverified`, for it is the loop that verifies; that of checks as they do."""
    if turn.outcome is None:
        return "under way"
    told = (
        "done" if turn.outcome in ("unverified", "succeeded", "check_red") else turn.outcome.replace("_", " ")
    )
    return f"{told}, {turn.tries} tries" if turn.tries > 1 else told


def next_steps(report: LoopReport) -> list[str]:
    """Commands that one may want next; the first is the most likely."""
    short = report.id[-6:]
    merge = [] if report.is_merged else [f"git merge {report.branch}"]
    if report.state == "running":
        return [f"ringfence loop logs --follow {short}"]
    if not report.has_clones:
        return _cleaned(report, short, merge)
    if report.state == "succeeded":
        return [*([f"ringfence loop resume {short}"] if report.outstanding else []), *merge]
    if report.state in ("incomplete", "blocked"):
        return [*_retries(report, short), *(merge if any(story.merged for story in report.stories) else [])]
    if report.state == "configuration" and not report.is_started:
        return [_another(report)]
    option = next((f" {option}" for option in _BOUNDS if option.split()[0] in report.reason), "")
    return [f"ringfence loop resume {short}{option if report.state == 'limit' else ''}"]


def _cleaned(report: LoopReport, short: str, merge: list[str]) -> list[str]:
    """What can be done without the clones: the branch is there, where the loop came to an end; the rest begins anew."""
    is_delivered = report.state != INTERRUPTED and any(story.merged for story in report.stories)
    found = merge if is_delivered else []
    if report.state == "succeeded":
        return found
    if report.state not in ("incomplete", "cancelled"):  # it would stand against another one
        found = [*found, f"ringfence loop cancel {short}"]
    if is_delivered:  # what passed is not to be done again
        return [*found, f"ringfence loop export FILE --loop {short}", "ringfence loop start --prd FILE"]
    return [*found, _another(report)]


def _another(report: LoopReport) -> str:
    """How another loop is begun with the same stories."""
    said = f"--prd {shlex.quote(report.prd)}" if report.prd is not None else "--goal TEXT"
    return f"ringfence loop start {said}"


def _retries(report: LoopReport, short: str) -> list[str]:
    """How each story is begun anew that has a reason of its own; those that only wait for it follow by themselves."""
    lost = {story.id for story in report.stories if story.state in ("blocked", "skipped")}
    own = [story for story in report.stories if story.id in lost and not lost.intersection(story.depends_on)]
    found = [
        _retry(story.id, f"{answer} --loop {short}")
        for state, answer in (("blocked", " --answer TEXT"), ("skipped", ""))
        for story in own
        if story.state == state
    ]
    return found[:_MOST_RETRIES]


def _retry(story: str, options: str) -> str:
    """No story's name is taken for an option."""
    named = shlex.quote(story)
    words = f"{options} -- {named}" if story.startswith("-") else f" {named}{options}"
    return f"ringfence loop retry{words}"


def question(answer: Answer) -> str:
    """The question of the reviewer's that was answered."""
    return QUESTIONS.get(answer.id, answer.id)


FILTERS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        attempt_title, attempts_made, cost, duration, moment, outcome, question, stat_words, tokens, used_words,
        verdict_words, who,
    )
}  # fmt: skip
"""Of both templates: none of them prints a text of an agent."""
