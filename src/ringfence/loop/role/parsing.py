"""One answer out of what an agent said last, or a reason why there is none.

What counts is that there is exactly one. An agent that quotes an answer that somebody slipped into the code it read, and
then gives its own, has given two; so has one whose own answer is cut off. Neither is guessed at.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, overload

from pydantic import ValidationError

from ringfence.errors import Unparseable
from ringfence.loop.role.answers import ANSWERS, Answer, DraftedPlan, ReviewAnswers, Verdict, WorkAnswer
from ringfence.loop.role.blocks import plain
from ringfence.loop.role.model import Role

MOST_CHARS = 1 << 20
"""A longer text is no answer."""
_MOST_DECODED_CHARS = 1 << 28
"""In all tries to read an object; each that fails counts the lines before it."""
_MOST_SUMMARY_CHARS = 2_000
_MARKERS: dict[type[Answer], tuple[str, ...]] = {
    DraftedPlan: ("stories",),
    ReviewAnswers: ("questions",),
    Verdict: ("overall", "criteria"),
}
"""Properties that nothing but an answer of that type, right or wrong, is expected to have."""
_OF_WORK = frozenset({"status", "summary", "question"})


@overload
def parse_answer(role: Literal["planner"], final_text: str, structured: Any = None) -> DraftedPlan: ...
@overload
def parse_answer(role: Literal["reviewer"], final_text: str, structured: Any = None) -> ReviewAnswers: ...
@overload
def parse_answer(role: Literal["judge"], final_text: str, structured: Any = None) -> Verdict: ...
@overload
def parse_answer(
    role: Literal["implementor", "test_writer"], final_text: str, structured: Any = None
) -> WorkAnswer: ...
@overload
def parse_answer(role: Role, final_text: str, structured: Any = None) -> Answer: ...
def parse_answer(role: Role, final_text: str, structured: Any = None) -> Answer:
    """The role's answer.

    Args:
        role: Who answered.
        final_text: What it said last.
        structured: Its answer by the schema, where its runtime could hold it to one.

    Raises:
        Unparseable: There is none, or more than one, or it is not of the role's type.
    """
    answer = ANSWERS[role]
    if structured is not None:
        return _validated(role, answer, structured)
    if len(final_text) > MOST_CHARS:
        raise Unparseable(role, f"the text has {len(final_text)} characters, and {MOST_CHARS} are looked at")
    claims = _claims(role, answer, final_text)
    if not claims:
        return _unsaid(role, answer, final_text)
    answers = [_validated(role, answer, claim) for claim in claims]
    if any(each != answers[0] for each in answers):
        raise Unparseable(role, f"there are {len(answers)} answers, and they differ")
    return answers[0]


def _claims(role: Role, answer: type[Answer], text: str) -> list[dict[str, Any]]:
    """Objects that want to be the answer. Who works may write of other objects, damaged ones too."""
    found, rest = _objects(role, text, is_strict=answer is not WorkAnswer)
    if answer is WorkAnswer:
        return [each for each in found if each.keys() >= _OF_WORK]
    markers = _MARKERS[answer]
    if any(re.search(rf'"{marker}"\s*:', rest) for marker in markers):
        raise Unparseable(role, "there is something that looks like an answer and is broken off or damaged")
    return [each for each in found if any(marker in each for marker in markers)]


def _unsaid(role: Role, answer: type[Answer], text: str) -> Answer:
    """Who works need not say anything: the work speaks."""
    if answer is WorkAnswer:
        return WorkAnswer(status="done", summary=plain(text).strip()[:_MOST_SUMMARY_CHARS], question=None)
    raise Unparseable(role, f"there is no answer in {_shown(text)}" if text.strip() else "there is no text")


def _validated(role: Role, answer: type[Answer], value: Any) -> Answer:
    if not isinstance(value, Mapping):
        raise Unparseable(role, f"the answer is {type(value).__name__}, no object")
    try:
        return answer.model_validate(dict(value))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:60] for part in first["loc"][:8])
        raise Unparseable(role, f"{place or 'the answer'}: {first['msg'][:200]}") from None
    except RecursionError:
        raise Unparseable(role, "the answer is nested too deeply") from None


def _objects(role: Role, text: str, *, is_strict: bool) -> tuple[list[dict[str, Any]], str]:
    """All objects that are in no other one, and the text without them."""
    decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant)
    found: list[dict[str, Any]] = []
    rest: list[str] = []
    position = decoded = 0
    while (start := text.find("{", position)) >= 0:
        rest.append(text[position:start])
        try:
            value, position = decoder.raw_decode(text, start)
            found.append(value)
            decoded += position - start
        except json.JSONDecodeError as exc:
            decoded += exc.pos + 1
            rest.append("{")
            position = start + 1
        except (RecursionError, ValueError) as exc:
            if is_strict:
                raise Unparseable(role, f"an object in it is damaged: {_shown(str(exc))}") from None
            return found, text[start:]
        if decoded > _MOST_DECODED_CHARS:
            raise Unparseable(role, "it has too many objects that are broken off")
    rest.append(text[position:])
    return found, "".join(rest)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a property is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:80] + "...")
