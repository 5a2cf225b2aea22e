"""Loads the configuration from command-line options, and parses their values."""

import os
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.cli.options import SETTINGS
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective

_SCRIPTED = "scripted:"

_Value = TypeVar("_Value")


def load_settings(workspace: Path, **options: Any) -> "Effective":
    """Load the effective configuration: these options override environment, files and defaults.

    Args:
        workspace: The directory in which configuration files are searched.
        options: Values by their names in `SETTINGS`, as given on the command line. None, a switch that is off and an
        empty list count as not given; paths are relative to the current directory.

    Raises:
        ConfigurationError, UsageError: As `ringfence.config.load`; a file that an option names does not exist.
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
    _check_files(given, effective)
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
    # Links are resolved only if the path contains `..`, as a program's path may be one inside an image.
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


def check_file(path: Path, option: str = "") -> Path:
    """Check that a file that the command line names can be read; return its path.

    Args:
        path: The file.
        option: The option that names it; empty for an argument.

    Raises:
        UsageError: It does not exist, is a directory, or cannot be read.
    """
    shown = f"{option} {str(path)!r}".lstrip()
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        near = _nearest_file(path)
        advice = f"did you mean {str(near)!r}?" if near is not None else "name an existing file"
        raise UsageError(f"{shown} cannot be read: {reason}; {advice}") from exc
    if is_directory:
        raise UsageError(f"{shown} is a directory; name a file")
    if not os.access(path, os.R_OK):
        raise UsageError(
            f"{shown} cannot be read: permission denied; change its permissions, or name another file"
        )
    return path


def _nearest_file(path: Path) -> Path | None:
    """Return the file beside `path` that has a similar name, if there is one."""
    from ringfence.config.names import nearest

    try:
        names = [each.name for each in path.parent.iterdir()]
    except (OSError, ValueError):
        return None
    near = nearest(path.name, names)
    return path.with_name(near) if near else None


def _check_files(given: Mapping[str, Any], effective: "Effective") -> None:
    """Check the files and directories that options name; a program may be one inside an image.

    Raises:
        UsageError: One does not exist.
    """
    if "output_schema" in given:
        check_file(Path(given["output_schema"]), "--output-schema")
    if str(given.get("model", "")).startswith(_SCRIPTED):
        check_file(Path(given["model"].removeprefix(_SCRIPTED)), "--model")
    if "cli_path" in given and effective.settings.sandbox.image is None:
        check_file(Path(given["cli_path"]), "--cli-path")
    for plugin in given.get("plugin", ()):
        if not Path(plugin).is_dir():
            raise UsageError(f"--plugin {plugin!r} is not a directory; name one that exists")


def warn_about(effective: "Effective") -> None:
    """Print on stderr each setting that is weaker than the default, and how to revoke the trust in the files."""
    from ringfence.cli.output import notify

    for what, by in effective.loosenings():
        notify(f"WARNING: {what} (set by {by})")
    for file in dict.fromkeys(origin.file for _, origin in effective.loosened_by_files if origin.file):
        command = f"ringfence config trust --revoke {shlex.quote(str(file))}"
        notify(f"{file} may weaken settings because you trust it; `{command}` ends that")


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


def size_of(option: str, text: str) -> int:
    """Parse an option's value as bytes.

    Raises:
        UsageError: The text is not a size.
    """
    from ringfence.config.units import parse_size

    return _parsed(option, text, parse_size)


def duration_of(option: str, text: str) -> float:
    """Parse an option's value as seconds.

    Raises:
        UsageError: The text is not a duration.
    """
    from ringfence.config.units import parse_duration

    return _parsed(option, text, parse_duration)


def _parsed(option: str, text: str, parse: Callable[[str], _Value]) -> _Value:
    try:
        return parse(text)
    except ValueError as exc:
        raise UsageError(f"{option}: {exc}") from exc
