"""Names of runtimes, models and backends, and the name that a misspelled word probably means. Imports no pydantic."""

import difflib
from collections.abc import Iterable
from typing import Literal

RuntimeName = Literal["api", "claude-cli", "claude-sdk", "codex-cli"]
_SHORT_NAMES = {"claude": "claude-cli", "codex": "codex-cli"}
RUNTIME_NAMES = ("api", "claude", "claude-sdk", "codex", *_SHORT_NAMES.values())
"""All names that are accepted, the preferred ones first."""
BackendName = Literal["auto", "bubblewrap", "docker", "podman", "gvisor", "kubernetes", "host"]
"""`auto`, and the names of the backends of `sandbox.registry`."""
_SCRIPTED = "scripted"
PermissionMode = Literal["bypass", "accept_edits", "plan", "deny"]
"""`bypass`: whatever the fence allows. `accept_edits`: edits, but no commands. `plan`: it only reads and plans.
`deny`: only what `tools_allowed` names."""
SettingsSource = Literal["user", "project", "local"]
QuestionKind = Literal["host", "tool", "budget", "question"]
"""What a run may ask a person about: a refused host, a refused tool, a limit on tokens or cost, or a question of the
agent's own."""


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that `word` probably means, if there is one."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def full_runtime_name(name: object) -> object:
    """Return `claude-cli` for `claude` and `codex-cli` for `codex`; any other value as it is.

    Raises:
        ValueError: It is the name of no runtime.
    """
    if isinstance(name, str) and name not in RUNTIME_NAMES:
        near = nearest(name, RUNTIME_NAMES)
        known = ", ".join(RUNTIME_NAMES[:-1])
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"{name!r} is not one of {known} or {RUNTIME_NAMES[-1]}{hint}")
    return _SHORT_NAMES.get(name, name) if isinstance(name, str) else name


def check_model_name(name: str) -> str:
    """Return the name of a model, unless it is a misspelled `scripted:FILE`.

    Other names may contain a colon, as `qwen3:8b` of a gateway does.

    Raises:
        ValueError: It is misspelled.
    """
    scheme, colon, rest = name.partition(":")
    if colon and scheme != _SCRIPTED and nearest(scheme.lower(), [_SCRIPTED], cutoff=0.75):
        known = f"{_SCRIPTED}:"
        raise ValueError(
            f"{name!r} has the unknown scheme {scheme + colon!r}; the only known one is {known!r}, "
            f"did you mean {known + rest!r}?"
        )
    return name
