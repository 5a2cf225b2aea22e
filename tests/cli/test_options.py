"""Options and the settings they stand for."""

import pytest
import typer.main

from ringfence.cli.main import app
from ringfence.cli.options import SETTINGS
from ringfence.config.fields import all_fields


@pytest.fixture(scope="module")
def declared() -> dict[str, list[str]]:
    """The options of `run` by the names of their parameters."""
    command = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    return {parameter.name: parameter.opts for parameter in command.params}


@pytest.mark.parametrize("name", SETTINGS)
def test_an_option_is_called_as_errors_call_it(declared: dict[str, list[str]], name: str):
    """Where a value is to blame, the option is named as it is typed."""
    assert f"--{name.replace('_', '-')}" in declared[name]


@pytest.mark.parametrize("key", SETTINGS.values())
def test_an_option_sets_a_key_that_is_there(key: str):
    """Files and variables can say the same."""
    assert key in all_fields()
