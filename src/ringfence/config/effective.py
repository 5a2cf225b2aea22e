"""The effective configuration: flag > `RINGFENCE_*` > project file > user file > default.

The raw layers are merged and then validated, so a value has the same meaning in every layer. Files that an agent or a
third party may have written can only tighten the fence until the user trusts them.
"""

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ringfence.config.document import Document, KeyPath, Origin, find_project_file
from ringfence.config.environment import environment_layer
from ringfence.config.fields import all_fields
from ringfence.config.layer import Layer, Merged, document_layer, merge, named_layer
from ringfence.config.model import Settings
from ringfence.config.paths import state_dir, user_config_file
from ringfence.config.restriction import Loosened, loosened, weaknesses
from ringfence.config.trust import is_trusted, with_author
from ringfence.config.validation import combine, validate
from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen

_MAX_RULES_NAMED = 10


@frozen
class Flag:
    """A command-line option that sets a key."""

    key: str
    """The dotted name of the key, such as `sandbox.memory`."""
    name: str
    """The option on the command line, such as `--memory`."""
    value: Any
    """The value; None if the option was not given."""


@frozen
class ConfigurationFile:
    """A configuration file that was read."""

    kind: Literal["project", "user"]
    document: Document
    needs_trust: bool
    """Whether an agent in the workspace could have written the file."""
    trusted: bool


@frozen
class Effective:
    """The effective configuration, with the origin of each value."""

    settings: Settings
    origins: Mapping[str, Origin]
    """The origin of every dotted key; each entry of a mapping such as `sandbox.env` or `prices` has its own."""
    files: tuple[ConfigurationFile, ...]
    """The files that were read, the weakest first."""
    loosened_by_files: tuple[tuple[Loosened, Origin], ...] = ()
    """The values that trusted project files loosen, with their origins."""

    def loosenings(self) -> list[tuple[str, str]]:
        """Return what is weaker than the default, as pairs of a sentence and its origin."""
        weak = [(each.key, each.text) for each in weaknesses(self.settings)]
        named = {"unsafe", *(key for key, _ in weak if key not in ("sandbox.mounts", "egress.allow"))}
        found = [(text, str(self.origins[key])) for key, text in weak]
        for item, origin in self.loosened_by_files:
            key = ".".join(item.path)
            winner = self.origins.get(key, origin)
            if key in named:
                continue
            if winner != origin:
                found.append((f"{item.change()}, but {winner} overrides it", str(origin)))
            elif key == "egress.allow":
                found.append((f"the sandbox can reach {self._granted()}", str(origin)))
            else:
                found.append((item.change(), str(origin)))
        return found

    def _granted(self) -> str:
        granted = [str(rule) for rule in self.settings.egress.allow]
        more = f" and {len(granted) - _MAX_RULES_NAMED} more" if len(granted) > _MAX_RULES_NAMED else ""
        return f"{', '.join(granted[:_MAX_RULES_NAMED])}{more}"


def load(
    workspace: Path | None, *, flags: Sequence[Flag] = (), environ: Mapping[str, str] | None = None
) -> Effective:
    """Resolve the configuration for a run on `workspace`.

    Args:
        workspace: The directory that the agent works on; if it is None, no project file is searched.
        flags: The options of the command. Options whose value is None set nothing.
        environ: The environment; the default is `os.environ`.

    Raises:
        ConfigurationError: A value is invalid; for a value of a file, the error has its line and column.
        UsageError: The value of a flag is invalid.
    """
    try:
        return _load(workspace, flags, os.environ if environ is None else environ)
    except ConfigurationError as exc:
        raise with_author(exc, state_dir()) from exc


def _load(workspace: Path | None, flags: Sequence[Flag], environ: Mapping[str, str]) -> Effective:
    files: list[ConfigurationFile] = []
    layers: list[Layer] = []
    loosened_by_files: list[tuple[Loosened, Origin]] = []
    for kind, path in _paths(workspace):
        file = read_file(path, kind, workspace)
        layer = document_layer(file.document, kind)
        if file.needs_trust:
            loosened_by_files += _check_trust(layers, layer, file, workspace)
        files.append(file)
        layers.append(layer)
    layers.append(environment_layer(environ))
    set_flags: dict[KeyPath, tuple[str, Any]] = {
        tuple(flag.key.split(".")): (flag.name, flag.value) for flag in flags if flag.value is not None
    }
    layers.append(named_layer("flag", set_flags))
    merged = merge(layers)
    settings = validate(merged)
    return Effective(settings, _origins(settings, merged), tuple(files), tuple(loosened_by_files))


