"""From the name of a model to something that answers."""

from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from ringfence.errors import AuthenticationFailed, UsageError
from ringfence.model.prices import Price

_SCRIPTED = "scripted:"
_SCRIPTED_NAME = "scripted"


def needs_credential(name: str) -> bool:
    """Whether a model of this name needs a credential."""
    return not name.startswith(_SCRIPTED)


def missing_credential(name: str) -> AuthenticationFailed:
    """The error for a model that needs a credential, and there is none."""
    return AuthenticationFailed(
        f"no credential for the model {name!r}; set ANTHROPIC_API_KEY (a key), ANTHROPIC_AUTH_TOKEN "
        "(a gateway's token) or CLAUDE_CODE_OAUTH_TOKEN (from `claude setup-token`)"
    )


def script_of(name: str) -> Path:
    """The file that `scripted:FILE` names."""
    return Path(name.removeprefix(_SCRIPTED))


def check_name(name: str) -> None:
    """See that a model is named.

    Raises:
        UsageError: None is.
    """
    if not name or name == _SCRIPTED:
        raise UsageError(f"{name!r} is not a model; name one, like claude-sonnet-5-5 or scripted:FILE")


async def known_model(name: str) -> tuple[str, Mapping[str, Price]]:
    """What the requests to a model will name, and the prices that come with it; without opening it.

    Raises:
        ConfigurationError: The script cannot be read.
    """
    return await anyio.to_thread.run_sync(read_model, name) if not needs_credential(name) else (name, {})


def read_model(name: str) -> tuple[str, Mapping[str, Price]]:
    """As `known_model`; reads the script at once."""
    if needs_credential(name):
        return name, {}
    from ringfence.model.scripted import load_script

    script = load_script(script_of(name))
    return _SCRIPTED_NAME, {_SCRIPTED_NAME: script.price} if script.price is not None else {}
