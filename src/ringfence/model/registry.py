"""The names of models: which need a credential, and which name a script."""

from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.model.prices import Price

_SCRIPTED = "scripted:"
_SCRIPTED_NAME = "scripted"


def needs_credential(name: str) -> bool:
    """Return whether a model of this name needs a credential."""
    return not name.startswith(_SCRIPTED)


def script_of(name: str) -> Path:
    """Return the file that `scripted:FILE` names."""
    return Path(name.removeprefix(_SCRIPTED))


def check_name(name: str) -> None:
    """Check that a name is that of a model.

    Raises:
        UsageError: It is empty, or names no script.
    """
    if not name or name == _SCRIPTED:
        raise UsageError(f"{name!r} is not a model; name one, such as claude-sonnet-5-5 or scripted:FILE")


async def known_model(name: str) -> tuple[str, Mapping[str, Price]]:
    """Return the name of a model in requests, and the prices that its script gives, without blocking the event loop.

    Raises:
        ConfigurationError: The script cannot be read.
    """
    return await anyio.to_thread.run_sync(read_model, name) if not needs_credential(name) else (name, {})


def read_model(name: str) -> tuple[str, Mapping[str, Price]]:
    """Return the name of a model in requests, and the prices that its script gives.

    Raises:
        ConfigurationError: The script cannot be read.
    """
    if needs_credential(name):
        return name, {}
    from ringfence.model.scripted import load_script

    script = load_script(script_of(name))
    return _SCRIPTED_NAME, {_SCRIPTED_NAME: script.price} if script.price is not None else {}
