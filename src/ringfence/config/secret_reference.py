"""Where a secret comes from, as configuration says it: a reference, never the value. Nothing here quotes a value."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ringfence.config.secret_shape import KNOWN_SHAPES
from ringfence.config.units import Seconds

SecretKind = Literal["env", "file", "cmd", "keyring", "age"]
SOURCES: tuple[SecretKind, ...] = ("env", "file", "cmd", "keyring", "age")
"""What a reference may name, exactly one of them."""

_SHAPE = (
    "write env:NAME, file:/PATH, keyring:SERVICE/USER, or a mapping {cmd: [PROGRAM, ARGUMENT]} or "
    "{age: /PATH, identity: /PATH}"
)
_SHORT = ("env", "file", "keyring")
_KNOWN_SHAPES = re.compile(KNOWN_SHAPES)


def holds_a_secret(text: str) -> bool:
    """Whether a key or token of a well-known form stands in `text`."""
    return _KNOWN_SHAPES.search(text) is not None


def _own_path(value: Path) -> Path:
    text = str(value)
    if not text.startswith(("/", "~/")) or ".." in value.parts or "\0" in text:
        raise ValueError("the path is neither absolute nor in your home (~/...), or holds '..'")
    return value


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("what stands after env: is not the name of a variable")
    return value


def _word(value: str) -> str:
    if "\0" in value:
        raise ValueError("a word of the command holds a NUL character, which no command can carry")
    return value


def _service_and_user(value: str) -> str:
    service, _, user = value.rpartition("/")
    if not service or not user or "\0" in value:
        raise ValueError("the entry of the keyring is not SERVICE/USER")
    return value


_Command = Annotated[tuple[Annotated[str, AfterValidator(_word)], ...], Field(min_length=1, max_length=64)]
_Path = Annotated[Path, AfterValidator(_own_path)]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]


class SecretReference(BaseModel):
    """Where one secret comes from: exactly one source, and how it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    env: Annotated[str, AfterValidator(_variable)] | None = None
    """Variable of your environment."""
    file: _Path | None = None
    """File with nothing else in it; absolute, or `~/...`. Others may not write it."""
    cmd: _Command | None = None
    """Program and arguments, run on the host, whose one line of output it is; `{lease}` stands for the lease's id."""
    keyring: Annotated[str, AfterValidator(_service_and_user)] | None = None
    """Entry of the desktop's keyring, SERVICE/USER. Needs the extra `keyring`."""
    age: _Path | None = None
    """File encrypted with age for `identity`. Needs the extra `age`."""
    identity: _Path | None = None
    """File with the age identity, or an unencrypted SSH key, that opens `age`."""
    timeout: Seconds = 30.0
    """How long the source may take."""
    ttl: Seconds | None = None
    """What it gives is good for so long; then it is asked again. null: as the value itself says."""
    revoke: _Command | None = None
    """Program and arguments, run when a lease ends; the value is its stdin, `{lease}` as in `cmd`."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _read(value)
        if not isinstance(value, dict | SecretReference):
            raise ValueError(f"it is not a reference to a secret; {_SHAPE}")
        if isinstance(value, dict) and isinstance(value.get("cmd"), str):
            raise ValueError("cmd is a text, and no shell is used; write a list: [PROGRAM, ARGUMENT]")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> "SecretReference":
        named = [source for source in SOURCES if getattr(self, source) is not None]
        if len(named) != 1:
            raise ValueError(f"it names {' and '.join(named) or 'no source'}; {_SHAPE}")
        if (self.age is None) != (self.identity is None):
            raise ValueError("age and identity go together; name the file and the identity that opens it")
        return self

    @model_serializer(mode="plain")
    def _short(self) -> dict[str, Any]:
        """Only what was said, so that it reads as it was written."""
        said = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        plain = {
            name: str(value)
            if isinstance(value, Path)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in said.items()
        }
        return {name: value for name, value in plain.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A reference may also be written as text."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"type": "string", "pattern": "^(env|file|keyring):.+"}, schema]}

    @property
    def kind(self) -> SecretKind:
        """The source that it names."""
        return next(source for source in SOURCES if getattr(self, source) is not None)

    @property
    def path(self) -> Path | None:
        """The file it is read from, `~` resolved; None for other sources."""
        found = self.file or self.age
        return None if found is None else found.expanduser()

    def __str__(self) -> str:
        """The source in a word; of a command only the program, as its arguments may tell what is whose."""
        if self.cmd is not None:
            return f"cmd:{self.cmd[0]}"
        return f"{self.kind}:{getattr(self, self.kind)}"


def _read(text: str) -> dict[str, object]:
    kind, colon, rest = text.partition(":")
    if colon and rest and kind in _SHORT:
        return {kind: rest}
    if kind == "cmd":
        raise ValueError("a command is a list, no shell is used; write {cmd: [PROGRAM, ARGUMENT]}")
    if kind == "age" and colon:
        raise ValueError("age needs the identity that opens the file; write {age: /PATH, identity: /PATH}")
    # Whatever it is, it may be the secret itself.
    raise ValueError(f"it is not a reference, and secrets do not stand in configuration; {_SHAPE}")
