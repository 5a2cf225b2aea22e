"""Fields of stories that have no meaning of their own."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringfence.loop.story import Story, details, read_plan
from ringfence.loop.story.model import DETAILS_CHARS


def _read(directory: Path, **more: Any) -> Story:
    file = directory / "prd.json"
    story = {"id": "S1", "title": "A", "acceptance_criteria": ["a"], **more}
    file.write_text(json.dumps({"stories": [story]}))
    return read_plan(file).stories[0]


def test_texts_are_told_and_nothing_else(tmp_path: Path):
    """Texts and lists of texts by their names; no numbers, no mappings, nothing that is somebody else's on purpose."""
    story = _read(
        tmp_path, colour=" blue ", hints=["use money.split", "no floats"], points=3, is_big=True, nested={"a": "b"},
        mixed=["a", 1], **{"x-tracker": "T-1", "_mine": "m", "$schema": "s"},
    )  # fmt: skip
    assert details(story) == "colour: blue\nhints:\n- use money.split\n- no floats"
    assert details(_read(tmp_path)) == ""


LONG = st.builds(str.__mul__, st.text(max_size=20), st.integers(0, 1000))


@given(st.dictionaries(LONG, LONG | st.lists(LONG, max_size=5), max_size=5))
def test_they_are_bounded_whatever_they_are(extra: dict[str, Any]):
    """No prompt gets longer by them than by their bound and a word about it."""
    assert len(details(Story("S1", "A", "", ("a",), 1, extra=extra))) <= DETAILS_CHARS + 100
