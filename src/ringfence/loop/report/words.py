"""Words of the report that both its forms use."""

import shlex

from ringfence.loop.report.model import INTERRUPTED, Attempt, CriterionVerdict, LoopReport, StoryReport, Turn

VERDICTS = {"met": "met", "not_met": "not met", "unclear": "unclear", None: "not judged"}
QUESTIONS = {
    "criteria_tested": "Is every criterion tested?",
    "real_implementation": "Is it really built, not made to look so?",
    "truthful_tests": "Do the tests say what the story says?",
    "intent_met": "Is what the story is about done?",
}
_MOST_RETRIES = 5
_BOUNDS = ("--max-agent-calls N", "--max-tokens N", "--max-cost-usd USD")


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


def who(turn: Turn) -> str:
    """Whose run it was."""
    return turn.role.replace("_", " ") if turn.role else "checks"


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
