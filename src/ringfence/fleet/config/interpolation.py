"""`${VAR}` and `${VAR:-x}` in merged values, before they are checked; `${secret:NAME}` stays a reference."""

from collections.abc import Mapping
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.environment import expanded
from ringfence.config.layer import Merged
from ringfence.config.validation import combine
from ringfence.errors import RingfenceError


def interpolate(merged: Merged, environ: Mapping[str, str], *, of: str) -> None:
    """Put variables into every string of the merged values, in place. `$$` is a dollar sign.

    Args:
        merged: What the files say.
        environ: The variables that they may name.
        of: What stands before the keys in messages, such as `agents.mender.`.

    Raises:
        ConfigurationError: Where a variable is not set and has no default, or a reference is none.
    """
    complaints: list[RingfenceError] = []

    def insert_prepared_in(path: KeyPath, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return expanded(value, environ)
            except ValueError as exc:
                complaints.append(merged.blame(path).error(f"{of}{'.'.join(map(str, path))}: {exc}"))
                return value
        if isinstance(value, dict):
            return {key: insert_prepared_in((*path, key), below) for key, below in value.items()}
        if isinstance(value, list):
            return [insert_prepared_in((*path, index), below) for index, below in enumerate(value)]
        return value

    merged.values = insert_prepared_in((), merged.values)
    if complaints:
        raise combine(complaints)