def read_file(path: Path, kind: Literal["project", "user"], workspace: Path | None) -> ConfigurationFile:
    """Read one file and determine whether it is trusted.

    Raises:
        ConfigurationError: The file cannot be read or parsed, or another user can write it.
    """
    # Importing the parser takes 80 ms, which runs without files do not need to spend.
    from ringfence.config.yaml import read_document

    document = read_document(path, follow_link=kind == "user")
    needs_trust = kind == "project" or _lies_within(path, workspace)
    if kind == "user":
        _refuse_foreign(path)
    trusted = not needs_trust or is_trusted(path, document.content)
    return ConfigurationFile(kind, document, needs_trust, trusted)


def loosened_by(document: Document, workspace: Path) -> list[Loosened]:
    """Return the keys that a document would loosen as project file of `workspace`.

    Raises:
        ConfigurationError: The document is invalid.
    """
    user = [
        document_layer(read_file(file, "user", workspace).document, "user")
        for kind, file in _paths(None)
        if file.resolve() != document.file.resolve()
    ]
    merged = merge([*user, document_layer(document, "project")])
    before, after = validate(merge(user)), validate(merged)
    return loosened(before, after, unset_mode=_unset_mode(workspace))


def _paths(workspace: Path | None) -> list[tuple[Literal["project", "user"], Path]]:
    found: list[tuple[Literal["project", "user"], Path]] = []
    user = user_config_file()
    if os.path.lexists(user):
        found.append(("user", user))
    project = find_project_file(workspace) if workspace is not None else None
    if project is not None and project.resolve() != user.resolve():
        found.append(("project", project))
    return found


def _check_trust(
    below: list[Layer], layer: Layer, file: ConfigurationFile, workspace: Path | None
) -> list[tuple[Loosened, Origin]]:
    """Return the values that a trusted file loosens; refuse an untrusted file that loosens any."""
    path = file.document.file
    unset_mode = _unset_mode(workspace or path.parent)
    found = loosened(validate(merge(below)), validate(merge([*below, layer])), unset_mode=unset_mode)
    if found and not file.trusted:
        raise combine(
            [layer.origin_of(item.path, False).error(item.describe()) for item in found],
            advice=f"an untrusted file can only tighten; read it, then run `{trust_command(path)}`",
        )
    return [(item, layer.origin_of(item.path, False)) for item in found]


def trust_command(path: Path) -> str:
    """Return the command that trusts `path`."""
    return f"ringfence config trust {shlex.quote(str(path))}"


def _unset_mode(workspace: Path) -> str:
    """Return the mode for `sandbox.mode: null`: `bind` if the user owns the workspace and is not root, else `clone`."""
    try:
        owner = workspace.stat().st_uid
    except OSError:
        return "clone"
    return "bind" if owner == os.geteuid() != 0 else "clone"


def _lies_within(path: Path, workspace: Path | None) -> bool:
    # If the workspace is a repository of dotfiles, an agent can write the user's configuration file.
    return workspace is not None and path.resolve().is_relative_to(workspace.resolve())


def _refuse_foreign(path: Path) -> None:
    status = path.stat()
    if status.st_uid not in {os.geteuid(), 0} or status.st_mode & stat.S_IWOTH:
        raise ConfigurationError(
            "other users can write this file, so they could loosen your fences; make it yours "
            "(chown, chmod o-w), or remove it",
            file=path,
        )


def _origins(settings: Settings, merged: Merged) -> dict[str, Origin]:
    found: dict[str, Origin] = {}
    for key, field in all_fields().items():
        value = field.of(settings)
        if field.is_mapping and value:
            found |= {f"{key}.{name}": merged.origin((*field.path, name)) for name in value}
        else:
            found[key] = merged.origin(field.path)
    return found
