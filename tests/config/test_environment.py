"""The layer of RINGFENCE_ variables."""

from typing import Any

import pytest

from ringfence.config.environment import RESERVED, environment_layer, variable_name
from ringfence.config.fields import all_fields
from ringfence.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("RINGFENCE_SANDBOX__MEMORY", "1g", {"sandbox": {"memory": "1g"}}),
        ("RINGFENCE_LIMITS__COST_USD", "none", {"limits": {"cost_usd": None}}),
        ("RINGFENCE_RUN__VERIFY", "make none", {"run": {"verify": "make none"}}),
        ("RINGFENCE_SANDBOX__SETUP", '["make deps"]', {"sandbox": {"setup": ["make deps"]}}),
        ("RINGFENCE_SANDBOX__ENV__Path", "x", {"sandbox": {"env": {"Path": "x"}}}),
        ("RINGFENCE_SANDBOX__ENV", '{"A": "b"}', {"sandbox": {"env": {"A": "b"}}}),
        (
            "RINGFENCE_SANDBOX__KUBERNETES",
            '{"namespace": "a"}',
            {"sandbox": {"kubernetes": {"namespace": "a"}}},
        ),
        ("RINGFENCE_UNSAFE", '["host_backend"]', {"unsafe": ["host_backend"]}),
        ("RINGFENCE_HOST", "1", {"sandbox": {"backend": "host"}}),
        ("AGENT_LOOP_HOST", "1", {"sandbox": {"backend": "host"}}),
        ("RINGFENCE_HOST", "0", {}),
        ("RINGFENCE_MODEL", "m", {"run": {"model": "m"}}),
        ("RINGFENCE_STATE_DIR", "/x", {}),
        ("RINGFENCE_SANDBOX__MEMORY", "", {}),
        ("RINGFENCELESS", "x", {}),
        ("PATH", "x", {}),
    ],
)
def test_variable_says_its_key(name: str, text: str, values: dict[str, Any]) -> None:
    """Names nest by two underscores; lists and mappings are JSON; empty means unset."""
    assert environment_layer({name: text}).values == values


def test_origin_is_the_variable() -> None:
    """A value knows which variable said it."""
    layer = environment_layer({"RINGFENCE_HOST": "1", "RINGFENCE_SANDBOX__ENV": '{"A": "b"}'})
    assert str(layer.origin_of(("sandbox", "backend"), False)) == "RINGFENCE_HOST"
    assert str(layer.origin_of(("sandbox", "env", "A"), False)) == "RINGFENCE_SANDBOX__ENV"


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("RINGFENCE_SANDBOX__MEMROY", "RINGFENCE_SANDBOX__MEMORY"),
        ("RINGFENCE_SANDBOX_MEMORY", "RINGFENCE_SANDBOX__MEMORY"),
        ("RINGFENCE_STATEDIR", "RINGFENCE_STATE_DIR"),
        ("RINGFENCE_MODLE", "RINGFENCE_MODEL"),
        ("RINGFENCE_sandbox__memory", "RINGFENCE_SANDBOX__MEMORY"),
        ("RINGFENCE_", "schema"),
        ("RINGFENCE_SANDBOX__ENV__", "RINGFENCE_SANDBOX__ENV"),
    ],
)
def test_unknown_variable_is_refused_with_the_nearest(name: str, guess: str) -> None:
    """A variable that means nothing was meant to mean something."""
    with pytest.raises(ConfigurationError, match="is not a variable of ringfence") as caught:
        environment_layer({name: "x"})
    assert guess in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"RINGFENCE_SANDBOX__SETUP": "make deps"},
        {"RINGFENCE_SANDBOX__SETUP": '{"a": 1}'},
        {"RINGFENCE_PRICES": "[" * 100_000},
        {"RINGFENCE_HOST": "maybe"},
        {"RINGFENCE_HOST": "1", "RINGFENCE_SANDBOX__BACKEND": "bubblewrap"},
        {"RINGFENCE_MODEL": "a", "RINGFENCE_RUN__MODEL": "b"},
    ],
    ids=lambda environ: ",".join(environ)[:60],
)
def test_contradictions_and_wrong_shapes_are_refused(environ: dict[str, str]) -> None:
    """Nothing is guessed."""
    with pytest.raises(ConfigurationError):
        environment_layer(environ)


def test_every_key_has_a_variable_of_its_own() -> None:
    """No two keys, and no reserved name, share a variable."""
    names = [variable_name(key) for key in all_fields()]
    assert len({*names, *RESERVED}) == len(names) + len(RESERVED)
