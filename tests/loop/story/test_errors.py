"""What is wrong with a file of stories is told before any agent starts, at its place."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import ConfigurationError
from ringfence.loop.story import read_plan

Written = Callable[..., Path]

GOOD = {"id": "S1", "title": "T", "description": "D", "acceptance_criteria": ["C"]}


def _told(file: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_plan(file)
    text = str(caught.value)
    assert text.startswith(f"{file}:")
    assert text.isprintable()
    return text.replace(f"{file}", "FILE")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"id": None}, "story 1: id is missing", id="no id"),
        pytest.param({"id": " "}, "story 1: id is missing", id="blank id"),
        pytest.param(
            {"id": "a\x1b[2J"}, "id: 'a\\x1b[2J' holds characters that do not show", id="escape in id"
        ),
        pytest.param({"id": "a\u202eb"}, "id: 'a\\u202eb' holds characters", id="direction in id"),
        pytest.param({"id": "x" * 201}, "id: it has 201 characters, at most 200 are allowed", id="long id"),
        pytest.param({"id": ["S1"]}, "id: a list is no text", id="list as id"),
        pytest.param({"title": None, "description": None}, "story 'S1': title is missing", id="no words"),
        pytest.param({"title": "", "description": " "}, "story 'S1': title is missing", id="blank words"),
        pytest.param({"title": True}, "story 'S1': title: True is no text", id="boolean as title"),
        pytest.param({"description": "a\0b"}, "description: it contains a NUL character", id="nul"),
        pytest.param({"description": "x" * 70_000}, "description: it has 70000 characters", id="long text"),
        pytest.param({"acceptance_criteria": None}, "acceptance_criteria is missing", id="no criteria"),
        pytest.param({"acceptance_criteria": []}, "acceptance_criteria: it is empty", id="empty criteria"),
        pytest.param({"acceptance_criteria": "C"}, "'C' is no list; write a list", id="criteria as text"),
        pytest.param(
            {"acceptance_criteria": ["C", " "]}, "acceptance_criteria[1]: it is blank", id="blank one"
        ),
        pytest.param(
            {"acceptance_criteria": [{}]}, "acceptance_criteria[0]: a mapping is no text", id="mapping"
        ),
        pytest.param({"id": None, "_id": "x"}, "story 1: id is missing", id="no id beside a foreign one"),
        pytest.param({"acceptance": ["X"]}, "acceptance: 'acceptance_criteria' is there as well", id="twice"),
        pytest.param(
            {"acceptance": ["C"], "criteria": ["X"]},
            "S1': criteria: 'acceptance_criteria' is there",
            id="thrice",
        ),
        pytest.param({"priority": 2**1024 - 1}, "is beyond 1e+12", id="priority beyond floats"),
        pytest.param({"priority": "high"}, "priority: 'high' is no number", id="word as priority"),
        pytest.param({"priority": True}, "priority: True is no number", id="boolean as priority"),
        pytest.param({"priority": 10**13}, "is beyond 1e+12", id="huge priority"),
        pytest.param({"passes": "no"}, "passes: 'no' is neither true nor false", id="word as flag"),
        pytest.param({"status": ["done"]}, "status: a list is no text", id="list as status"),
        pytest.param({"files": ["/etc/passwd"]}, "files[0]: '/etc/passwd' leads out", id="absolute file"),
        pytest.param({"files": ["a", "b/../../c"]}, "files[1]: 'b/../../c' leads out", id="file above"),
        pytest.param({"files": [".git/hooks/x"]}, "files[0]: '.git/hooks/x' is git's own", id="git's file"),
        pytest.param({"files": "a"}, "files: 'a' is no list", id="files as text"),
        pytest.param({"check": ["make"]}, "check: a list is no text", id="list as check"),
        pytest.param(
            {"check": 4}, "story 'S1': check: 4 is no text; write a shell command", id="number as check"
        ),
        pytest.param({"check": "make\x07"}, "check: it holds control characters", id="bell in check"),
        pytest.param({"depends_on": ["S9"]}, "depends_on[0]: there is no story 'S9'", id="unknown story"),
        pytest.param({"depends_on": ["s1"]}, "no story 's1'; did you mean 'S1'?", id="other case"),
        pytest.param({"depends_on": ["S1"]}, "'S1' -> 'S1' is a dependency cycle", id="itself"),
        pytest.param({"dependsOn": "S1"}, "dependsOn: 'S1' is no list", id="dependency as text"),
    ],
)
def test_a_wrong_field_is_told_with_its_story(written: Written, change: dict[str, Any], words: str):
    """Story and field are named, and what would be right."""
    assert words in _told(written({"stories": [{**GOOD, **change}]}))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param({}, "stories is missing; write the list of stories", id="empty"),
        pytest.param({"storys": []}, "storys: unknown key; did you mean 'stories'?", id="slip"),
        pytest.param(
            {"user_stories": []}, "user_stories: unknown key; did you mean 'stories'?", id="other spelling"
        ),
        pytest.param({"stories": {}}, "stories: a mapping is no list", id="mapping"),
        pytest.param({"stories": []}, "stories is empty", id="no stories"),
        pytest.param({"stories": [GOOD, "S2"]}, "stories[1]: 'S2' is no mapping", id="word as story"),
        pytest.param(
            {"stories": [GOOD], "waves": []}, "waves: 'stories' is there as well", id="two dialects"
        ),
        pytest.param({"waves": [{"stories": []}]}, "waves[0].stories is empty", id="empty wave"),
        pytest.param(
            {"waves": [{"id": "w"}]}, "waves[0].stories: None is no list", id="wave without stories"
        ),
        pytest.param({"waves": ["w"]}, "waves[0]: 'w' is no mapping", id="word as wave"),
        pytest.param([], "the list is empty", id="empty list"),
        pytest.param('"S1"', "stories are a mapping with 'stories', or a list of features", id="word"),
        pytest.param([{"steps": ["x"]}], "story 1: title is missing", id="feature without words"),
        pytest.param([{"description": "x"}], "steps is missing; write when", id="feature without steps"),
        pytest.param(
            {"stories": [GOOD], "context": [1.5]}, "context[0]: 1.5 is no text", id="number as context"
        ),
        pytest.param({"stories": [GOOD], "title": []}, "title: a list is no text", id="list as title"),
    ],
)
def test_a_wrong_shape_is_told(written: Written, document: Any, words: str):
    """A file that is in no dialect says what it lacks."""
    assert words in _told(written(document))


def test_a_place_is_the_line_and_column_of_the_value(written: Written):
    """The place leads to the very word; that of a missing field to its story."""
    text = json.dumps({"stories": [{**GOOD, "priority": "high"}, {"id": "S2", "title": "T"}]}, indent=1)
    lines = text.splitlines()
    wrong = next(number for number, line in enumerate(lines, 1) if '"high"' in line)
    second = next(number for number, line in enumerate(lines, 1) if line == "  {" and number > wrong)
    told = _told(written(text))
    column = lines[wrong - 1].index('"high"') + 1
    assert told.startswith(f"FILE:{wrong}:{column}: story 'S1': priority")
    assert f"FILE:{second}:3: story 'S2': acceptance_criteria is missing" in told


def test_a_place_in_yaml_is_as_exact(written: Written):
    """Both formats lead to the word."""
    told = _told(written("stories:\n- id: a\n  title: T\n  criteria: [c]\n  files: [/x]\n", "prd.yaml"))
    assert told.startswith("FILE:5:11: story 'a': files[0]: '/x' leads out")


def test_all_that_is_wrong_is_told_at_once(written: Written):
    """Nobody mends one word and runs it again for the next."""
    stories = [{**GOOD, "id": f"S{number}", "priority": "x"} for number in range(4)]
    stories[2]["depends_on"] = ["S7"]
    told = _told(written({"stories": stories}))
    assert [f"story 'S{number}': priority" in told for number in range(4)] == [True] * 4
    assert "story 'S2': depends_on[0]: there is no story 'S7'" in told


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("dependsON", "dependsOn"),
        ("depend_on", "depends_on"),
        ("file", "files"),
        ("Priority", "priority"),
        ("prioritty", "priority"),
        ("passed", "passes"),
        ("chek", "check"),
    ],
)
def test_a_slip_of_the_pen_is_no_unknown_field(written: Written, key: str, meant: str):
    """A dependency that is not heeded because of a letter would be worse than an error."""
    told = _told(written({"stories": [{**GOOD, key: ["x"]}]}))
    assert re.search(rf"story 'S1': {key}: unknown key; did you mean '{meant}'\?", told)


@pytest.mark.parametrize(
    "key", ["x-file", "_priority", "$check", "estimate", "owner", "labels", "typecheck_command"]
)
def test_a_field_of_somebody_else_is_no_slip(written: Written, key: str):
    """What is unlike any field, or marked as foreign, is kept and means nothing."""
    assert read_plan(written({"stories": [{**GOOD, key: ["x"]}]})).stories[0].extra == {key: ["x"]}


def test_a_misspelt_field_that_is_needed_is_told_once(written: Written):
    """The key is blamed, and what it was meant to be."""
    story = {"id": "S1", "title": "T", "acceptence_criteria": ["C"]}
    told = _told(written({"stories": [story]}))
    assert "story 'S1': acceptence_criteria: unknown key; did you mean 'acceptance_criteria'?" in told
    assert "; also" not in told


@pytest.mark.parametrize("other", ["S1", "s1", "\uff331"], ids=["same", "case", "wide"])
def test_ids_that_look_the_same_are_refused(written: Written, other: str):
    """Two stories may not share a branch on any file system, nor in a reader's eyes."""
    told = _told(written({"stories": [GOOD, {**GOOD, "id": other}]}))
    assert "id: there is a story 'S1' already" in told


