"""The rules that a preset stands for, read from the package's data when they are first wanted."""

from functools import cache
from importlib.resources import files
from typing import Any

from ringfence.config.egress import EgressRule


@cache
def preset_rules(name: str) -> tuple[EgressRule, ...]:
    """The rules of a preset, in order; none for those that are no list of hosts."""
    return tuple(EgressRule.model_validate(one) for one in _data().get(name, ()))


@cache
def _data() -> dict[str, Any]:
    from ruamel.yaml import YAML  # takes 80 ms, and few runs want it

    text = files("ringfence.egress.proxy").joinpath("presets.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))
