"""What settings accept."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from ringfence.config.fields import all_fields
from ringfence.config.model import Settings
from ringfence.config.template import describe


def test_defaults_are_bounded() -> None:
    """A run nobody configured has an end in every respect but money, whose price may be unknown."""
    limits = Settings().limits
    assert (limits.turns, limits.tool_calls, limits.tokens, limits.wall_clock) == (60, 300, 4_000_000, 1800)
    assert limits.cost_usd is None


def test_every_key_is_explained() -> None:
    """The schema and the generated file tell what each key does."""
    describe()
    assert [key for key, field in all_fields().items() if not field.info.description] == []


@pytest.mark.parametrize(
    ("short", "full"), [("claude", "claude-cli"), ("codex", "codex-cli"), ("api", "api")]
)
def test_runtimes_have_short_names(short: str, full: str) -> None:
    """`claude` and `codex` stand for the agent CLIs; the record has the full name."""
    assert Settings.model_validate({"run": {"runtime": short}}).run.runtime == full


@pytest.mark.parametrize(
    ("section", "values"),
    [
        pytest.param("limits", {"turns": True}, id="true is no number"),
        pytest.param("limits", {"turns": 0}, id="no turns"),
        pytest.param("limits", {"turns": 1.5}, id="half a turn"),
        pytest.param("limits", {"turns": None}, id="no bound"),
        pytest.param("limits", {"cost_usd": float("nan")}, id="cost that is never reached"),
        pytest.param("limits", {"cost_usd": float("inf")}, id="endless cost"),
        pytest.param("limits", {"wall_clock": "soon"}, id="no duration"),
        pytest.param("sandbox", {"memory": "lots"}, id="no size"),
        pytest.param("sandbox", {"cpus": False}, id="false is no number"),
        pytest.param("sandbox", {"pids": 7}, id="too few processes for the guest"),
        pytest.param("sandbox", {"mode": "rw"}, id="unknown mode"),
        pytest.param("sandbox", {"backend": "../x"}, id="backend with a path"),
        pytest.param("sandbox", {"env": {"A=B": "c"}}, id="variable with ="),
        pytest.param("sandbox", {"env": {"A": "c\0"}}, id="variable with NUL"),
        pytest.param("sandbox", {"env": {"A": 1}}, id="variable that is a number"),
        pytest.param("sandbox", {"mounts": [{"source": "x", "target": "/x"}]}, id="relative source"),
        pytest.param("sandbox", {"mounts": [{"source": "/x/../y", "target": "/x"}]}, id="source with .."),
        pytest.param("sandbox", {"mounts": [{"source": "/x", "target": "/a/../x"}]}, id="target with .."),
        pytest.param("sandbox", {"mounts": [{"source": "/x"}]}, id="no target"),
        pytest.param("sandbox", {"protect": ["!.git"]}, id="pattern that unprotects"),
        pytest.param("sandbox", {"protect": ["../x"]}, id="pattern outside"),
        pytest.param("sandbox", {"protect": ["/etc"]}, id="absolute pattern"),
        pytest.param("sandbox", {"protect": ["*a*a*b"]}, id="pattern slow to match"),
        pytest.param("sandbox", {"protect": ["a" * 201]}, id="pattern too long"),
        pytest.param("sandbox", {"setup": "make"}, id="text for a list"),
        pytest.param("sandbox", {"kubernetes": {"namespace": "../kube-system"}}, id="no namespace"),
        pytest.param("sandbox", {"kubernetes": {"namespace": "a\n"}}, id="namespace of two lines"),
        pytest.param(
            "sandbox", {"kubernetes": {"claims": [{"name": "a", "target": "b"}]}}, id="relative claim"
        ),
        pytest.param("sandbox", {"kubernetes": {"claims": [{"name": "a"}]}}, id="claim mounted nowhere"),
        pytest.param(
            "sandbox", {"kubernetes": {"tolerations": [{"key": "a", "until": 5}]}}, id="unknown key"
        ),
        pytest.param("sandbox", {"kubernetes": {"start_timeout": 0}}, id="no time to start"),
        pytest.param("run", {"verify": ""}, id="empty check"),
        pytest.param("run", {"toolset": "root"}, id="unknown toolset"),
        pytest.param("prices", {"m": {"input": 1, "output": 1}}, id="price in part"),
        pytest.param("tools", {"python": ["os.system"]}, id="no function"),
        pytest.param("tools", {"mcp": [{"name": "a", "command": []}]}, id="empty command"),
        pytest.param(
            "tools", {"mcp": [{"name": "a", "command": ["x"]}, {"name": "a", "command": ["y"]}]}, id="twice"
        ),
        pytest.param("unsafe", ["everything"], id="unknown loosening"),
        pytest.param("labels", {f"k{number}": "" for number in range(33)}, id="too many labels"),
        pytest.param("labels", {"-team": "a"}, id="label key that begins with a dash"),
        pytest.param("labels", {"a" * 64: "a"}, id="label key too long"),
        pytest.param("labels", {"team": "a\nb"}, id="label of two lines"),
        pytest.param("labels", {"team": "a" * 257}, id="label too long"),
        pytest.param("sandbx", {}, id="unknown section"),
    ],
)
def test_what_makes_no_sense_is_refused(section: str, values: Any) -> None:
    """No such value reaches a run."""
    with pytest.raises(ValidationError):
        Settings.model_validate({section: values})


def test_settings_cannot_change() -> None:
    """What was validated is what runs."""
    with pytest.raises(ValidationError):
        Settings().limits.turns = 1_000_000  # type: ignore[misc]


def test_spec_arguments_hold_only_what_was_asked() -> None:
    """A limit that is a default does not count as asked for."""
    settings = Settings.model_validate({"sandbox": {"memory": "1g", "ttl": "1h"}})
    assert settings.sandbox.spec_arguments() == {"memory": 1024**3, "ttl_s": 3600.0}


def test_all_models_forbid_unknown_keys() -> None:
    """A mistyped key is never passed over."""

    def below(model: type[BaseModel]) -> list[type[BaseModel]]:
        return [model, *(found for kind in model.__subclasses__() for found in below(kind))]

    section = Settings.__mro__[1]
    assert all(
        model.model_config["extra"] == "forbid" and model.model_config["frozen"] for model in below(section)
    )
