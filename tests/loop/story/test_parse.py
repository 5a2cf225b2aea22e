"""JSON, read with the place of each value."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.document import KeyPath, Place
from ringfence.errors import ConfigurationError
from ringfence.loop.story.parse import parse_json

FILE = Path("prd.json")

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=10,
)


def test_values_know_where_they_stand():
    """Keys and values have 1-based places, in characters, those in lists too."""
    value, document = parse_json('{"é🚀": 1,\r\n\t"b": [\n  "x", {}]}'.encode(), FILE)
    assert value == {"é🚀": 1, "b": ["x", {}]}
    assert document.place(("é🚀",)) == Place(1, 8)
    assert document.place(("b",), of_key=True) == Place(2, 2)
    assert document.place(("b", 0)) == Place(3, 3)
    assert document.place(("b", 1)) == Place(3, 8)


@given(_values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_it_reads_what_writers_of_json_write(value: Any, indent: Any, ascii_only: bool):
    """However it is indented and escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    parsed, document = parse_json(text.encode(), FILE)
    assert json.dumps(parsed) == json.dumps(value)
    for path, place in document.places.items():
        rest = "\n".join(text.split("\n")[place.line - 1 :])[place.column - 1 :]
        assert json.JSONDecoder().raw_decode(rest)[0] == _at(value, path)


def _at(value: Any, path: KeyPath) -> Any:
    for part in path:
        value = value[part]
    return value


@given(st.text(max_size=100) | st.text(alphabet='{}[]",:\\ \n\tu0d8e-.1truefalsn', max_size=60))
def test_it_takes_no_text_that_json_does_not_take(text: str):
    """What it reads is what Python's own reader reads; all else is refused with a place in the text."""
    refused: ConfigurationError | None = None
    try:
        value, _ = parse_json(text.encode("utf-8", "surrogatepass"), FILE)
    except ConfigurationError as exc:
        refused = exc
    if refused is None:
        assert json.dumps(value) == json.dumps(json.loads(text.removeprefix("\ufeff")))
    else:
        lines = text.removeprefix("\ufeff").split("\n")
        assert refused.line is not None
        assert refused.column is not None
        assert 1 <= refused.line <= len(lines)
        assert 1 <= refused.column <= len(lines[refused.line - 1]) + 1


@pytest.mark.parametrize("tail", ["", "\\"])
def test_a_string_without_an_end_is_refused(tail: str):
    """A megabyte of escaped quotes is read once and not once for each quote, which would take hours."""
    with pytest.raises(ConfigurationError, match="unterminated string"):
        parse_json(('["' + '\\"' * 500_000 + tail).encode(), FILE)


def test_stories_in_json_need_no_parser_of_yaml(tmp_path: Path):
    """Importing it takes longer than reading a file of stories."""
    file = tmp_path / "prd.json"
    file.write_text('{"stories": []}')
    code = (
        "import pathlib, sys; from ringfence.loop.story.parse import parse_file\n"
        f"parse_file(pathlib.Path({str(file)!r})); print('ruamel.yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
