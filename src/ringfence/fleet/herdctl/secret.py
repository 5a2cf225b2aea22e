"""Secrets: what herdctl takes out of its environment becomes a reference, and what stands in plain text is refused."""

import re
from collections.abc import Iterator
from typing import Any

from ringfence.config.document import KeyPath, Origin
from ringfence.config.secret_shape import KNOWN_SHAPES
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError
from ringfence.fleet.herdctl.document import PreparedJob

_SECRET = re.compile(
    r"(?:^|[_-])(?:TOKEN|KEY|APIKEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT|AUTHORIZATION|COOKIE)(?:[_-]|$)",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_REFERENCE = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\$\{secret:[^{}]*\}"
)
_SHAPE = re.compile(
    rf"{KNOWN_SHAPES}"
    r"|://[^/@\s:]{0,200}:[^/@\s]+@"
    r"|hooks\.slack\.com/(?:services|workflows)/\w|/api/webhooks/\d+/\w"
    r"|(?i:[?&][a-z_-]*(?:token|key|secret|password|sig|signature)=[^&\s]{4,})"
    r"|(?i:\b(?:authorization|x-api-key)[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|bot|token)\s+[^\s\"'$]{4,})"
)
_PLACEHOLDERS = frozenset({"none", "null", "unset", "missing", "empty", "changeme", "placeholder", "todo"})
"""Defaults that say that there is no secret."""
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_SCHEME = re.compile(r"(?i)\s*(?:bearer|basic|bot|token)?\s*")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name most likely holds a secret."""
    return _SECRET.search(name) is not None


def names_secret(text: str) -> bool:
    """Whether a text takes in a variable that most likely holds a secret."""
    return any(is_secret_name(match["name"] or "") for match in _REFERENCE.finditer(text))


def refer(made: PreparedJob, variable: str, origin: Origin) -> str:
    """Name a variable as a secret; what stands in its place.

    Raises:
        ConfigurationError: It is no name of a variable. What was written there is not told: it may be the secret.
    """
    if not _NAME.fullmatch(variable) or _SHAPE.search(variable):
        raise origin.error("this is no name of a variable; write the name of the one that holds the secret")
    made.put(("secrets", variable), f"env:{variable}", origin)
    return f"${{secret:{variable}}}"


def referring(made: PreparedJob, text: str, origin: Origin) -> str:
    """A text whose variables are secrets now. Those with a default stay variables."""
    return _VARIABLE.sub(lambda match: refer(made, match[1], origin), text)


def refuse_plain_secrets(made: PreparedJob) -> None:
    """See that nothing that is taken over is a secret in plain text, so that no file of ours will hold one.

    Raises:
        ConfigurationError: With the places in herdctl's files; what stands there is not told.
    """
    complaints: list[RingfenceError] = [
        made.origin_of(path).error(
            f"{path[0]}: a secret stands here in plain text; put it into a variable, and write ${{NAME}}"
        )
        for path in _plain((), made.values)
    ]
    if complaints:
        raise combine(complaints)


def _plain(path: KeyPath, value: Any) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, below in value.items():
            is_header = path[-1:] == ("headers",) and is_secret_name(str(key))
            if _SHAPE.search(str(key)) or (is_header and not _SCHEME.fullmatch(_known(str(below)))):
                yield (*path, key)
            else:
                yield from _plain((*path, key), below)
    elif isinstance(value, list):
        if path[-1:] == ("command",) and _holds_secret_argument(value):
            yield path
        for index, below in enumerate(value):
            yield from _plain((*path, index), below)
    elif isinstance(value, str) and _SHAPE.search(_known(value)):
        yield path


def _known(text: str) -> str:
    """What of a text stands in the file: of variables their defaults, but for placeholders such as `none`."""

    def default_of(match: re.Match[str]) -> str:
        default = match["default"] or ""
        return "" if default.lower() in _PLACEHOLDERS else default

    return _REFERENCE.sub(default_of, text)


def _holds_secret_argument(words: list[Any]) -> bool:
    """Whether an option of a command that is named like a secret has a value that stands in the file."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, has_value, value = str(word).partition("=")
        if not _FLAG.fullmatch(option) or not is_secret_name(option.lstrip("-")):
            continue
        value = value if has_value else str(following)
        if _known(value) and not (not has_value and value.startswith("-")):
            return True
    return False
