"""The configuration layer of `RINGFENCE_*` variables, and references to variables in texts.

`RINGFENCE_SANDBOX__MEMORY=1g` sets `sandbox.memory`. Scalars are written unquoted (`null` or `none` for none), lists
and mappings as JSON. An empty variable counts as unset; a variable that matches no key is an error. In a text,
`${VAR}` and `${VAR:-x}` are expanded; `${secret:NAME}` stays a reference.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.fields import Field, all_fields
from ringfence.config.layer import Layer, named_layer
from ringfence.config.names import nearest
from ringfence.errors import ConfigurationError

PREFIX = "RINGFENCE_"

RESERVED: Mapping[str, str] = {
    "RINGFENCE_STATE_DIR": "Directory of runs, keys and checkpoints, instead of the XDG state directory.",
    "RINGFENCE_HOST": "1: run on the host without a fence, as `sandbox.backend: host` does.",
    "RINGFENCE_MODEL": "The same as RINGFENCE_RUN__MODEL.",
    "RINGFENCE_MCP_TOKEN": "The token of `ringfence mcp --http`, instead of a file of tokens.",
    "RINGFENCE_TOKEN": "The access token for `--server URL`, instead of the file `token` beside your own file.",
}
"""Variables that are not keys of the configuration, and their meaning."""

FOREIGN: Mapping[str, str] = {"AGENT_LOOP_HOST": "1: the same as RINGFENCE_HOST=1."}
"""Variables without the prefix that are read, too."""

_YES, _NO = frozenset({"1", "true", "yes"}), frozenset({"0", "false", "no"})


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Return the layer of the environment.

    Raises:
        ConfigurationError: A `RINGFENCE_` variable is unknown, two of them contradict each other, or a value has the
            wrong form.
    """
    fields = all_fields()
    values: dict[KeyPath, tuple[str, Any]] = {}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in RESERVED and environ[name]:
            path, value = _read(name, environ[name], fields)
            values[path] = (name, value)
    for name in ("RINGFENCE_HOST", "AGENT_LOOP_HOST"):
        if environ.get(name) and _read_switch(name, environ[name]):
            _set(values, ("sandbox", "backend"), name, "host")
    if environ.get("RINGFENCE_MODEL"):
        _set(values, ("run", "model"), "RINGFENCE_MODEL", environ["RINGFENCE_MODEL"])
    return named_layer("environment", values)


def variable_name(key: str) -> str:
    """Return the name of the variable for a dotted key."""
    return PREFIX + key.upper().replace(".", "__")


def _set(values: dict[KeyPath, tuple[str, Any]], path: KeyPath, name: str, value: str) -> None:
    if path in values and values[path][1] != value:
        raise ConfigurationError(
            f"{values[path][0]}={values[path][1]!r} and {name}, which means {value!r}, contradict each other; "
            "unset one of them"
        )
    values[path] = (name, value)


def _read_switch(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ConfigurationError(f"{name}={value!r} is neither 1 nor 0; set it to 1, or unset it")
    return word in _YES


def _read(name: str, value: str, fields: Mapping[str, Field]) -> tuple[KeyPath, Any]:
    known = {variable_name(key): field for key, field in fields.items()}
    if name in known:
        return known[name].path, _value(name, value, known[name])
    for prefix, field in known.items():
        if field.key == "sandbox.env" and name.startswith(f"{prefix}__") and name != f"{prefix}__":
            return (*field.path, name.removeprefix(f"{prefix}__")), value
    guess = nearest(
        name.removeprefix(PREFIX).upper(), [known.removeprefix(PREFIX) for known in (*known, *RESERVED)]
    )
    hint = f"did you mean {PREFIX}{guess}?" if guess else "unset it; `ringfence config schema` lists the keys"
    raise ConfigurationError(f"{name}={value!r} is not a variable of ringfence; {hint}")


def _value(name: str, value: str, field: Field) -> Any:
    if field.is_scalar:
        return None if field.nullable and value.lower() in {"null", "none"} else value
    shape, form = (
        (dict, '{"NAME": ...}') if field.is_mapping or field.is_section else (list, '["...", "..."]')
    )
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(f"{name}={value[:80]!r} is not JSON; write it like {form}") from exc
    if not isinstance(parsed, shape):
        raise ConfigurationError(f"{name}={value[:80]!r} has the wrong shape; write it like {form}")
    return parsed


_REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<inside>[^{}]{0,500})\}|(?=\{))")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SECRET = re.compile(r"secret:[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ANY = re.compile(r"(?<!\$)\$\{[^{}]*\}")
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@|[?&](?:ssl)?password=[^&\s]")


def has_reference(text: str) -> bool:
    """Whether a text contains a reference."""
    return _ANY.search(text) is not None


def has_variable(text: str) -> bool:
    """Whether a text contains a reference to a variable, which `expanded` replaces."""
    found = (match["inside"] for match in _REFERENCE.finditer(text))
    return any(inside is not None and _SECRET.fullmatch(inside) is None for inside in found)


def has_password(url: str) -> bool:
    """Whether an address contains a password, or a part of one, other than by reference."""
    return _PASSWORD.search(_ANY.sub("", url)) is not None


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with the values of its variables; references in these values are not expanded.

    Raises:
        ValueError: A variable is not set and has no default, or a reference is malformed.
    """

    def expand(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        inside = match["inside"]
        if inside is not None and _SECRET.fullmatch(inside):
            return match[0]
        variable = _VARIABLE.fullmatch(inside or "")
        if variable is None:
            raise ValueError(
                f"{text[match.start() : match.start() + 40]!r} is not a reference; write ${{NAME}}, ${{NAME:-default}} "
                "or ${secret:NAME}, and $$ for a dollar sign"
            )
        value = environ.get(variable["name"], variable["default"])
        if value is None:
            raise ValueError(
                f"the variable {variable['name']!r} is not set; set it, or write ${{{variable['name']}:-default}}"
            )
        return value

    return _REFERENCE.sub(expand, text)
