"""Records on which engines and clusters containers were made, so that a later process cleans up there."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ringfence.config.paths import replace_state_file, state_dir


def remember_place(folder: tuple[str, ...], place: Mapping[str, str | None]) -> None:
    """Record a place, unless it is recorded.

    Args:
        folder: Directory of the records, below the state directory.
        place: How it is opened again.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    text = json.dumps(place)
    file = state_dir().joinpath(*folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not file.is_file():
        replace_state_file(file, text.encode())


def used_places(folder: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded places; a record that cannot be read is left out."""
    for file in sorted(state_dir().joinpath(*folder).glob("*.json")):
        with suppress(OSError, ValueError):
            found = json.loads(file.read_text())
            if isinstance(found, dict):
                yield found
