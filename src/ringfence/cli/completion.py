"""Lists the values that a shell completes, such as ids of runs and names of sandboxes.

They are read from files and tables, without a connection to a daemon or a container engine. A value that cannot be read
is not offered, as an error would be printed in the middle of the line that the user is typing.
"""

from collections.abc import Callable, Sequence
from typing import get_args

from ringfence.errors import RingfenceError

_MAX_RUNS = 50
"""Limit, as more would fill the screen; the newest are offered."""


def complete_runs() -> list[str]:
    """The references of runs: `last`, and ids, the newest first."""
    from ringfence.journal import run_dirs

    return ["last", *_read(lambda: [path.name for path in run_dirs()[:_MAX_RUNS]])]


def complete_sandboxes() -> list[str]:
    """The names of standing sandboxes."""
    from ringfence.sandbox.supervisor.directory import list_directories, standing_root

    return _read(lambda: [each.name for each in list_directories(standing_root())])


def complete_runtimes() -> list[str]:
    """The names that `--runtime` accepts."""
    from ringfence.config.names import RUNTIME_NAMES

    return list(RUNTIME_NAMES)


def complete_backends() -> list[str]:
    """The names that `--sandbox` accepts."""
    from ringfence.sandbox.registry import backend_names

    return ["auto", *backend_names()]


def complete_presets() -> list[str]:
    """The presets that `--allow` accepts."""
    from ringfence.config.egress import PresetName

    return list(get_args(PresetName))


def complete_key(key: str) -> Callable[[], list[str]]:
    """Return the function that lists the values of a configuration key whose values are a fixed set."""

    def complete() -> list[str]:
        from ringfence.config.fields import all_fields

        kind = all_fields()[key].kind
        return [
            value for each in (kind, *get_args(kind)) for value in get_args(each) if isinstance(value, str)
        ]

    return complete


def complete_topics() -> list[str]:
    """The names that `ringfence help` accepts: commands and pages."""
    from ringfence.cli.help import topics

    return _read(topics)


def _read(names: Callable[[], Sequence[str]]) -> list[str]:
    try:
        return list(names())
    except (OSError, RingfenceError):
        return []
