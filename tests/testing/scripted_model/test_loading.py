from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import ConfigurationError
from ringfence.testing.scripted_model import load_script, parse_script

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "scripted-model.md"

WRONG = {
    "an unknown key": (
        "turns:\n  - txt: x",
        "s.yaml:2:5: turns.0.txt: no such key; a script has turns",
    ),
    "an unknown key in a part": (
        "turns:\n  - text: x\n    drop: {after: 2}",
        "s.yaml:3:12: turns.0.drop.after",
    ),
    "text that is a number": (
        "turns:\n  - text: 12",
        "s.yaml:2:11: turns.0.text: input should be a valid string",
    ),
    "a turn that says nothing": ("turns:\n  - {}", "s.yaml:2:5: turns.0: a turn needs a reply"),
    "a fault without a reply": ("turns: [{malformed: {}}]", "s.yaml:1:9: turns.0: a turn needs a reply"),
    "two places of a drop": (
        "turns: [{text: x, drop: {after_events: 1, after_bytes: 1}}]",
        "s.yaml:1:25: turns.0.drop: give after_events or after_bytes",
    ),
    "content and text": (
        "turns: [{text: x, content: []}]",
        "turns.0: give content, or thinking, text and tools",
    ),
    "a signature alone": ("turns: [{text: x, signature: y}]", "turns.0: signature needs thinking"),
    "a status that is none": (
        "turns: [{error: {status: 200}}]",
        "turns.0.error.status: input should be greater",
    ),
    "no turns": ("turns: []", "s.yaml:1:8: turns: "),
    "a list at the top": ("- text: x", "s.yaml:1:1: a script begins with 'turns:'"),
    "our own keys": ("lines: [1]\nturns: [{text: x}]", "s.yaml:1:1: lines: no such key"),
    "broken YAML": ("turns: [", "s.yaml:1:9: this is not YAML"),
    "a price below zero": (
        "turns: [{text: x}]\nprice: {input: -1, output: 1}",
        "s.yaml:2:8: price: -1.0 is not",
    ),
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_reported_with_its_place(text: str, complaint: str):
    """File, line, column, what is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        parse_script(text, path=Path("s.yaml"))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"text": "a"}\n\n{"txt": "b"}', "s.jsonl:3:1: turns.1.txt: no such key"),
        ('{"text": "a"}\n{"text": ', "s.jsonl:2:10: not JSON"),
        ('{"text": "\\ud800"}', "s.jsonl:1:1: the turn cannot be sent as JSON"),
        ('{"tools": [{"name": "x", "input": {"a": NaN}}]}', "s.jsonl:1:1: the turn cannot be sent as JSON"),
        ("[" * 100_000, "s.jsonl:1:1: nested too deep"),
        (b'{"text": "\xff"}', "s.jsonl:1:11: not UTF-8"),
        ("7", "s.jsonl:1:1: turns.0: input should be"),
        ("", "s.jsonl:1:1: turns: "),
    ],
)
def test_a_mistake_in_jsonl_is_reported_with_its_line(text: str | bytes, complaint: str):
    """Each line is a turn."""
    with pytest.raises(ConfigurationError) as caught:
        parse_script(text, path=Path("s.jsonl"))
    assert complaint in str(caught.value)


@given(st.binary(max_size=200), st.sampled_from(["s.yaml", "s.jsonl"]))
def test_no_file_raises_anything_but_a_configuration_error(content: bytes, name: str):
    """Whatever the file holds, the user gets one line."""
    try:
        parse_script(content, path=Path(name))
    except ConfigurationError as exc:
        assert "\n" not in exc.message  # noqa: PT017  # either outcome is right


def test_a_directory_is_no_script(tmp_path: Path):
    """The reason of the system is told."""
    with pytest.raises(ConfigurationError, match="cannot read the script: Is a directory"):
        load_script(tmp_path)


def test_the_example_of_the_documentation_is_a_script():
    """What users copy works."""
    example = REFERENCE.read_text().split("```yaml\n")[1].split("```")[0]
    script = parse_script(example)
    assert [len(turn.faults) for turn in script.turns] == [0, 2, 1]
    assert script.price is not None
    assert script.source.place(1) == "<script>:7"