def test_a_circle_is_drawn(written: Written):
    """Whoever has to cut it sees all of it."""
    stories = [{**GOOD, "id": name, "depends_on": [needs]} for name, needs in ("ab", "bc", "cb")]
    assert "story 'b': depends_on[0]: 'b' -> 'c' -> 'b' is a dependency cycle" in _told(
        written({"stories": stories})
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        pytest.param('{"a": 1\n "b": 2}', 2, 2, "expecting ',' delimiter", id="no comma"),
        pytest.param('{\n  // hint\n  "a": 1}', 2, 3, "JSON has no comments", id="comment"),
        pytest.param("{'a': 1}", 1, 2, "expecting property name", id="single quotes"),
        pytest.param('{"a" 1}', 1, 6, "expecting ':' delimiter", id="no colon"),
        pytest.param('{"a": }', 1, 7, "expecting value", id="no value"),
        pytest.param('{"a": [1, 2', 1, 12, "expecting ',' delimiter", id="cut off"),
        pytest.param('{"a": "b', 1, 7, "unterminated string", id="open text"),
        pytest.param('{"a": "b\nc"}', 1, 9, "invalid control character", id="line break in text"),
        pytest.param('{"a": 1, "a": 2}', 1, 10, "key 'a' is there twice, first in line 1", id="key twice"),
        pytest.param('{"a": NaN}', 1, 7, "is not finite", id="nan"),
        pytest.param('{"a": 1e999}', 1, 7, "is not finite", id="infinite"),
        pytest.param('{"a": ' + "9" * 5000 + "}", 1, 7, "is not finite", id="huge"),
        pytest.param('{"a": "\\ud800"}', 1, 7, "lone surrogate", id="surrogate"),
        pytest.param('{"\\udc00": 1}', 1, 1, "a key is no text that can be written", id="surrogate in key"),
        pytest.param("{} {}", 1, 4, "extra data", id="two"),
        pytest.param(" \n", 1, 1, "the file is empty; write a mapping with 'stories'", id="empty"),
        pytest.param('{"a":' * 30, 1, 81, "nested deeper than 16", id="deep mappings"),
        pytest.param("[" * 500_000, 1, 17, "nested deeper than 16", id="deep lists"),
        pytest.param("[" + "1," * 30_000 + "1]", 1, None, "more than 20000 values", id="wide"),
    ],
)
def test_bad_json_is_blamed_at_its_place(
    written: Written, text: str, line: int, column: int | None, words: str
):
    """The complaint says what JSON lacks there."""
    with pytest.raises(ConfigurationError, match=re.escape(words)) as caught:
        read_plan(written(text))
    assert (caught.value.line, caught.value.column) == (line, column or caught.value.column)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("stories: .inf\n", "inf is not finite", id="infinite"),
        pytest.param(f"stories: 0x{'f' * 9000}\n", "this number is too large", id="huge"),
        pytest.param("a: &x [1]\nstories: *x\n", "anchors and aliases are not read", id="alias"),
        pytest.param("stories:\n\t- a\n", "not YAML", id="tab"),
        pytest.param("", "the file is empty; write a mapping with 'stories'", id="empty"),
    ],
)
def test_bad_yaml_is_blamed_too(written: Written, text: str, words: str):
    """What YAML can say and stories cannot be is refused."""
    assert words in _told(written(text, "prd.yml"))


