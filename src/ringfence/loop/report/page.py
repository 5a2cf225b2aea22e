"""The report as a page that needs nothing else: no script, nothing from the network, no link but to its own parts."""

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from ringfence.loop.report.element import Html, element, joined, text
from ringfence.loop.report.figures import cost, duration, moment, stat_words, tokens, used_words
from ringfence.loop.report.model import (
    Answer,
    Attempt,
    CheckResult,
    CriterionVerdict,
    LoopReport,
    Stat,
    StoryReport,
    Turn,
)
from ringfence.loop.report.words import (
    QUESTIONS,
    attempt_title,
    attempts_made,
    next_steps,
    outcome,
    verdict_words,
    who,
)

_FILES = 100
_TONES = {
    "passed": "good", "succeeded": "good", "met": "good", "accepted": "good", "green": "good", "yes": "good",
    "skipped": "bad", "rejected": "bad", "not met": "bad", "red": "bad", "no": "bad", "incomplete": "bad",
    "blocked": "warn", "unclear": "warn", "interrupted": "warn", "limit": "warn", "timed_out": "warn",
}  # fmt: skip


def page(report: LoopReport) -> str:
    """The page, whole."""
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Loop {report.id}"),
        Html(f"<style>{style}</style>"),
    )
    stories = (_story(number, story) for number, story in enumerate(report.stories, start=1))
    body = element("body", element("main", _head(report), _overview(report), *stories))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _head(report: LoopReport) -> Html:
    title = element("h1", _said(report.title)) if report.title else element("h1", "A loop")
    reason = joined(" ", _said(report.reason)) if report.reason else ""
    rows: list[tuple[str, str | Html]] = [
        ("loop", _code(report.id)),
        ("repository", joined(_code(report.source), " from commit ", _code(report.base[:12]))),
    ]
    if report.prd is not None:
        rows.append(("stories' file", _code(report.prd)))
    if report.tip is not None:
        changed = f", {stat_words(report.stat)}" if report.stat is not None else ""
        rows.append(("branch", joined(_code(report.branch), " at ", _code(report.tip[:12]), changed)))
    if report.patch is not None:
        rows.append(("patch", _code(report.patch)))
    ended = f", ended {moment(report.ended_ms)}" if report.ended_ms is not None else ""
    rounds = f", round {report.round}" if report.round > 1 else ""
    rows += [
        ("begun", f"{moment(report.created_ms)}{ended}{rounds}"),
        ("record", joined("run ", _code(report.record))),
        ("used", used_words(report.used)),
    ]
    if report.red_before_count:
        rows.append(
            (
                "red before",
                joined(f"{report.red_before_count}: ", *_listed(_code(each) for each in report.red_before)),
            )
        )
    rows += [("look at this first", joined(_code(file.path), ": ", file.why)) for file in report.flagged]
    if report.flagged_count > len(report.flagged):
        rows.append(
            (
                "",
                f"and {report.flagged_count - len(report.flagged)} more that run or are trusted on your machine",
            )
        )
    rows += [("next", _code(command)) for command in next_steps(report)]
    return element("header", title, element("p", _badge(report.state), reason, class_="state"), _facts(rows))


def _overview(report: LoopReport) -> Html:
    heads = ("story", "", "state", "attempts", "changes", "time", "tokens", "cost")
    rows = [
        element(
            "tr",
            element("td", element("a", _code(story.id), href=f"#story-{number}")),
            element("td", _said(story.title)),
            element("td", _badge(story.state)),
            *(
                element("td", figure, class_="figure")
                for figure in (
                    attempts_made(story),
                    "" if story.stat is None else stat_words(story.stat),
                    duration(story.used.seconds),
                    tokens(story.used.tokens),
                    cost(story.used.cost_usd),
                )
            ),
        )
        for number, story in enumerate(report.stories, start=1)
    ]
    head = element("thead", element("tr", *(element("th", name) for name in heads)))
    return element("div", element("table", head, element("tbody", *rows)), class_="wide")


def _story(number: int, story: StoryReport) -> Html:
    parts: list[Html] = [
        element("h2", _code(story.id), " ", _said(story.title), " ", _badge(story.state)),
    ]
    if story.reason:
        parts.append(element("p", _said(story.reason), class_="reason"))
    if story.answer:
        parts.append(element("p", "A person has answered: ", _said(story.answer)))
    if story.depends_on:
        parts.append(element("p", "Depends on ", *_listed(_code(name) for name in story.depends_on)))
    parts.append(_criteria(story.criteria))
    if story.stat is not None:
        parts.append(_files(story.stat, f"On the branch: {stat_words(story.stat)}"))
    if story.outside:
        more = story.outside_count - len(story.outside)
        names = _listed(_code(name) for name in story.outside)
        rest = f" and {more} more" if more > 0 else ""
        parts.append(element("p", "Outside of the files that it names: ", *names, rest))
    parts += [_attempt(attempt, story) for attempt in story.attempts]
    return element("section", *parts, id=f"story-{number}")


