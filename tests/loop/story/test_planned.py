"""What an agent planned is judged as what a stranger wrote."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ConfigurationError
from ringfence.loop.story import Plan, plan_from
from ringfence.loop.story.export import document_with_progress

STORY = {"id": "S1", "title": "T", "description": "D", "acceptance_criteria": ["C"]}
WHAT = "the planner's answer"


def _planned(document: Any) -> Plan:
    return plan_from(document, what=WHAT)


def test_an_answer_may_be_values_already():
    """Structured output is parsed by whoever asked for it; what is null is not there."""
    plan = _planned({"title": "P", "stories": [{**STORY, "check": None, "depends_on": [], "files": ["a"]}]})
    assert (plan.stories[0].check, plan.stories[0].files, plan.source) == (None, ("a",), None)


def test_what_is_blank_is_not_there():
    """Whoever fills in a form leaves fields empty that mean nothing."""
    blank = {"description": "", "check": " ", "question": "", "status": "", "files": [], "depends_on": []}
    plan = _planned(
        {"title": "", "name": "P", "description": "", "context": "", "stories": [{**STORY, **blank}]}
    )
    assert (plan.title, plan.context, plan.stories[0].check, plan.stories[0].question) == (
        "P",
        (),
        None,
        None,
    )


@pytest.mark.parametrize(
    "claim", [{"passes": True}, {"status": "done"}, {"skipped": True, "notes": "x", "status": "blocked"}]
)
@pytest.mark.parametrize("key", ["stories", "userStories", "waves"])
def test_a_planner_cannot_say_that_a_story_is_done(key: str, claim: dict[str, Any]):
    """Else it could end a loop with nothing built, and the export would say so, too."""
    stories: Any = [{**STORY, **claim}]
    plan = _planned({key: [{"stories": stories}] if key == "waves" else stories})
    assert (plan.stories[0].is_done, plan.stories[0].question, plan.notes) == (False, None, ())
    assert not set(claim) & set(json.dumps(document_with_progress(plan, {})).split('"'))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param({"stories": [{"id": "S1"}]}, "story 'S1': title is missing", id="fields"),
        pytest.param({"stories": [STORY] * 51}, "it has 51 stories, at most 50 are allowed", id="many"),
        pytest.param(
            {"stories": [{**STORY, "description": "x" * 300_000}]}, "more than 20000 values", id="text"
        ),
        pytest.param({"stories": [{**STORY, "x": [0] * 30_000}]}, "more than 20000 values", id="values"),
        pytest.param({"stories": [{**STORY, "x": "\ud800"}]}, "lone surrogate", id="surrogate"),
        pytest.param({"stories": [{**STORY, 5: 6}]}, "a key is no text", id="number as key"),
        pytest.param({"stories": [{**STORY, "x": float("nan")}]}, "nan is not finite", id="nan"),
        pytest.param({"stories": [{**STORY, "x": 10**400}]}, "too large", id="huge"),
        pytest.param({"stories": [{**STORY, "x": object()}]}, "unsupported type 'object'", id="object"),
        pytest.param(None, "stories are a mapping", id="none"),
    ],
)
def test_what_is_no_plan_is_refused_by_name(answer: Any, words: str):
    """The error says whose answer it is and what is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        _planned(answer)
    assert str(caught.value).startswith(WHAT)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_values_that_hold_themselves_are_refused():
    """A circle of values is no deeper than the bound."""
    circle: dict[str, Any] = {}
    circle["stories"] = [circle]
    with pytest.raises(ConfigurationError, match="nests deeper than 16"):
        _planned(circle)


_keys = st.sampled_from(
    [
        "stories",
        "userStories",
        "waves",
        "features",
        "id",
        "title",
        "description",
        "acceptance_criteria",
        "steps",
        "x",
    ]
) | st.sampled_from(
    [
        "depends_on",
        "priority",
        "passes",
        "status",
        "files",
        "check",
        "question",
        "context",
        "prompt",
        "test_command",
    ]
)
_answers = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["S1", "S2"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_keys, below, max_size=5),
    max_leaves=25,
)


@pytest.mark.slow
@given(_answers | st.dictionaries(_keys, _answers) | st.lists(st.dictionaries(_keys, _answers), max_size=3))
def test_any_answer_is_a_plan_or_refused(answer: Any):
    """Nothing but a plan and ConfigurationError comes out."""
    with suppress(ConfigurationError):
        plan = _planned(answer)
        assert all(story.id and not story.is_done for story in plan.stories)
        assert len(plan.ordered()) == len(plan.stories)
