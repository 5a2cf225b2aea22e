"""Takes out of a text what looks like a secret, whosever it is: for texts that were not made under our eyes.

Where a text was made here, its secrets are known and are found by value. A text from elsewhere may hold any;
of those only the ones are found that tell what they are. A password in a sentence is not.
"""

import re

from ringfence.config.secret_shape import KNOWN_SHAPES

_KNOWN = re.compile(
    rf"-----BEGIN [A-Z ]{{0,30}}PRIVATE KEY-----.*?(?:-----END [A-Z ]{{0,30}}PRIVATE KEY-----|\Z)"
    rf"|(?:{KNOWN_SHAPES})[A-Za-z0-9_-]*",
    re.DOTALL,
)
_HEADER = re.compile(
    r"(?i)(\b(?:authorization|x-api-key)[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"'\\]{8,}"
)
_PASSWORD = re.compile(r"(://[^\s/:@\"'\\]{0,100}:)[^\s/@\"'\\]{3,200}@")


def without_shapes(text: str, replacement: str) -> str:
    """`text` with `replacement` in the place of what looks like a key, a token, a private key or a password in a URL."""
    text = _KNOWN.sub(lambda _: replacement, text)
    text = _HEADER.sub(lambda match: match[1] + replacement, text)
    return _PASSWORD.sub(lambda match: f"{match[1]}{replacement}@", text)
