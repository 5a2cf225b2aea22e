"""References to secrets in configuration, which never contains the values. Errors do not quote what was written."""

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
"""The kinds of source; a reference names exactly one."""

_SHAPE = (
    "write env:NAME, file:/PATH, keyring:SERVICE/USER, or a mapping {cmd: [PROGRAM, ARGUMENT]} or "
    "{age: /PATH, identity: /PATH}"
)
_SHORT = ("env", "file", "keyring")
_KNOWN_SHAPES = re.compile(KNOWN_SHAPES)


def holds_a_secret(text: str) -> bool:
    """Whether `text` contains a key or token of a well-known form."""
    return _KNOWN_SHAPES.search(text) is not None


def _check_path(value: Path) -> Path:
    text = str(value)
    if not text.startswith(("/", "~/")) or ".." in value.parts or "\0" in text:
        raise ValueError("the path is neither absolute nor in your home (~/...), or contains '..'")
    return value


def _check_variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("the text after env: is not the name of a variable")
    return value


def _check_word(value: str) -> str:
    if "\0" in value:
        raise ValueError("a word of the command contains a NUL character, which commands cannot contain")
    return value


def _check_keyring_entry(value: str) -> str:
    service, _, user = value.rpartition("/")
    if not service or not user or "\0" in value:
        raise ValueError("the entry of the keyring is not SERVICE/USER")
    return value


_Command = Annotated[
    tuple[Annotated[str, AfterValidator(_check_word)], ...], Field(min_length=1, max_length=64)
]
_Path = Annotated[Path, AfterValidator(_check_path)]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]


class SecretReference(BaseModel):
    """The source of one secret, and its options."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    env: Annotated[str, AfterValidator(_check_variable)] | None = None
    """Variable of your environment that holds the secret."""
    file: _Path | None = None
    """File that contains only the secret; absolute, or `~/...`. Other users must not be able to write it."""
    cmd: _Command | None = None
    """Program and arguments, run on the host, that print the secret in one line; `{lease}` stands for the lease's id."""
    keyring: Annotated[str, AfterValidator(_check_keyring_entry)] | None = None
    """Entry of the desktop's keyring, SERVICE/USER. This needs the extra `keyring`."""
    age: _Path | None = None
    """File that is encrypted with age for `identity`. This needs the extra `age`."""
    identity: _Path | None = None
    """File with the age identity, or an unencrypted SSH key, that decrypts `age`."""
    timeout: Seconds = 30.0
    """Time limit for the source."""
    ttl: Seconds | None = None
    """Lifetime of the value, after which the source is read again. null: the lifetime that the value itself states."""
    revoke: _Command | None = None
    """Program and arguments, run when a lease ends, with the value on stdin; `{lease}` as in `cmd`."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _read(value)
        if not isinstance(value, dict | SecretReference):
            raise ValueError(f"it is not a reference to a secret; {_SHAPE}")
        if isinstance(value, dict) and isinstance(value.get("cmd"), str):
            raise ValueError("cmd is a text, but no shell is used; write a list: [PROGRAM, ARGUMENT]")
        return value

    @model_validator(mode="after")
    def _check_source(self) -> "SecretReference":
        named = [source for source in SOURCES if getattr(self, source) is not None]
        if len(named) != 1:
            raise ValueError(f"it names {' and '.join(named) or 'no source'}; {_SHAPE}")
        if (self.age is None) != (self.identity is None):
            raise ValueError("age and identity go together; name the file and the identity that decrypts it")
        return self

    @model_serializer(mode="plain")
    def _to_mapping(self) -> dict[str, Any]:
        """Return only the fields that were set."""
        fields = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        plain = {
            name: str(value)
            if isinstance(value, Path)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in fields.items()
        }
        return {name: value for name, value in plain.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema: text, or a mapping."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"type": "string", "pattern": "^(env|file|keyring):.+"}, schema]}

    @property
    def kind(self) -> SecretKind:
        """The kind of the source."""
        return next(source for source in SOURCES if getattr(self, source) is not None)

    @property
    def path(self) -> Path | None:
        """The source's file, with `~` expanded; None if the source is not a file."""
        path = self.file or self.age
        return None if path is None else path.expanduser()

    def __str__(self) -> str:
        """Return the source as text; for a command, only the program, because its arguments may be confidential."""
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
    # The text is not quoted, because it may be the secret itself.
    raise ValueError(f"it is not a reference, and configuration must not contain secrets; {_SHAPE}")