def _criteria(criteria: tuple[CriterionVerdict, ...]) -> Html:
    return element("ol", *(_criterion(said) for said in criteria), class_="criteria") if criteria else Html()


def _criterion(said: CriterionVerdict) -> Html:
    parts = [_badge(verdict_words(said)), Html(" "), _said(said.text)]
    if said.reason:
        parts.append(element("div", _said(said.reason), class_="reason"))
    if said.evidence:
        parts.append(element("div", *_listed(_code(each) for each in said.evidence), class_="evidence"))
    return element("li", *parts)


def _files(stat: Stat, title: str) -> Html:
    rows = [
        element(
            "tr",
            element("td", _code(file.path)),
            element("td", "binary" if file.is_binary else f"+{file.insertions}", class_="figure plus"),
            element("td", "" if file.is_binary else f"-{file.deletions}", class_="figure minus"),
        )
        for file in stat.files[:_FILES]
    ]
    more = [element("p", f"and {stat.count - _FILES} more")] if stat.count > _FILES else []
    return element("details", element("summary", title), element("table", *rows, class_="files"), *more)


def _attempt(attempt: Attempt, story: StoryReport) -> Html:
    title = element("summary", attempt_title(attempt, story).rpartition(":")[0], " ", _badge(attempt.state))
    parts = [_turns(attempt.turns)]
    facts: list[tuple[str, str | Html]] = [(f"check {check.name}", _check(check)) for check in attempt.checks]
    facts += [(QUESTIONS.get(answer.id, answer.id), _answer(answer)) for answer in attempt.review]
    if attempt.patch is not None:
        facts.append(("its work", _code(attempt.patch)))
    if facts:
        parts.append(_facts(facts))
    if attempt.stat is not None:
        parts.append(_files(attempt.stat, f"Changed: {stat_words(attempt.stat)}"))
    if attempt.state == "rejected":
        parts.append(_criteria(attempt.verdict))
    parts += [element("pre", text(complaint, lines=True)) for complaint in attempt.complaints]
    return element("details", title, *parts, class_="attempt")


def _turns(turns: tuple[Turn, ...]) -> Html:
    rows = [
        element(
            "tr",
            element("td", who(turn)),
            element("td", _code(turn.model) if turn.model else ""),
            element("td", outcome(turn)),
            element("td", duration(turn.used.seconds), class_="figure"),
            element("td", tokens(turn.used.tokens) if turn.role else "", class_="figure"),
            element("td", cost(turn.used.cost_usd) if turn.role else "", class_="figure"),
            element("td", _code(turn.run_id) if turn.run_id else "", class_="figure"),
        )
        for turn in turns
    ]
    heads = ("", "model", "end", "time", "tokens", "cost", "run")
    head = element("thead", element("tr", *(element("th", name) for name in heads)))
    words = [
        element("p", f"{who(turn)}: ", _said(turn.words), class_="reason") for turn in turns if turn.words
    ]
    return joined(element("div", element("table", head, element("tbody", *rows)), class_="wide"), *words)


def _check(check: CheckResult) -> Html:
    return joined(*((_badge(check.colour), " ") if check.colour else ()), check.words)


def _answer(answer: Answer) -> Html:
    return joined(_badge("yes" if answer.is_yes else "no"), " ", _said(answer.evidence))


def _facts(rows: Iterable[tuple[str, str | Html]]) -> Html:
    pairs = (joined(element("dt", name), element("dd", value)) for name, value in rows)
    return element("dl", *pairs)


def _badge(word: str) -> Html:
    tone = _TONES.get(word, "plain")
    return element("span", word.replace("_", " "), class_=f"badge {tone}")


def _said(words: str) -> Html:
    """What somebody wrote, on its own for the direction of writing."""
    return element("bdi", text(" ".join(words.split())))


def _code(words: str) -> Html:
    return element("code", element("bdi", words))


def _listed(parts: Iterable[Html]) -> list[str | Html]:
    found: list[str | Html] = []
    for part in parts:
        found += [", ", part] if found else [part]
    return found
