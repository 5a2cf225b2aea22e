"""Prompt templates: placeholders, the marking of external values, and errors."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.errors import UsageError
from ringfence.fleet.prompt_template import LIMIT_BYTES, PromptTemplate

ISSUE = {"title": "red", "labels": [{"name": "bug"}], "number": 7, "some-key": None}


def test_names_of_ours_stand_in_the_text():
    """The owner's own values are inserted unmarked, and a prompt without external values has no preface."""
    text = PromptTemplate("Hello Ada, at noon: {{{{ {not} a }} placeholder").render({"payload": ISSUE})
    assert text == "Hello Ada, at noon: {{ {not} a }} placeholder"


def test_what_is_from_outside_is_marked():
    """An external value stands between two lines with one random word, which the preface explains first."""
    text = PromptTemplate("Mend {{payload.title}} ({{ payload.labels.0.name }}).").render({"payload": ISSUE})
    found = re.fullmatch(
        r"Text between a line '<data-from-outside (\w{32}) [^\n]+\n\n"
        r"Mend \n<data-from-outside \1 payload\.title>\nred\n</data-from-outside \1>\n \("
        r"\n<data-from-outside \1 payload\.labels\.0\.name>\nbug\n</data-from-outside \1>\n\)\.",
        text,
    )
    assert found is not None
    repeat_request = PromptTemplate("{{payload.title}}").render({"payload": ISSUE})
    assert found[1] not in repeat_request


@pytest.mark.parametrize(
    ("template", "title"),
    [
        ("{{ payload.title }}\n\n{{ payload.body }}", "red"),
        ("\n  Mend {{payload.title}} ({{ payload.labels.0.name }}) now \nlong", "Mend red (bug) now"),
        ("Mend {{ payload.nothing }}", "Mend {{ payload.nothing }}"),
        ("{{ payload.many }}", "a b"),
    ],
    ids=["issue", "words", "unknown", "lines"],
)
def test_a_title_is_the_first_line_with_its_values(template: str, title: str):
    """The title of a job is the first line of its prompt, with the trigger's values and without marks, on one line."""
    assert PromptTemplate(template).render_title({"payload": {**ISSUE, "many": "a\n b"}}) == title


def test_a_title_encodes_only_the_beginning_of_a_long_value():
    """However long a list from outside is, a title takes its first entries: the daemon serves others meanwhile."""
    encoded: list[int] = []

    class Entry:
        def __str__(self) -> str:
            encoded.append(1)
            return "red"

    title = PromptTemplate("{{payload.many}}").render_title({"payload": {"many": [Entry()] * 10_000}})
    assert title.startswith('[ "red", "red", ')
    assert len(encoded) < 200


def test_values_that_are_no_text_are_json():
    """Numbers, lists and mappings are inserted as JSON; an unpaired surrogate is replaced."""
    template = PromptTemplate("{{payload.number}} {{payload.labels}} {{payload.some-key}} {{payload.odd}}")
    text = template.render({"payload": {**ISSUE, "odd": "a\ud800"}})
    shown = re.findall(r"payload\.[\w-]+>\n(.*?)\n</data", text, re.DOTALL)
    assert shown == ["7", '[\n  {\n    "name": "bug"\n  }\n]', "null", "a?"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{{ payload.body }}",
            "asks for 'payload.body'; in 'payload' there is 'title', 'labels', 'number', 'some-key'",
        ),
        ("{{ nobody }}", "asks for 'nobody'; there is 'payload'"),
        ("{{ payload.labels.1 }}", "'payload.labels' is a list of 1, which has no such part"),
        ("{{ payload.title.upper }}", "'payload.title' is str, which has no such part"),
        ("{{ payload.title.__class__ }}", "which has no such part"),
    ],
)
def test_an_unknown_name_is_told_with_the_known_ones(template, message):
    """The error for an unknown name lists the known ones."""
    with pytest.raises(UsageError) as refused:
        PromptTemplate(template).render({"payload": ISSUE})
    assert message in str(refused.value)


def test_unknown_names_are_found_before_there_is_data():
    """A template can be checked against the names that a trigger will provide, before there is data."""
    template = PromptTemplate("{{ payload.x }} {{ agent.name }} {{ payload.y }}")
    assert template.names == ("payload.x", "agent.name", "payload.y")
    template.check(["payload", "agent"])
    with pytest.raises(UsageError, match=r"asks for 'payload.x'; there is 'agent', 'files'"):
        template.check(["agent", "files"])


@pytest.mark.parametrize(
    "text",
    [
        "{{ a b }}",
        "{{ 1 + 1 }}",
        "{{}}",
        "{{ a.}}",
        "{{ open",
        "{{ a() }}",
        "{{% x %}}",
        "{{ a\n}}",
        "{{ à }}",
    ],
)
def test_what_is_no_placeholder_is_refused_with_its_line(text):
    """Two braces that form no placeholder are refused with their line when the template is read."""
    with pytest.raises(UsageError, match="line 2 of the prompt"):
        PromptTemplate(f"first\n{text}")


def test_prompts_are_bounded():
    """Neither a long value, nor a short one many times, nor the template itself makes a prompt over the limit."""
    half = "x" * (LIMIT_BYTES // 2)
    assert len(PromptTemplate("{{v}}").render({"v": half})) > LIMIT_BYTES // 2
    for template, value in [
        ("{{v}}{{v}}", half),
        ("{{v}}", "ä" * (LIMIT_BYTES // 2 + 1)),
        ("{{v}}" * 10_000, half),
    ]:
        with pytest.raises(UsageError, match="more than 1048576 bytes"):
            PromptTemplate(template).render({"v": value})
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        PromptTemplate("x" * (LIMIT_BYTES + 1))


@settings(max_examples=examples(200))
@given(st.text(max_size=80), st.text("{} .ab\n", max_size=40))
def test_a_value_is_never_read_as_a_template(value, text):
    """Inserted values are not searched for placeholders, and any text is a template or refused."""
    try:
        template = PromptTemplate(text + " {{ value }}")
        template.check(["value"])
    except UsageError:
        template = PromptTemplate("{{ value }}")
    shown = (value + "{{ other }}").encode("utf-8", "replace").decode()
    assert shown in template.render({"value": value + "{{ other }}"})
