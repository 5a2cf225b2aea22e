"""Loads the configuration from command-line options, and parses their values."""

import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.options import SETTINGS
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective


def load_settings(workspace: Path, **options: Any) -> "Effective":
    """Load the effective configuration: these options over environment, files and defaults.

    Args:
        workspace: The directory in which configuration files are searched.
        options: Values by their names in `SETTINGS`, as the command line gave them. None, a switch that is off
            and an empty list count as not given; paths are relative to the current directory.

    Raises:
        ConfigurationError, UsageError: As `ringfence.config.load`.
    """
    from ringfence.config import Flag, load

    check_directory(workspace)
    for name in ("env", "label"):
        options[name] = parse_pairs(name, options.get(name) or ())
    given = {
        name: _make_absolute(value)
        for name, value in options.items()
        if value not in (None, [], {}) and value is not False
    }
    flags = [
        Flag(SETTINGS[name].key, f"--{name.replace('_', '-')}", SETTINGS[name].value or value)
        for name, value in given.items()
    ]
    effective = load(workspace.absolute(), flags=flags)
    if effective.settings.sandbox.fallback != "host":
        return effective
    import anyio

    from ringfence.job.sandbox_spec import with_fallback

    return anyio.run(with_fallback, effective)


def _make_absolute(value: object) -> object:
    if isinstance(value, list):
        return [_make_absolute(each) for each in value]
    if not isinstance(value, Path):
        return value
    # Links are followed only where `..` needs it: a program's path may be one inside an image.
    return os.path.realpath(value) if ".." in value.parts else str(value.absolute())


def check_directory(workspace: Path) -> None:
    """Check that a workspace exists and can be entered.

    Raises:
        UsageError: The workspace cannot be used.
    """
    try:
        if not stat.S_ISDIR(workspace.stat().st_mode):
            raise UsageError(f"workspace {str(workspace)!r} is not a directory; name one with --workspace")
        workspace.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise UsageError(
            f"workspace {str(workspace)!r} cannot be used: {reason}; name a directory with --workspace"
        ) from exc


def warn_about(effective: "Effective") -> None:
    """Print on stderr each setting that is weaker than the default, and how to end the trust in files that weaken."""
    from ringfence.cli.output import notify

    for what, by in effective.loosenings():
        notify(f"WARNING: {what} (set by {by})")
    for file in dict.fromkeys(origin.file for _, origin in effective.loosened_by_files if origin.file):
        notify(f"you trust this file; `ringfence config trust --revoke {shlex.quote(str(file))}` ends that")


def parse_pairs(name: str, items: Sequence[str]) -> dict[str, str]:
    """Parse the items of an option in `SETTINGS` whose values are pairs, such as `KEY=VALUE`.

    Raises:
        UsageError: An item has no `=`.
    """
    for item in items:
        if "=" not in item:
            raise UsageError(f"--{name} {item!r} has no '='; write {SETTINGS[name].metavar}")
    return dict(item.split("=", 1) for item in items)


def wait_of(text: str) -> float:
    """Parse the seconds that a run waits for its workspace.

    Raises:
        UsageError: The text is not a duration.
    """
    return 0.0 if text.strip() == "0" else duration_of("--wait", text)


def duration_of(option: str, text: str) -> float:
    """Parse an option's value as seconds.

    Raises:
        UsageError: The text is not a duration.
    """
    from ringfence.config.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as exc:
        raise UsageError(f"{option}: {exc}") from exc
