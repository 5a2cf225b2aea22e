"""Reading YAML that a stranger wrote."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import slow_after

from ringfence.config.document import FILE_LIMIT_BYTES, Place
from ringfence.config.yaml import parse_document, read_document
from ringfence.errors import ConfigurationError

FILE = Path("ringfence.yaml")


def test_values_know_where_they_stand() -> None:
    """Keys and values have 1-based places, those in lists too."""
    document = parse_document(b"sandbox:\n  setup: [a, b]\n  pids: 9\n", FILE)
    assert document.values == {"sandbox": {"setup": ["a", "b"], "pids": 9}}
    assert document.place(("sandbox", "pids")) == Place(3, 9)
    assert document.place(("sandbox", "pids"), of_key=True) == Place(3, 3)
    assert document.place(("sandbox", "setup", 1)) == Place(2, 14)
    assert document.place(("sandbox", "pids", "deeper")) == Place(3, 9)


def test_scalars_are_read_as_yaml_1_2() -> None:
    """`yes` is a word, dates stay text, numbers and null are what they look like."""
    text = b"a: yes\nb: 0o17\nc: 1.5\nd: ~\ne: true\nf: 2026-01-01\ng: '5'\nh: 010\n"
    values = parse_document(text, FILE).values
    assert values == {
        "a": "yes",
        "b": 15,
        "c": 1.5,
        "d": None,
        "e": True,
        "f": "2026-01-01",
        "g": "5",
        "h": 10,
    }


@pytest.mark.parametrize("text", [b"", b"# only a comment\n", b"---\n", b"\xef\xbb\xbf", b"~\n"])
def test_an_empty_document_is_an_empty_mapping(text: bytes) -> None:
    """A file with nothing in it says nothing."""
    assert parse_document(text, FILE).values == {}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        pytest.param(b"a: 1\nb: 2\na: 3\n", 3, 1, "'a' occurs twice", id="duplicate"),
        pytest.param(b"a: {b: 1, b: 2}\n", 1, 11, "'b' occurs twice", id="duplicate in flow"),
        pytest.param(b"a: &x 1\n", 1, 4, "anchors", id="anchor"),
        pytest.param(b"a: *x\n", 1, 4, "aliases", id="alias"),
        pytest.param(b"<<: {a: 1}\n", 1, 1, "merge keys", id="merge key"),
        pytest.param(b"a: !!python/object:os.system x\n", 1, 4, "tags", id="tag"),
        pytest.param(b"%TAG ! tag:x,1:\n---\na: !y z\n", 3, 4, "tags", id="tag by directive"),
        pytest.param(b"a: [\n", None, None, "not YAML", id="open list"),
        pytest.param(b"a:\n\t b: 1\n", 2, 1, "not YAML", id="tab"),
        pytest.param(b"- a\n", 1, 1, "mapping of sections", id="list"),
        pytest.param(b"word\n", 1, 1, "mapping of sections", id="scalar"),
        pytest.param(b"a: 1\n---\nb: 2\n", 2, 1, "second document", id="two documents"),
        pytest.param(b"? [a]\n: 1\n", 1, 3, "a key must be", id="list as key"),
        pytest.param(b"a: 1\nb: \xff\n", 2, 4, "not UTF-8", id="latin-1"),
        pytest.param(b"a: 1\nbc\x00: 2\n", 2, 3, "is not allowed in YAML", id="nul"),
        pytest.param(b'a: "\\ud800"\n', 1, 4, "surrogate", id="surrogate"),
        pytest.param(b"a: " + b"9" * 5000, 1, 4, "cannot be read as a number", id="huge number"),
        pytest.param(b"a: 0x_\n", 1, 4, "cannot be read as a number", id="no digits"),
        pytest.param(b"{a: " * 30, 1, 62, "deeper than 16", id="deep"),
        pytest.param(b"a: [" + b"x," * 20000 + b"]", 1, None, "more than 10000", id="wide"),
    ],
)
def test_bad_yaml_is_blamed_at_its_place(
    text: bytes, line: int | None, column: int | None, words: str
) -> None:
    """Each complaint says what and where."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        parse_document(text, FILE)
    assert str(caught.value).startswith("ringfence.yaml:")
    if line is not None:
        assert caught.value.line == line
    if column is not None:
        assert caught.value.column == column


@pytest.mark.parametrize(
    "bomb", slow_after(1, [b"[" * 60_000, b"{a: " * 15_000, b"- " * 30_000, b"[[{a:" * 12_000])
)
@pytest.mark.timeout(10)
def test_nesting_bombs_are_refused_before_they_cost_anything(bomb: bytes) -> None:
    """Sixty thousand brackets kept the parser busy for two minutes when it was let run to the end."""
    with pytest.raises(ConfigurationError):
        parse_document(bomb, FILE)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link could show any of the user's files in an error message."""
    (tmp_path / "secret").write_text("a: 1\n")
    (tmp_path / "ringfence.yaml").symlink_to("secret")
    with pytest.raises(ConfigurationError, match="symbolic link"):
        read_document(tmp_path / "ringfence.yaml")


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    """A pipe that nobody writes would be waited for without end."""
    os.mkfifo(tmp_path / "ringfence.yaml")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_document(tmp_path / "ringfence.yaml")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory of that name is a clear error."""
    (tmp_path / "ringfence.yaml").mkdir()
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_document(tmp_path / "ringfence.yaml")


def test_a_big_file_is_refused(tmp_path: Path) -> None:
    """No more than the limit is read."""
    (tmp_path / "ringfence.yaml").write_bytes(b"#" * (FILE_LIMIT_BYTES + 1))
    with pytest.raises(ConfigurationError, match="larger than"):
        read_document(tmp_path / "ringfence.yaml")


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    """The system's reason is told."""
    with pytest.raises(ConfigurationError, match="No such file"):
        read_document(tmp_path / "ringfence.yaml")


@given(st.text(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t0.", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but ConfigurationError comes out of the parser."""
    with suppress(ConfigurationError):
        assert isinstance(parse_document(text.encode("utf-8", "surrogatepass"), FILE).values, dict)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab :#-é\n'\"", max_size=8)
)
_trees = st.dictionaries(
    st.text("abc_1", min_size=1, max_size=5),
    st.recursive(
        _scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


@given(_trees)
def test_json_is_read_as_json(tree: dict[str, Any]) -> None:
    """YAML holds JSON: what a JSON writer writes is read back."""
    text = json.dumps(tree, ensure_ascii=False)
    assert parse_document(text.encode(), FILE).values == tree
