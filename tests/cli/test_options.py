"""Options and the settings they stand for."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from ringfence.cli.app import app
from ringfence.cli.options import SETTINGS
from ringfence.config.fields import all_fields
from ringfence.sandbox.registry import backend_names

_COMMAND: Any = typer.main.get_command(app)


def _declared(command: Any) -> Iterator[tuple[str, list[str]]]:
    """The parameters of a command and of those below it, with what is typed for them."""
    yield from ((parameter.name, parameter.opts) for parameter in command.params)
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from _declared(command.get_command(None, name))


@pytest.mark.parametrize("name", SETTINGS)
def test_an_option_is_called_as_errors_call_it(name: str):
    """Where a value is to blame, the option is named as it is typed."""
    typed = [options for parameter, options in _declared(_COMMAND) if parameter == name]
    assert typed
    assert all(f"--{name.replace('_', '-')}" in options for options in typed)


@pytest.mark.parametrize("key", [option.key for option in SETTINGS.values()])
def test_an_option_sets_a_key_that_is_there(key: str):
    """Files and variables can say the same."""
    assert key in all_fields()


def test_the_help_of_sandbox_names_all_that_it_takes():
    """What cannot be found there is not used."""
    option = next(each for each in _COMMAND.get_command(None, "run").params if each.name == "sandbox")
    assert {"auto", *backend_names()} <= set(re.findall(r"\w+", option.help))
