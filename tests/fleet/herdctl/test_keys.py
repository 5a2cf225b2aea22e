"""No key of a herdctl file, known or unknown, is dropped without a note."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fleet.herdctl.conftest import Outcome, outcome
from tests.fleet.herdctl.keys import AGENT, FLEET, Key, lay

from ringfence.errors import ConfigurationError
from ringfence.fleet.herdctl.agent import DEFAULTED
from ringfence.fleet.herdctl.importer import FLEET_KEYS

_LETTERS = "aZ09é \n\t:/.,-_$ {}[]#'\"~%\u202e"
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**12)
    | st.floats(allow_nan=False)
    | st.text(_LETTERS, max_size=12),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.text(_LETTERS, min_size=1, max_size=6), below, max_size=3)
    ),
    max_leaves=6,
)


def _name(key: Key) -> str:
    return f"{key.path}-{key.beside.get('hooks.on_error.0.type', '')}".rstrip("-")


def _beside(key: Key) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, value in key.beside.items():
        if path != key.path:
            lay(values, path, value)
    return values


@pytest.mark.parametrize("key", FLEET, ids=_name)
def test_no_key_of_a_fleet_is_dropped_in_silence(key: Key):
    """Each key changes the converted fleet or is named in a note."""
    values: dict[str, Any] = {}
    key.put(values)
    assert outcome(values, {}) != outcome(_beside(key), {})


@pytest.mark.parametrize("key", AGENT, ids=_name)
@pytest.mark.parametrize("place", ["agent", "overrides"])
def test_no_key_of_an_agent_is_dropped_in_silence(key: Key, place: str):
    """Each key, in an agent's file or in overrides, changes the converted agent or is named in a note."""
    values: dict[str, Any] = {}
    key.put(values)
    without = _beside(key)
    try:
        before = outcome({}, without)
    except ConfigurationError:
        before = outcome({}, {})
    assert outcome({}, values) != before
    if place == "overrides":
        top = key.path.partition(".")[0]
        assert outcome({"agents": [{"path": "a.yaml", "overrides": values}]}, {top: None}) != before


@pytest.mark.parametrize("key", [key for key in AGENT if key.path.partition(".")[0] in DEFAULTED], ids=_name)
def test_defaults_hold_for_agents(key: Key):
    """A key under `defaults` has the same result as in the agent's own file, where herdctl allows it."""
    values: dict[str, Any] = {}
    key.put(values)
    own, inherited = outcome({}, values), outcome({"defaults": values}, {})
    if not key.path.startswith(("working_directory", "plugins")):
        assert inherited.agents == own.agents
    assert inherited.named == own.named


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_whatever_keys_stand_together_none_is_dropped(data: st.DataObject):
    """In any combination of keys, removing one changes the fleet, or the key is named in a note."""
    values: dict[str, Any] = {}
    for key in data.draw(st.lists(st.sampled_from(AGENT), min_size=1, max_size=8)):
        key.put(values)
    path = data.draw(st.sampled_from(sorted(_leaves(values))))
    with_it, without = _tried(values), _tried(_without(values, path))
    named = with_it.named if isinstance(with_it, Outcome) else {}
    dotted = ".".join(path)
    assert with_it != without or any(f"{dotted}.".startswith(f"{key}.") for key in named)


def _leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, below in pairs:
        here = (*path, str(key))
        if isinstance(below, dict) or (isinstance(below, list) and isinstance(below[0], dict)):
            yield from _leaves(below, here)
        else:
            yield here


def _without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    copied = deepcopy(values)
    branch: Any = copied
    for part in path[:-1]:
        branch = branch[int(part)] if isinstance(branch, list) else branch[part]
    del branch[path[-1]]
    return copied


def _tried(agent: dict[str, Any]) -> Outcome | str:
    try:
        return outcome({}, agent)
    except ConfigurationError as exc:
        return exc.message


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(
        ["", "docker", "session", "hooks", "instances", "chat", "work_source", "work_source.labels"]
    ),
    st.text("abcdefghijklmnopqrstuvwxyz_", min_size=3, max_size=10),
    JUNK.filter(lambda value: value is not None),
)
def test_keys_that_nobody_knows_are_named(place: str, name: str, value: Any):
    """An unknown key is named by its path, at any level."""
    known = (
        {key.path.rpartition(".")[2] for key in AGENT}
        | set(DEFAULTED)
        | {"hooks", "schedules", "chat", "name"}
    )
    known |= {"after_run", "on_error", "labels", "auth", "discord", "slack"}
    if name in known:
        return
    path = f"{place}.{name}".lstrip(".")
    values: dict[str, Any] = {}
    lay(values, path, value)
    if place.startswith("work_source"):
        lay(values, "work_source.type", "github")
        lay(values, "work_source.repo", "o/r")
    assert any(key == path or key.startswith(f"{path}.") for key in outcome({}, values).named)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(AGENT), JUNK)
def test_values_of_any_form_are_taken_or_refused_with_their_place(key: Key, junk: Any):
    """Any value of a known key is converted, or refused with file, line and column."""
    values: dict[str, Any] = {}
    key.put(values)
    lay(values, key.path, junk)
    assert _complaint({}, values) in (None, True)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from([*FLEET_KEYS, "defaults.docker", "agents.0.path", "fleets.0.overrides"]), JUNK)
def test_fleets_of_any_form_are_taken_or_refused_with_their_place(path: str, junk: Any):
    """Any value of a fleet's own key is converted, or refused with file, line and column."""
    values: dict[str, Any] = {}
    lay(values, path, junk)
    assert _complaint(values, {}) in (None, True)


def _complaint(fleet: dict[str, Any], agent: dict[str, Any]) -> bool | None:
    """Return None if the values are accepted, else whether the error names a place."""
    try:
        outcome(fleet, agent)
    except ConfigurationError as exc:
        return exc.file is not None and exc.line is not None and exc.column is not None
    return None
