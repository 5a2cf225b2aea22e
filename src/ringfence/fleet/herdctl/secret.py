"""Replaces variables that contain secrets by references, and refuses secrets in plain text."""

import re
from collections.abc import Iterator
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.secret_shape import KNOWN_SHAPES
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError
from ringfence.fleet.herdctl.reader import Reader

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:TOKEN|KEY|APIKEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT|AUTHORIZATION|COOKIE)(?:[_-]|$)",
    re.IGNORECASE,
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_REFERENCE = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\$\{secret:[^{}]*\}"
)
_SECRET_SHAPE = re.compile(
    rf"{KNOWN_SHAPES}"
    r"|://[^/@\s:]{0,200}:[^/@\s]+@"
    r"|hooks\.slack\.com/(?:services|workflows)/\w|/api/webhooks/\d+/\w"
    r"|(?i:[?&][a-z_-]*(?:token|key|secret|password|sig|signature)=[^&\s]{4,})"
    r"|(?i:\b(?:authorization|x-api-key)[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|bot|token)\s+[^\s\"'$]{4,})"
)
_PLACEHOLDERS = frozenset(
    {"", "none", "null", "unset", "missing", "empty", "changeme", "placeholder", "todo"}
)
"""Default values of variables which mean that there is no secret."""
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_SCHEME = re.compile(r"(?i)\s*(?:bearer|basic|bot|token)?\s*")


def is_secret_name(name: str) -> bool:
    """Whether a variable or header of this name most likely contains a secret."""
    return _SECRET_NAME.search(name) is not None


def names_secret(text: str) -> bool:
    """Whether a text contains a variable that most likely contains a secret."""
    return any(is_secret_name(match["name"] or "") for match in _REFERENCE.finditer(text))


def secret_reference(reader: Reader, variable: str, *source: str | int) -> str:
    """Declare a variable as a secret, and return the reference to it.

    Args:
        reader: The reader of the agent.
        variable: The name of the variable.
        source: The path of the value that refers to the variable.

    Raises:
        ConfigurationError: The name is not valid. The error does not quote it, because it may be the secret itself.
    """
    if not _VARIABLE_NAME.fullmatch(variable) or _SECRET_SHAPE.search(variable):
        raise reader.origin(*source).error(
            "this is not the name of a variable; write the name of the one that contains the secret"
        )
    reader.put(("secrets", variable), f"env:{variable}", *source)
    return f"${{secret:{variable}}}"


def replace_variables(reader: Reader, text: str, *source: str | int) -> str:
    """Return a text in which variables are replaced by references to secrets.

    A variable with a default stays a variable, unless its name or the last key of `source` says that it is a secret and
    its default is a placeholder such as `none`.
    """

    def replace(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name is None or len(name) > 64:
            return match[0]
        if default is not None:
            is_secret = is_secret_name(name) or is_secret_name(str(source[-1]))
            if not is_secret or default.lower() not in _PLACEHOLDERS:
                return match[0]
            reader.changed(
                source, f"the default of ${name} is dropped: the hook fails while ${name} is not set"
            )
        return secret_reference(reader, name, *source)

    return _REFERENCE.sub(replace, text)


def refuse_plain_secrets(reader: Reader) -> None:
    """Check that no setting is a secret in plain text, so that no converted file contains one.

    Raises:
        ConfigurationError: A secret is in plain text. The error names the positions, and quotes no secret.
    """
    settings = reader.target
    errors: list[RingfenceError] = [
        settings.origin_of(path).error(
            f"{path[0]}: a secret stands here in plain text; put it into a variable, and write ${{NAME}}"
        )
        for path in _plain_secrets((), settings.values)
    ]
    if errors:
        raise combine(errors)


def _plain_secrets(path: KeyPath, value: Any) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, below in value.items():
            is_header = path[-1:] == ("headers",) and is_secret_name(str(key))
            if _SECRET_SHAPE.search(str(key)) or (is_header and not _SCHEME.fullmatch(_written(str(below)))):
                yield (*path, key)
            else:
                yield from _plain_secrets((*path, key), below)
    elif isinstance(value, list):
        if path[-1:] == ("command",) and _holds_secret_argument(value):
            yield path
        for index, below in enumerate(value):
            yield from _plain_secrets((*path, index), below)
    elif isinstance(value, str) and _SECRET_SHAPE.search(_written(value)):
        yield path


def _written(text: str) -> str:
    """Return the part of a text that the file itself contains: of variables, only defaults that are no placeholders."""

    def default_of(match: re.Match[str]) -> str:
        default = match["default"] or ""
        return "" if default.lower() in _PLACEHOLDERS else default

    return _REFERENCE.sub(default_of, text)


def _holds_secret_argument(words: list[Any]) -> bool:
    """Whether a command has an option that is named like a secret and whose value is in the file."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, has_value, value = str(word).partition("=")
        if not _OPTION.fullmatch(option) or not is_secret_name(option.lstrip("-")):
            continue
        value = value if has_value else str(following)
        if _written(value) and not (not has_value and value.startswith("-")):
            return True
    return False
