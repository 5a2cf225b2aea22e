"""Names of runtimes and models, and the values of runtimes' options."""

import difflib
from typing import Literal

RuntimeName = Literal["api", "claude-cli", "claude-sdk", "codex-cli"]
_SHORT_NAMES = {"claude": "claude-cli", "codex": "codex-cli"}
RUNTIME_NAMES = ("api", "claude", "claude-sdk", "codex", *_SHORT_NAMES.values())
"""All names that are accepted, the preferred ones first."""
_SCRIPTED = "scripted"
PermissionMode = Literal["bypass", "accept_edits", "plan", "deny"]
"""`bypass`: whatever the fence allows. `accept_edits`: edits, but no commands. `plan`: it only reads and plans.
`deny`: only what `tools_allowed` names."""
SettingsSource = Literal["user", "project", "local"]


def full_runtime_name(name: object) -> object:
    """Return `claude-cli` for `claude` and `codex-cli` for `codex`; any other value as it is.

    Raises:
        ValueError: It is the name of no runtime.
    """
    if isinstance(name, str) and name not in RUNTIME_NAMES:
        near = difflib.get_close_matches(name, RUNTIME_NAMES, n=1)
        known = ", ".join(RUNTIME_NAMES[:-1])
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name!r} is not one of {known} or {RUNTIME_NAMES[-1]}{hint}")
    return _SHORT_NAMES.get(name, name) if isinstance(name, str) else name


def check_model_name(name: str) -> str:
    """Return the name of a model, unless it is a misspelled `scripted:FILE`.

    Other names may contain a colon, as `qwen3:8b` of a gateway does.

    Raises:
        ValueError: It is misspelled.
    """
    scheme, colon, rest = name.partition(":")
    is_near = difflib.get_close_matches(scheme.lower(), [_SCRIPTED], cutoff=0.75)
    if colon and scheme != _SCRIPTED and is_near:
        known = f"{_SCRIPTED}:"
        raise ValueError(
            f"{name!r} has the unknown scheme {scheme + colon!r}; the only known one is {known!r}, "
            f"did you mean {known + rest!r}?"
        )
    return name
