"""From the name of a model to something that answers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path

import anyio.to_thread

from ringfence.errors import AuthenticationFailed, UsageError
from ringfence.frozen import frozen
from ringfence.model.anthropic import AnthropicModel, warm_up
from ringfence.model.base import Model
from ringfence.model.patience import Patience
from ringfence.model.price_table import Price
from ringfence.secret.credentials import Credential

_SCRIPTED = "scripted:"
_SCRIPTED_NAME = "scripted"


@frozen
class OpenedModel:
    """A model that is ready."""

    model: Model
    name: str
    """What to put into `ModelRequest.model`."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices that come with the model (a script may give one); overrides for `cost`."""


def needs_credential(name: str) -> bool:
    """Whether `open_model` needs a credential for this name."""
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


@asynccontextmanager
async def open_model(
    name: str,
    *,
    credential: Credential | None = None,
    base_url: str | None = None,
    patience: Patience | None = None,
) -> AsyncIterator[OpenedModel]:
    """Open the model called `name` while the context is open.

    Args:
        name: A model of the Messages API, or `scripted:FILE`: then a server that answers from the script runs
            in this process, and the same SDK talks HTTP to it.
        credential: Who asks; not needed for a script.
        base_url: Where the API is; None: `ANTHROPIC_BASE_URL`, else the public one.
        patience: Deadlines and retries.

    Raises:
        AuthenticationFailed: There is no credential.
        ConfigurationError: The script cannot be read.
        UsageError: The name is empty.
    """
    check_name(name)
    warm_up()
    if not needs_credential(name):
        async with _open_scripted(Path(name.removeprefix(_SCRIPTED)), patience) as opened:
            yield opened
        return
    if credential is None:
        raise missing_credential(name)
    model = AnthropicModel(credential, base_url=base_url, patience=patience)
    try:
        yield OpenedModel(model, name)
    finally:
        await model.aclose()


@asynccontextmanager
async def _open_scripted(path: Path, patience: Patience | None) -> AsyncIterator[OpenedModel]:
    from ringfence.model.scripted import DUMMY_KEY, ScriptedModelServer, load_script

    script = await anyio.to_thread.run_sync(load_script, path)
    prices = {_SCRIPTED_NAME: script.price} if script.price is not None else {}
    async with ScriptedModelServer.serve(script) as server:
        model = AnthropicModel(Credential("api_key", DUMMY_KEY), base_url=server.base_url, patience=patience)
        try:
            yield OpenedModel(model, _SCRIPTED_NAME, prices)
        finally:
            await model.aclose()
