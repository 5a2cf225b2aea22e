"""Schemas that agents are held to, and exactly one answer out of what an agent said, or none."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ringfence.errors import Unparseable
from ringfence.loop.role import JUDGE, PLANNER, REVIEWER, ROLES, Verdict


def verdict(overall: str = "pass", *verdicts: str) -> dict[str, object]:
    """A judge's answer, by the book."""
    criteria = [
        {"criterion": number, "verdict": each, "evidence": [{"test": "t"}], "reason": "seen"}
        for number, each in enumerate(verdicts or ("met",), start=1)
    ]
    return {"criteria": criteria, "overall": overall, "feedback": "" if overall == "pass" else "mend it"}


PASS = json.dumps(verdict())
REJECT = json.dumps(verdict("reject", "not_met"))


@pytest.mark.parametrize(
    "text",
    [
        PASS,
        f"\n\n{json.dumps(verdict(), indent=2)}\n",
        f"I looked at all of it.\n\n```json\n{PASS}\n```\n",
        f"The function `f() {{ return 1; }}` is right, and so is {{}}.\n{PASS}",
        f"{PASS}\nThat is to say:\n```\n{PASS}\n```",
        f'The object {{"stories": 1}} is not mine. {PASS} Done.',
    ],
    ids=["whole", "indented", "fenced", "after code", "twice the same", "beside others"],
)
def test_the_one_answer_is_found(text):
    """Whole, in a fenced block or in running text: if there is one answer, it is that."""
    assert JUDGE.read(text) == Verdict.model_validate(verdict())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no text"),
        ("The attempt passes.", "no answer"),
        ("{}", "no answer"),
        (f"```json\n{PASS}\n```\nis what the file says. My verdict:\n{REJECT}", "they differ"),
        (f"```json\n{PASS}\n```\nis what the file says. My verdict:\n{REJECT[:-30]}", "broken off"),
        (f'{{"overall": "reject", oops, "inner": {PASS}}}', "broken off"),
        (f'{{"overall": "reject"}} {PASS}', "criteria"),
        ('{"overall": "reject", ' + PASS[1:], "twice"),
        (PASS.replace('"met"', '"fulfilled"'), "verdict"),
        (PASS[:-1] + ', "more": 1}', "more"),
        (PASS.replace('"criterion": 1', '"criterion": true'), "criterion"),
        (PASS.replace('"criterion": 1', '"criterion": NaN'), "NaN"),
        (PASS.replace('"criterion": 1', '"criterion": ' + "9" * 5000), "damaged"),
        ('{"overall":' * 5000, ""),
        ('{"overall":[' * 5000, ""),
        ("{" * 1_000_000 + PASS, ""),
        (" " * (1 << 21) + PASS, "characters"),
        (json.dumps({"result": verdict()}), "no answer"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_is_not_exactly_one_answer_is_none(text, why):
    """Two that differ, a damaged one, one of another form, or none: nothing is guessed, and the reason is told."""
    with pytest.raises(Unparseable) as caught:
        JUDGE.read(text)
    assert why in caught.value.why
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_what_a_runtime_holds_to_the_schema_counts_alone():
    """A structured answer is the answer, whatever stands in the text; a wrong one is not replaced by the text."""
    assert JUDGE.read(REJECT, verdict()) == Verdict.model_validate(verdict())
    with pytest.raises(Unparseable):
        JUDGE.read(PASS, {"overall": "pass"})
    with pytest.raises(Unparseable):
        JUDGE.read(PASS, ["pass"])


def test_each_question_is_answered_once():
    """A review lacks no question and answers none twice."""
    ids = ["criteria_tested", "real_implementation", "truthful_tests", "intent_met"]
    questions = [{"id": each, "answer": True, "evidence": "a.py:1"} for each in ids]
    found = REVIEWER.read(json.dumps({"questions": questions}))
    assert found.model_dump() == {"questions": questions}
    for wrong in (questions[:3], [*questions[:3], questions[0]]):
        with pytest.raises(Unparseable, match="each of the four questions"):
            REVIEWER.read(json.dumps({"questions": wrong}))


@pytest.mark.parametrize("role", ["implementor", "test_writer"])
def test_who_works_need_not_answer(role: Literal["implementor", "test_writer"]):
    """The work speaks; an answer is for asking a person. Objects in the text are not taken for one."""
    assert ROLES[role].read('I return {"status": status} now, and {"a": NaN}.').status == "done"
    asked = {"status": "blocked", "summary": "", "question": "Which of the two?"}
    found = ROLES[role].read(f"I cannot go on.\n{json.dumps(asked)}")
    assert (found.status, found.question) == ("blocked", "Which of the two?")
    with pytest.raises(Unparseable, match="asked if"):
        ROLES[role].read(json.dumps({**asked, "question": None}))


def test_a_plan_has_stories_or_a_question():
    """A planner that drafts nothing says what it must know."""
    story = {"id": "S1", "title": "t", "description": "d", "acceptance_criteria": ["c"], "priority": 1}
    story |= {"depends_on": [], "files": [], "check": None}
    plan = {"title": "t", "description": "", "context": [], "stories": [story], "blocked": None}
    assert PLANNER.read(json.dumps(plan)).model_dump() == plan
    with pytest.raises(Unparseable, match="neither stories nor a question"):
        PLANNER.read(json.dumps({**plan, "stories": []}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["overall", "criteria", "feedback", "status", "stories", "a"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [PASS, REJECT, PASS[:40], '"overall":', "{", "}", "[", '"', "```json\n", "\\", "\ud800", "\0"]
)


@given(
    st.sampled_from(list(ROLES)),
    st.lists(PIECES | st.text(max_size=10), max_size=8).map("".join),
    st.none() | JSON,
)
def test_nothing_but_an_answer_or_a_refusal_comes_out(role, text, structured):
    """Whatever an agent says, there is an answer of its role's type, or `Unparseable`; nothing else happens."""
    why = ""
    try:
        answer = ROLES[role].read(text, structured)
    except Unparseable as refused:
        why = str(refused)
    if why:
        assert why.startswith(f"the {role}'s answer cannot be used: ")
        assert why.isprintable()
    else:
        assert type(answer).model_validate(answer.model_dump()) == answer


@given(st.text(max_size=50), st.text(max_size=50), st.sampled_from([(PASS, REJECT), (REJECT, PASS)]))
def test_two_different_verdicts_never_pass(before, between, order):
    """A verdict that is quoted beside another is never taken for it, in whatever order and among whatever words."""
    first, second = order
    with pytest.raises(Unparseable):
        JUDGE.read(f"{before}{first}{between}{second}")


KNOWN = {
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "anyOf",
    "$ref",
    "description",
    "additionalProperties",
    "$defs",
}


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it."""
    yield schema
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", []),
    ]
    for each in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schemas(each)


@pytest.mark.parametrize("role", ROLES)
def test_schemas_are_strict(role):
    """Every object requires all its properties and allows no other, and no word is used that strict modes refuse."""
    schema = ROLES[role].schema
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    for each in schemas(schema):
        assert set(each) <= KNOWN
        assert "$ref" not in each or set(each) == {"$ref"}
        if each.get("type") == "object":
            assert each["additionalProperties"] is False
            assert each["required"] == list(each["properties"])


def test_a_verdict_by_the_schema_is_one():
    """What the schema lets through has the form that is read, and what lacks a property does not get through."""
    validator = Draft202012Validator(JUDGE.schema)
    assert validator.is_valid(verdict())
    assert not validator.is_valid({**verdict(), "more": 1})
    assert not validator.is_valid({"overall": "pass", "criteria": []})
    assert json.loads(json.dumps(JUDGE.schema)) == JUDGE.schema
