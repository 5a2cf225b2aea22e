"""docs/reference/events.md."""

from typing import get_args

import msgspec

from reference.markdown import attribute_docs, code, first_paragraph, table
from ringfence import events

_HEAD = """\
# Events

`ringfence run --json` prints events as they happen, one JSON object per line. The journal holds them, each with its
sequence number, its time and the hash of the line before ([journal](journal.md)). `event` is the name. A field that is
absent has its default.

An event is in the journal before its effect is reported. Events marked *live* are not kept: the whole text follows in
`model.replied`. Only an event that was read from another program's output has an [`origin`](#origin).
"""
_PARTS = (events.Usage, events.Origin, events.TranscriptFile)
"""What stands in fields of events."""


def page() -> str:
    """The page."""
    parts = [_HEAD]
    for kind in sorted(get_args(events.AnyEvent), key=lambda kind: str(kind.__struct_config__.tag)):
        live = "" if kind.journaled else " *(live)*"
        parts += [f"## {kind.__struct_config__.tag}{live}\n", f"{first_paragraph(kind.__doc__)}\n"]
        rows = list(_rows(kind))
        if rows:
            parts.append(table(("field", "type", "default", ""), rows))
    for part in _PARTS:
        parts += [f"## {part.__name__}\n", f"{first_paragraph(part.__doc__)}\n"]
        parts.append(table(("field", "type", "default", ""), _rows(part)))
    return "\n".join(parts)


def _rows(kind: type[msgspec.Struct]) -> list[tuple[str, str, str, str]]:
    docs = attribute_docs(kind)
    return [
        (code(field.encode_name), code(_type(field.type)), code(_default(field)), docs.get(field.name, ""))
        for field in msgspec.structs.fields(kind)
        if field.name != "origin"
    ]


def _type(kind: object) -> str:
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return (
        text.replace("typing.", "")
        .replace("ringfence.events.", "")
        .replace("transcript.", "")
        .replace("dict[str, Any]", "object")
    )


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        value = field.default
        if isinstance(value, msgspec.Struct):
            return f"{type(value).__name__}()"
        return (
            {None: "null", True: "true", False: "false"}.get(value, str(value)) if value != 0 else str(value)
        )
    if field.default_factory is not msgspec.NODEFAULT:
        return {dict: "{}", list: "[]"}.get(field.default_factory, "")
    return ""
