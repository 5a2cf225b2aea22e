"""What commands print differently each time though they did the same: durations, addresses and so on."""

import re

_MASKS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b(?:real|user|sys)\s+\d+m[\d.,]+s", "<duration>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?)\b", "<duration>"),
        (r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
        (r"/tmp/(?:tmp[\w-]{6,12}|pytest-of-[\w-]+/pytest-\d+)", "<temporary>"),  # noqa: S108 - a pattern
        (r"\b[Pp][Ii][Dd][ =:]+\d+", "<process>"),
        # A rule drawn to the width of the screen is as long as the duration in it leaves room for.
        (r"={3,}", "==="),
        (r"-{3,}", "---"),
    )
)


def masked(text: str) -> str:
    """`text` with everything volatile replaced by a name for it.

    Line ends and tabs may be spelled as in JSON, as in the results of `shell`.
    """
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text