def test_a_file_beyond_the_bound_is_not_read(written: Written):
    """A megabyte is the most."""
    assert "larger than 1048576 bytes" in _told(written(" " * (1024 * 1024 + 1)))


def test_more_stories_than_anybody_writes_are_refused(written: Written):
    """A thousand is the most."""
    stories = [{**GOOD, "id": f"S{number}"} for number in range(1001)]
    assert "it has 1001 stories, at most 1000 are allowed" in _told(written({"stories": stories}))


def test_a_pipe_is_refused_without_waiting(tmp_path: Path):
    """A pipe that nobody writes would be waited for without end."""
    os.mkfifo(tmp_path / "prd.json")
    assert "not a regular file" in _told(tmp_path / "prd.json")


def test_what_a_file_says_reaches_no_terminal_as_it_is(written: Written):
    """Values and keys are shown by their codes, and no more than a line of them."""
    story = {**GOOD, "id": "S1", "\x1b]0;own\x07status": 1, "priority": "\x1b[2J\u202e" + "x" * 9000}
    told = _told(written({"stories": [story]}))
    assert "\\x1b[2J\\u202e" in told
    assert len(told) < 400


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            {"stories": [{"id": "S1", **{f"depends_upon_{n}": 1 for n in range(19_000)}}]}, id="keys"
        ),
        pytest.param(
            {
                "stories": [
                    {**GOOD, "id": f"S-{n}", "depends_on": [f"T-{n}-{m}" for m in range(9)]}
                    for n in range(900)
                ]
            },
            id="names",
        ),
    ],
)
def test_slips_are_not_looked_for_without_end(written: Written, document: dict[str, Any]):
    """To compare each word with each other took most of a minute."""
    assert len(_told(written(document))) < 3000
