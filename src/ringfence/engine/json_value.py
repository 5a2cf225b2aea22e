"""What is JSON, and stays the same on the way through it."""

import json
from typing import Any

from ringfence.engine.base import Json
from ringfence.errors import UsageError


def plain(value: Any, *, what: str) -> Json:
    """A value as it comes back out of JSON.

    Raises:
        UsageError: It is no JSON, or comes back as another: a tuple, a number as a key, NaN.
    """
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be JSON: {error}") from error
    if back != value:
        raise UsageError(f"{what} must be JSON: {str(value)[:100]!r} comes back as {str(back)[:100]!r}")
    return back
