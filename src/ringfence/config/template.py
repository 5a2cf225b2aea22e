"""What is generated from the models: the commented file that `ringfence init` writes, and the JSON Schema."""

import textwrap
from typing import Any

from ringfence.config.descriptions import describe
from ringfence.config.fields import Field, all_fields, sections
from ringfence.config.model import Settings

SCHEMA_FILE_NAME = "ringfence.schema.json"

_WIDTH = 100
_HEAD = f"""\
# yaml-language-server: $schema=./{SCHEMA_FILE_NAME}
#
# Configuration of ringfence for this project. Every key stands here commented out, with its default: take the
# '#' away from a key and from the section above it to change it.
#
# Stronger than this file: command-line options, then RINGFENCE_* variables (RINGFENCE_SANDBOX__MEMORY=1g).
# Weaker: your own file, ~/.config/ringfence/ringfence.yaml.
#
# Until you run `ringfence config trust` on its present content, this file can only tighten: lower limits, add
# protected paths, and the like. See what holds, and why: `ringfence config show --origin`.
"""


def commented_file() -> str:
    """A `ringfence.yaml` that says nothing yet and explains everything."""
    describe()
    fields = list(all_fields().values())
    lines = [_HEAD]
    named = set()
    for name, description, _ in sections():
        named.add(name)
        lines += [*_comment(description, ""), f"#{name}:"]
        for field in fields:
            if field.path[0] == name:
                lines += _setting(field, "  ")
        lines.append("")
    for field in fields:
        if field.path[0] not in named:
            lines += [*_setting(field, ""), ""]
    return "\n".join(lines).rstrip() + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `ringfence.yaml`, for editors and other programs."""
    describe()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(mode="validation"),
    }


def _setting(field: Field, indent: str) -> list[str]:
    description = " ".join((field.info.description or "").split())
    return [*_comment(description, indent), f"#{indent}{field.path[-1]}: {field.written(field.default)}"]


def _comment(text: str, indent: str) -> list[str]:
    start = f"#{indent}# " if indent else "# "
    return [start + line for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]
