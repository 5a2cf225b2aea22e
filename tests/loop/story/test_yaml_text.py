"""YAML for people that loses nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.yaml import parse_value
from ringfence.loop.story.export import yaml_text

_texts = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.text("ab \n\t-:#'\"|>", max_size=12)
    | st.sampled_from(
        ["yes", "No", "null", "~", "1", "0x1", "1e5", ".inf", "2026-01-01", "<<", "- a", "a: b", "---"]
    )
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(_texts, below, max_size=4),
    max_leaves=12,
)


def _read(text: str) -> Any:
    return parse_value(text.encode(), Path("a.yaml"))[0]


@pytest.mark.slow
@given(st.lists(_values) | st.dictionaries(_texts, _values))
def test_every_value_comes_back_in_its_order(value: Any):
    """Whatever JSON can hold."""
    assert json.dumps(_read(yaml_text(value))) == json.dumps(value)


@pytest.mark.parametrize("length", [399, 401, 1100])
def test_a_long_key_comes_back(length: int):
    """Readers of YAML look for a colon not far."""
    value = {"k" * length: {"é" * length: ["x"]}}
    assert _read(yaml_text(value)) == value


def test_text_of_several_lines_stands_as_it_is():
    """People read and edit it."""
    value = {
        "stories": [{"id": "S1", "description": "One.\n\n  two: 2\n", "files": ["a.py"], "passes": False}]
    }
    assert yaml_text(value) == (
        "stories:\n"
        "  - id: S1\n"
        "    description: |\n"
        "      One.\n"
        "\n"
        "        two: 2\n"
        "    files:\n"
        "      - a.py\n"
        "    passes: false\n"
    )
