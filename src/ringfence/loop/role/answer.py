"""Defines the base type and the JSON schemas of roles' answers, and finds the one answer in a text.

The schemas are strict, as providers call it: every property is required, and none may be added.

There must be exactly one answer. If an agent quotes an answer that was planted in the code it read, and then gives its
own, there are two; the same holds if its own answer is cut off. The module never guesses which one is meant.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from ringfence.errors import Unparseable
from ringfence.loop.role.blocks import plain
from ringfence.strict_json import STRICT_DECODER

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
Prose = Annotated[Text, StringConstraints(min_length=1)]
ITEMS_LIMIT = 200
"""Limit for the number of stories, criteria and pieces of evidence."""

_TEXT_CHARS = 1 << 20
"""Limit for the length of an answer."""
_DECODED_CHARS = 1 << 28
"""Limit for all tries to read an object; each failed try counts the lines before it."""
_SUMMARY_CHARS = 2_000


class Answer(BaseModel):
    """The base type of answers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class WorkAnswer(Answer):
    """The test writer's or the implementor's answer."""

    status: Literal["done", "blocked"]
    summary: Text
    question: Prose | None = Field(description="If blocked: what a person must answer. Else null.")

    @model_validator(mode="after")
    def _asks_if_blocked(self) -> "WorkAnswer":
        if (self.status == "blocked") != (self.question is not None):
            raise ValueError("a question is asked if, and only if, the status is blocked")
        return self


A = TypeVar("A", bound=Answer)

_KEPT = ("type", "properties", "required", "items", "enum", "anyOf", "$ref", "description")


def strict_schema(answer: type[Answer]) -> dict[str, Any]:
    """Return the strict JSON schema of an answer, without keywords that strict modes refuse."""
    schema = answer.model_json_schema(mode="serialization")
    definitions = {name: _strict(each) for name, each in schema.get("$defs", {}).items()}
    strict = _strict(schema)
    return {**strict, "$defs": definitions} if definitions else strict


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out bounds, which not every provider supports; the types still enforce them."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        strict["enum"] = [schema["const"]]
    if "anyOf" in schema:
        strict["anyOf"] = [_strict(each) for each in schema["anyOf"]]
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    if schema.get("type") == "object":
        strict.pop("description", None)  # is for readers of the code
        strict["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        strict["required"] = list(schema["properties"])
        strict["additionalProperties"] = False
    return strict


def read_answer(role: str, answer: type[A], markers: tuple[str, ...], text: str, structured: Any) -> A:
    """Return the one answer of a role that must give one.

    Args:
        role: The role, for messages.
        answer: The type of its answer.
        markers: Properties that only such an answer, valid or not, is expected to have.
        text: The agent's last message.
        structured: Its answer according to the schema, if its runtime can enforce one; then the text is ignored.

    Raises:
        Unparseable: There is no answer, or more than one, or it is not of the type.
    """
    if structured is not None:
        return _validated(role, answer, structured)
    found, rest = _objects(role, text, is_strict=True)
    if any(re.search(rf'"{marker}"\s*:', rest) for marker in markers):
        raise Unparseable(role, "there is something that looks like an answer and is broken off or damaged")
    answers = [_validated(role, answer, each) for each in found if any(marker in each for marker in markers)]
    if not answers:
        raise Unparseable(
            role, f"there is no answer in {_shown(text)}" if text.strip() else "there is no text"
        )
    return _only(role, answers)


def read_work(role: str, text: str, structured: Any) -> WorkAnswer:
    """Return the answer of a role that may but need not answer, and whose text may hold other objects.

    Raises:
        Unparseable: There are several answers, or one is not of the type.
    """
    if structured is not None:
        return _validated(role, WorkAnswer, structured)
    found, _ = _objects(role, text, is_strict=False)
    answers = [
        _validated(role, WorkAnswer, each) for each in found if each.keys() >= WorkAnswer.model_fields.keys()
    ]
    if not answers:
        return WorkAnswer(status="done", summary=plain(text).strip()[:_SUMMARY_CHARS], question=None)
    return _only(role, answers)


def _only(role: str, answers: list[A]) -> A:
    if any(each != answers[0] for each in answers):
        raise Unparseable(role, f"there are {len(answers)} answers, and they differ")
    return answers[0]


def _validated(role: str, answer: type[A], value: Any) -> A:
    if not isinstance(value, Mapping):
        raise Unparseable(role, f"the answer is {type(value).__name__}, no object")
    try:
        return answer.model_validate(dict(value))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        location = ".".join(str(part)[:60] for part in first["loc"][:8])
        raise Unparseable(role, f"{location or 'the answer'}: {first['msg'][:200]}") from None
    except RecursionError:
        raise Unparseable(role, "the answer is nested too deeply") from None


def _objects(role: str, text: str, *, is_strict: bool) -> tuple[list[dict[str, Any]], str]:
    """Return all outermost objects, and the text without them."""
    if len(text) > _TEXT_CHARS:
        raise Unparseable(role, f"the text has {len(text)} characters, and {_TEXT_CHARS} are looked at")
    found: list[dict[str, Any]] = []
    rest: list[str] = []
    position = decoded = 0
    while (start := text.find("{", position)) >= 0:
        rest.append(text[position:start])
        try:
            value, position = STRICT_DECODER.raw_decode(text, start)
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
        if decoded > _DECODED_CHARS:
            raise Unparseable(role, "it has too many objects that are broken off")
    rest.append(text[position:])
    return found, "".join(rest)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:80] + "...")
