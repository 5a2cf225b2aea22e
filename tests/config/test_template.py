"""What is generated from the models."""

import re
from pathlib import Path

import jsonschema
import pytest

from ringfence.config.fields import all_fields
from ringfence.config.model import Settings
from ringfence.config.template import commented_file, json_schema
from ringfence.config.yaml import parse_document


def _uncommented() -> bytes:
    return re.sub(r"(?m)^#(?=(  )*[a-z_]+:)", "", commented_file()).encode()


def test_the_written_file_says_nothing() -> None:
    """As written, every key is commented out."""
    assert parse_document(commented_file().encode(), Path("ringfence.yaml")).values == {}


def test_the_written_file_holds_every_key_with_its_default() -> None:
    """With the '#' taken away, it says exactly what holds anyway."""
    values = parse_document(_uncommented(), Path("ringfence.yaml")).values
    assert Settings.model_validate(values) == Settings()
    assert all(f"{field.path[-1]}: " in commented_file() for field in all_fields().values())


def test_editors_find_the_schema() -> None:
    """The first line is for yaml-language-server."""
    assert commented_file().splitlines()[0] == "# yaml-language-server: $schema=./ringfence.schema.json"


def test_the_schema_accepts_what_we_accept() -> None:
    """The defaults, and sizes and durations as people write them, are valid."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid(parse_document(_uncommented(), Path("ringfence.yaml")).values)
    assert valid({"sandbox": {"memory": "2g", "ttl": "90m"}, "unsafe": ["host_backend"]})


def test_the_schema_refuses_unknown_keys() -> None:
    """Editors mark a mistyped key."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"sandbox": {"memroy": "2g"}}, json_schema())
