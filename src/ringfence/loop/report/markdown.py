"""The report as Markdown. Texts of agents do nothing in it: see `inert`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ringfence.loop.report.figures import cost, duration, moment, stat_words, tokens, used_words
from ringfence.loop.report.inert import block, cell, inline, span
from ringfence.loop.report.model import Attempt, CriterionVerdict, LoopReport, Stat, StoryReport, Turn
from ringfence.loop.report.words import (
    QUESTIONS,
    attempt_title,
    attempts_made,
    next_steps,
    outcome,
    verdict_words,
    who,
)

_FILES = 20


def markdown(report: LoopReport, *, is_for_others: bool = False) -> str:
    """The report, in one string that ends with a line break.

    Args:
        report: What is told.
        is_for_others: Leave out what only your machine knows: where things lie there, and what to type next.
    """
    report = _for_others(report) if is_for_others else report
    lines = [*_head(report), *(() if is_for_others else _next(report))]
    lines += ["", *_overview(report)]
    for story in report.stories:
        lines += _story(story)
    return "\n".join(lines) + "\n"


def _head(report: LoopReport) -> Iterator[str]:
    yield f"# Loop {span(report.id)}"
    yield ""
    if report.title:
        yield f"Stories: {inline(report.title)}"
        yield ""
    reason = f": {inline(report.reason)}" if report.reason else ""
    yield f"**{report.state}**{reason}"
    yield ""
    yield f"- repository: {span(report.source)}, from commit {span(report.base[:12])}"
    if report.prd is not None:
        yield f"- stories' file: {span(report.prd)}"
    if report.tip is not None:
        changed = f", {stat_words(report.stat)}" if report.stat is not None else ""
        yield f"- branch: {span(report.branch)} at {span(report.tip[:12])}{changed}"
    if report.patch is not None:
        yield f"- patch: {span(report.patch)}"
    ended = f", ended {moment(report.ended_ms)}" if report.ended_ms is not None else ""
    rounds = f", round {report.round}" if report.round > 1 else ""
    yield f"- begun {moment(report.created_ms)}{ended}{rounds}"
    yield f"- record: run {span(report.record)}"
    yield f"- used: {used_words(report.used)}"
    if report.red_before_count:
        names = ", ".join(span(name) for name in report.red_before)
        yield f"- red before anything was done: {report.red_before_count} ({names})"
    for file in report.flagged:
        yield f"- **look at this before you use the branch**: {span(file.path)}: {inline(file.why)}"
    if report.flagged_count > len(report.flagged):
        yield f"- and {report.flagged_count - len(report.flagged)} more files that run or are trusted on your machine"


def _next(report: LoopReport) -> Iterator[str]:
    for command in next_steps(report):
        yield f"- next: {span(command)}"


def _for_others(report: LoopReport) -> LoopReport:
    prd = None if report.prd is None else Path(report.prd).name
    stories = tuple(
        replace(story, attempts=tuple(replace(each, patch=None) for each in story.attempts))
        for story in report.stories
    )
    return replace(report, source=Path(report.source).name, prd=prd, patch=None, stories=stories)


def _overview(report: LoopReport) -> Iterator[str]:
    yield "| story | | state | attempts | changes | time | tokens | cost |"
    yield "|---|---|---|--:|---|--:|--:|--:|"
    for story in report.stories:
        used, stat = story.used, "" if story.stat is None else stat_words(story.stat)
        figures = (duration(used.seconds), tokens(used.tokens), cost(used.cost_usd))
        title = cell(story.title, most_chars=80)
        told = f"{story.state} | {attempts_made(story)} | {stat} | {' | '.join(figures)}"
        yield f"| {cell(story.id)} | {title} | {told} |"
    yield ""


def _story(story: StoryReport) -> Iterator[str]:
    yield f"## Story {span(story.id)}: {story.state}"
    yield ""
    yield f"Title: {inline(story.title)}"
    yield ""
    if story.reason:
        yield f"Reason: {inline(story.reason)}"
        yield ""
    if story.answer:
        yield f"A person has answered: {inline(story.answer)}"
        yield ""
    if story.depends_on:
        yield f"Depends on: {', '.join(span(name) for name in story.depends_on)}"
        yield ""
    yield from _criteria(story.criteria)
    if story.stat is not None:
        yield f"On the branch: {stat_words(story.stat)}"
        yield ""
        yield from _files(story.stat)
    if story.outside:
        yield f"**Outside of the files that it names**: {', '.join(map(span, story.outside))}{_more_outside(story)}"
        yield ""
    for attempt in story.attempts:
        yield from _attempt(attempt, story)


def _more_outside(story: StoryReport) -> str:
    more = story.outside_count - len(story.outside)
    return f" and {more} more" if more > 0 else ""


def _criteria(criteria: tuple[CriterionVerdict, ...]) -> Iterator[str]:
    for said in criteria:
        yield f"{said.number}. **{verdict_words(said)}**: {inline(said.text)}"
        if said.reason:
            yield f"    - why: {inline(said.reason)}"
        if said.evidence:
            yield f"    - evidence: {', '.join(span(each) for each in said.evidence)}"
    if criteria:
        yield ""


def _files(stat: Stat) -> Iterator[str]:
    for file in stat.files[:_FILES]:
        lines = "binary" if file.is_binary else f"+{file.insertions} -{file.deletions}"
        yield f"- {span(file.path)} {lines}"
    if stat.count > _FILES:
        yield f"- and {stat.count - _FILES} more"
    yield ""


def _attempt(attempt: Attempt, story: StoryReport) -> Iterator[str]:
    yield f"### {attempt_title(attempt, story)}"
    yield ""
    yield from (f"- {_turn(turn)}" for turn in attempt.turns)
    for check in attempt.checks:
        colour = f"{check.colour}, " if check.colour else ""
        yield f"- check {span(check.name)}: {colour}{check.words}"
    if attempt.stat is not None:
        yield f"- changed: {stat_words(attempt.stat)}: {', '.join(span(name) for name in attempt.files[:_FILES])}"
    for answer in attempt.review:
        asked, said = QUESTIONS.get(answer.id, ""), "yes" if answer.is_yes else "**no**"
        yield f"- review: {asked or inline(answer.id)} {said}: {inline(answer.evidence)}"
    if attempt.patch is not None:
        yield f"- its work: {span(attempt.patch)}"
    yield ""
    if attempt.state == "rejected":
        yield from _criteria(attempt.verdict)
    for complaint in attempt.complaints:
        yield block(complaint)
        yield ""


def _turn(turn: Turn) -> str:
    model = f" ({span(turn.model)})" if turn.model else ""
    run = f", run {span(turn.run_id)}" if turn.run_id else ""
    used = f", {duration(turn.used.seconds)}"
    if turn.role:
        used += f", {turn.used.tokens:,} tokens" + (
            f", {cost(turn.used.cost_usd)}" if turn.used.cost_usd > 0 else ""
        )
    words = f": {inline(turn.words, most_chars=500)}" if turn.words else ""
    return f"{who(turn)}{model}: {outcome(turn)}{used}{run}{words}"
