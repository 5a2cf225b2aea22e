"""Loads a loop's settings from configuration files and options, and stores them with the loop."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from ringfence.config import Effective, Flag
from ringfence.config.document import DEFAULT, KeyPath, Origin
from ringfence.config.fields import all_fields
from ringfence.config.layer import merge, named_layer, part_of
from ringfence.config.model import Settings
from ringfence.config.trust import is_trusted
from ringfence.config.validation import fitted
from ringfence.errors import PolicyRefused, RecordError, UsageError
from ringfence.loop.settings import LoopSettings


def load_loop(effective: Effective, flags: Sequence[Flag]) -> LoopSettings:
    """Return a loop's settings: options take precedence over `loop:` in the project's and the user's file.

    Args:
        effective: The configuration of the loop's runs, whose files are read.
        flags: Options, by dotted keys below `loop`; options whose value is None are ignored.

    Raises:
        ConfigurationError: A file's value is not valid; the error names file, line and column.
        UsageError: An option's value is not valid.
        PolicyRefused: The project's file has settings for loops, and the user has not trusted its current content.
    """
    layers = []
    for file in effective.files:
        document = file.document
        if not isinstance(document.values, dict) or "loop" not in document.values:
            continue
        if file.needs_trust and not is_trusted(document.file, document.content):
            raise PolicyRefused(
                f"{str(document.file)!r} says how loops work, and you have not trusted it as it is now; a loop works "
                f"unattended: read it, then run `ringfence config trust`",
                rule="trust",
            )
        layers.append(part_of(document, ("loop",)))
    given: dict[KeyPath, tuple[str, Any]] = {
        tuple(flag.key.split(".")): (flag.name, flag.value) for flag in flags if flag.value is not None
    }
    layers.append(named_layer("flag", given))
    return fitted(merge(layers), LoopSettings, of="loop.")


def kept(effective: Effective, settings: LoopSettings) -> str:
    """Return the configuration and the settings as JSON, for the process that resumes the loop."""
    run = effective.settings.model_dump(mode="json", by_alias=True)
    # A limit that was set is treated differently from a default: only values that were set are stored.
    run["sandbox"] = effective.settings.sandbox.model_dump(mode="json", by_alias=True, exclude_unset=True)
    given = [key for key, origin in effective.origins.items() if origin.kind != "default"]
    return json.dumps(
        {
            "run": run,
            "said": given,
            "loop": settings.model_dump(mode="json", by_alias=True),
        }
    )


def with_others(
    effective: Effective, settings: LoopSettings, who: Sequence[Flag]
) -> tuple[Effective, LoopSettings]:
    """Return the configuration and the settings with other models, or with other runtimes for roles.

    Args:
        effective: The configuration of a loop's runs.
        settings: The loop's settings.
        who: `model`, and keys below `roles`; options whose value is None are ignored.

    Raises:
        UsageError: A value is not valid.
    """
    roles: dict[str, dict[str, Any]] = {
        name: role.model_dump(exclude_unset=True) for name, role in settings.roles.items()
    }
    for flag in who:
        if flag.value is None:
            continue
        if flag.key == "model":
            run = effective.settings.run.model_copy(update={"model": flag.value})
            changed = effective.settings.model_copy(update={"run": run})
            origins = {**effective.origins, "run.model": Origin("flag", name=flag.name)}
            effective = replace(effective, settings=changed, origins=origins)
        else:
            _, role, key = flag.key.split(".")
            own = roles.setdefault(role, {})
            own[key] = flag.value
            own.pop("ladder", None)
    try:
        return effective, LoopSettings.model_validate({**dict(settings), "roles": roles})
    except ValueError as exc:
        raise UsageError(f"--role does not fit: {_first_problem(exc)}") from exc


def restore_configuration(configuration: str, *, loop: str) -> tuple[Effective, LoopSettings]:
    """Restore the configuration and the settings from the JSON that was stored.

    Raises:
        RecordError: Another version of ringfence wrote it.
    """
    try:
        found: dict[str, Any] = json.loads(configuration)
        settings = Settings.model_validate(found["run"])
        origin, given = Origin("project", name=f"loop {loop}"), set(found["said"])
        origins = {key: origin if key in given else DEFAULT for key in {*all_fields(), *given}}
        return Effective(settings, origins, ()), _settings(found["loop"])
    except (ValueError, KeyError, TypeError) as exc:
        raise RecordError(
            f"the configuration of loop {loop} cannot be read: {_first_problem(exc)}; another version wrote it: "
            "start the loop anew"
        ) from exc


def _first_problem(error: Exception) -> str:
    """Format an error in one line, as pydantic's own text has many, with links to its documentation."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _settings(kept: dict[str, Any]) -> LoopSettings:
    """Load a loop's settings; version 0.1 stored an option that no longer has an effect."""
    return LoopSettings.model_validate(
        {key: value for key, value in kept.items() if key != "allow_runner_imports"}
    )
