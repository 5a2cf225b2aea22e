"""The JSON Schema of a fleet's file, as editors use it."""

from typing import Any

import jsonschema
import pytest

from ringfence.fleet.config.schema import fleet_schema


@pytest.fixture(scope="module")
def check() -> Any:
    """Return a validator of a file's content."""
    return jsonschema.Draft202012Validator(fleet_schema())


_GOOD: dict[str, Any] = {
    "empty": {},
    "run": {"run": {"model": "claude-sonnet-5-5"}, "limits": {"turns": 3}},
    "crew": {
        "fleet": {"name": "c", "workers": 2},
        "include": [{"file": "sub.yaml", "overrides": {"agents": {"a": {"priority": 1}}}}],
        "agents": {
            "a": {
                "prompt": "x",
                "schedules": {"s": {"cron": "@daily"}},
                "triggers": {"t": {"type": "after", "agent": "b"}},
                "hooks": {"after_run": [{"type": "command", "command": "true"}]},
            },
            "b": None,
        },
    },
}
_BAD: dict[str, Any] = {
    "top": {"agent": {}},
    "agent": {"agents": {"a": {"promt": "x"}}},
    "name": {"agents": {"A b": {}}},
    "fleet": {"fleet": {"worker": 2}},
    "hook": {"agents": {"a": {"hooks": {"after": []}}}},
    "trigger": {"agents": {"a": {"triggers": {"t": {"type": "mail"}}}}},
}


@pytest.mark.parametrize("content", _GOOD.values(), ids=_GOOD)
def test_what_is_right_fits(check: Any, content: Any):
    """Files of single runs and files of fleets match the same schema."""
    assert [error.message for error in check.iter_errors(content)] == []


@pytest.mark.parametrize("content", _BAD.values(), ids=_BAD)
def test_what_is_wrong_does_not_fit(check: Any, content: Any):
    """Unknown keys and values do not match, so that an editor marks them."""
    assert not check.is_valid(content)


def test_each_key_is_explained():
    """Every key of a fleet has a description, which editors show."""
    definitions = fleet_schema()["$defs"]
    for name in ("FleetSettings", "AgentSettings", "ScheduleSettings", "RetrySettings"):
        said = definitions[name]["properties"].items()
        missing = [key for key, value in said if "description" not in value and "$ref" not in value]
        assert missing == [], name
