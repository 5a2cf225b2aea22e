"""Which layer wins, and who gets the blame."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config import Flag, load
from ringfence.config.fields import all_fields
from ringfence.config.layer import merge, named_layer
from ringfence.errors import ConfigurationError, UsageError

Write = Callable[[str], Path]


def test_nothing_said_is_all_default(project: Path) -> None:
    """Without files, variables and flags every origin is `default`."""
    effective = load(project, environ={})
    assert {str(origin) for origin in effective.origins.values()} == {"default"}
    assert set(effective.origins) == set(all_fields())


def test_stronger_layers_win(project: Path, project_file: Write, user_file: Write) -> None:
    """Flag > environment > project > user > default, key by key."""
    user = user_file("limits: {turns: 50, tool_calls: 50, tokens: 50, wall_clock: 50}\n")
    mine = project_file("limits:\n  turns: 40\n  tool_calls: 40\n  tokens: 40\n")
    effective = load(
        project,
        environ={"RINGFENCE_LIMITS__TURNS": "30", "RINGFENCE_LIMITS__TOOL_CALLS": "30"},
        flags=[Flag("limits.turns", "--max-turns", 20), Flag("limits.tokens", "--max-tokens", None)],
    )
    limits = effective.settings.limits
    assert (limits.turns, limits.tool_calls, limits.tokens, limits.wall_clock) == (20, 30, 40, 50)
    assert [str(effective.origins[f"limits.{key}"]) for key in type(limits).model_fields] == [
        "--max-turns",
        "RINGFENCE_LIMITS__TOOL_CALLS",
        f"{mine}:4:11",
        "default",
        f"{user}:1:61",
    ]


def test_protected_patterns_add_up(project: Path, project_file: Write, user_file: Write) -> None:
    """No layer can take away what another protects."""
    user_file("sandbox: {protect: [a]}\n")
    project_file("sandbox: {protect: [b]}\n")
    effective = load(project, environ={}, flags=[Flag("sandbox.protect", "--protect", ("c",))])
    assert effective.settings.sandbox.protect == ("a", "b", "c")


def test_environment_of_commands_merges_by_name(project: Path, user_file: Write) -> None:
    """Each variable of `sandbox.env` has an origin of its own."""
    user_file("sandbox: {env: {A: a, B: b}}\n")
    effective = load(project, environ={"RINGFENCE_SANDBOX__ENV__B": "c"})
    assert effective.settings.sandbox.env == {"A": "a", "B": "c"}
    assert str(effective.origins["sandbox.env.B"]) == "RINGFENCE_SANDBOX__ENV__B"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("sandbox:\n  memroy: 1g\n", "2:3", "did you mean 'memory'"),
        ("sandbx:\n  memory: 1g\n", "1:1", "did you mean 'sandbox'"),
        ("sandbox:\n  memory: lots\n", "2:11", "'lots' is not a size"),
        ("sandbox:\n  backend: bubblewarp\n", "2:12", "did you mean 'bubblewrap'"),
        ("sandbox:\n  memory: 1\n", "2:11", "1 is out of range: a sandbox needs at least 16m"),
        ("limits:\n  turns: true\n", "2:10", "not a number"),
        ("sandbox: 5\n", "1:10", "5 is not a mapping"),
        ("tools:\n  mcp:\n    docs: x\n", "3:5", "a mapping is not a list"),
        ("sandbox:\n  mounts:\n  - source: x\n    target: /x\n", "3:13", "not an absolute path"),
        ("sandbox:\n  mounts:\n  - source: /x\n", "3:5", "target is missing"),
        ("sandbox:\n  mounts:\n  - source: /x\n    target: /x\n    rw: true\n", "5:5", "no key 'rw'"),
        ("prices:\n  m: {input: 1}\n", "2:6", "output is missing"),
        ("sandbox:\n  env:\n    1X: a\n", "3:5", "not the name of a variable"),
        ("sandbox:\n  protect: [a, '!b']\n", "2:16", "relative to the workspace"),
        ("nothing:\n", "1:1", "no key 'nothing'"),
        ("sandbox:\n  backend: host\n", "2:12", r"without a sandbox .*unsafe: \[host_backend\]"),
    ],
)
def test_a_wrong_file_is_blamed_at_the_place(
    project: Path, user_file: Write, text: str, place: str, words: str
) -> None:
    """file:line:column of the key or value, what is wrong with it, and what would be right."""
    file = user_file(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        load(project, environ={})
    assert str(caught.value).startswith(f"{file}:{place}: ")


def test_all_complaints_are_told_at_once(project: Path, user_file: Write) -> None:
    """One call shows every mistake."""
    user_file("sandbox:\n  memory: lots\nlimits:\n  turns: no\n  tokens: -1\n")
    with pytest.raises(ConfigurationError) as caught:
        load(project, environ={})
    assert all(key in str(caught.value) for key in ("sandbox.memory", "limits.turns", "limits.tokens"))
    assert "\n" not in str(caught.value)


def test_a_wrong_variable_is_named(project: Path) -> None:
    """A variable is configuration."""
    with pytest.raises(ConfigurationError, match=r"^RINGFENCE_SANDBOX__MEMORY: 'lots' is not a size"):
        load(project, environ={"RINGFENCE_SANDBOX__MEMORY": "lots"})


def test_a_wrong_flag_is_wrong_usage(project: Path) -> None:
    """A flag is the command line."""
    with pytest.raises(UsageError, match=r"^--memory: 'lots' is not a size"):
        load(project, environ={}, flags=[Flag("sandbox.memory", "--memory", "lots")])


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("sandbox.memory", "1", "'1' is out of range: a sandbox needs at least 16m, .* such as 512m or 2g"),
        ("sandbox.memory", "1x", r"'1x' is not a size; write a number and a unit \(k, m, g or t\)"),
        (
            "sandbox.disk",
            "1",
            "'1' is out of range: workspace and home need room to grow by at least 1m, .* such as 512m",
        ),
        ("sandbox.disk", "-1m", "'-1m' is out of range: a size is from 1 byte to 8 EiB, such as 512m or 2g"),
        (
            "limits.wall_clock",
            "0",
            "'0' is out of range: a duration is more than 0 and at most 3660 days, such",
        ),
        ("limits.wall_clock", "-1", "'-1' is out of range: a duration is more than 0"),
        ("sandbox.cpus", 0.0, "0 is out of range: it must be greater than 0, such as 2$"),
        ("sandbox.pids", 1, "1 is out of range: it must be at least 8, such as 512$"),
        ("egress.allow", ["pypi"], "there is no preset 'pypi'"),
        ("sandbox.env", {"1X": "a"}, "1X: '1X' is not the name of a variable"),
    ],
)
def test_an_error_names_the_option_alone(project: Path, key: str, value: Any, text: str) -> None:
    """What the user typed, why it is wrong, the range and an example; the key of the file is not repeated."""
    with pytest.raises(UsageError, match=rf"^--option: {text}"):
        load(project, environ={}, flags=[Flag(key, "--option", value)])


def test_an_error_names_the_variable_and_the_entry(project: Path) -> None:
    """Of a list of mappings, the entry that is wrong."""
    value = '[{"source": "/x", "target": "y"}]'
    with pytest.raises(ConfigurationError, match=r"^RINGFENCE_SANDBOX__MOUNTS: 0\.target: 'y' is not an abs"):
        load(project, environ={"RINGFENCE_SANDBOX__MOUNTS": value})


def test_host_is_taken_by_name_only(project: Path, user_file: Write) -> None:
    """A flag or variable is a name; a file needs `unsafe` beside it."""
    assert load(project, environ={"RINGFENCE_HOST": "1"}).settings.sandbox.backend == "host"
    user_file("sandbox: {backend: host}\nunsafe: [host_backend]\n")
    effective = load(project, environ={})
    assert effective.settings.sandbox.backend == "host"
    assert [what for what, _ in effective.loosenings()] == [
        "commands run on this machine without a sandbox (backend 'host')"
    ]


def test_an_empty_section_says_nothing(project: Path, user_file: Write) -> None:
    """A section whose lines are all commented out is not a mistake."""
    user_file("sandbox:\n  # memory: 1g\nlimits:\nunsafe:\n")
    assert load(project, environ={}).settings.sandbox.memory == 2 * 1024**3


def test_a_file_of_somebody_else_is_refused(project: Path, user_file: Write) -> None:
    """A user file that others can write could loosen every fence."""
    user_file("sandbox: {memory: 1g}\n").chmod(0o666)
    with pytest.raises(ConfigurationError, match="other users can write"):
        load(project, environ={})


def test_a_linked_user_file_is_followed(project: Path, user_file: Write, tmp_path: Path) -> None:
    """Dotfile managers link to the real file."""
    file = user_file("")
    file.unlink()
    (tmp_path / "dotfile").write_text("limits: {turns: 7}\n")
    file.symlink_to(tmp_path / "dotfile")
    assert load(project, environ={}).settings.limits.turns == 7


_keys = st.sampled_from(["a", "b", "c"])
_trees: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(_keys, st.integers(0, 9) | st.just([]), max_size=3),
    lambda inner: st.dictionaries(_keys, inner | st.integers(0, 9), max_size=3),
    max_leaves=6,
)


def _flat(tree: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        found |= _flat(value, (*path, key)) if isinstance(value, dict) else {(*path, key): value}
    return found


@given(st.lists(_trees, max_size=4))
def test_every_leaf_comes_from_the_strongest_layer_that_says_it(trees: list[dict[str, Any]]) -> None:
    """A merged value is the last layer's that has one, and so is its origin."""
    layers = [
        named_layer("flag", {path: (f"{index}:{path}", value) for path, value in _flat(tree).items()})
        for index, tree in enumerate(trees)
    ]
    merged = merge(layers)
    for path, value in _flat(merged.values).items():
        said = [index for index, tree in enumerate(trees) if path in _flat(tree)]
        assert value == _flat(trees[said[-1]])[path]
        assert str(merged.origin(path)) == f"{said[-1]}:{path}"


@given(st.lists(_trees, min_size=1, max_size=4))
def test_the_strongest_layer_is_never_changed(trees: list[dict[str, Any]]) -> None:
    """Whatever the strongest layer says holds."""
    layers = [
        named_layer("flag", {path: ("x", value) for path, value in _flat(tree).items()}) for tree in trees
    ]
    merged = _flat(merge(layers).values)
    assert _flat(trees[-1]).items() <= merged.items() or [] in merged.values()
