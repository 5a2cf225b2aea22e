"""The effective configuration: flag > `RINGFENCE_*` > project file > user file > default.

The layers are laid upon each other raw and then checked, so a value means the same wherever it is written.
Files that an agent or a stranger may have written can only tighten until the user has trusted them.
"""

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ringfence.config.document import Document, KeyPath, Origin, find_project_file, read_regular_file
from ringfence.config.environment import environment_layer
from ringfence.config.fields import all_fields
from ringfence.config.layer import Layer, Merged, document_layer, merge, named_layer
from ringfence.config.model import Settings
from ringfence.config.paths import state_dir, user_config_file
from ringfence.config.tightening import Loosened, loosened
from ringfence.config.trust import is_trusted, with_author
from ringfence.config.validation import combine, validate
from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen

_MOST_NAMED = 10


@frozen
class Flag:
    """A command-line option that says a key."""

    key: str
    """Dotted: `sandbox.memory`."""
    name: str
    """As it is typed: `--memory`."""
    value: Any
    """None: it was not given."""


@frozen
class ConfigurationFile:
    """A file that was read."""

    kind: Literal["project", "user"]
    document: Document
    needs_trust: bool
    """Whether the workspace's own agents could have written it."""
    trusted: bool


@frozen
class Effective:
    """What holds, and why."""

    settings: Settings
    origins: Mapping[str, Origin]
    """Of every dotted key; the keys of `sandbox.env` and `prices` each have their own."""
    files: tuple[ConfigurationFile, ...]
    """Those that were read, the weakest first."""
    loosened_by_files: tuple[tuple[str, Origin], ...] = ()
    """What files that needed the user's trust, and had it, loosened: key and place."""

    def loosenings(self) -> list[tuple[str, str]]:
        """What is weaker than the default and was asked for by name: (what, by whom), for the journal."""
        sandbox = self.settings.sandbox
        found = []
        if sandbox.backend == "host":
            found.append(("host backend: no fence", str(self.origins["sandbox.backend"])))
        if sandbox.network != "none":
            found.append((f"container network {sandbox.network!r}", str(self.origins["sandbox.network"])))
        if any(rule.preset == "open" for rule in self.settings.egress.allow):
            found.append(("egress to every public host", str(self.origins["egress.allow"])))
        if self.settings.egress.provider_tools:
            tools = ", ".join(self.settings.egress.provider_tools)
            found.append((f"tools of models' providers: {tools}", str(self.origins["egress.provider_tools"])))
        if sandbox.soft_limits:
            found.append(("soft limits", str(self.origins["sandbox.soft_limits"])))
        found += [
            (f"host path {str(mount.source)!r} writable inside", str(self.origins["sandbox.mounts"]))
            for mount in sandbox.mounts
            if not mount.read_only
        ]
        if self.settings.auth == "inject":
            found.append(("the models' credentials are inside (auth: inject)", str(self.origins["auth"])))
        granted = [str(rule) for rule in self.settings.egress.allow]
        more = f" and {len(granted) - _MOST_NAMED} more" if len(granted) > _MOST_NAMED else ""
        asked_for = ("egress.allow", self.origins["egress.allow"])
        words = {asked_for: f"egress to {', '.join(granted[:_MOST_NAMED])}{more}"}
        named = {
            "sandbox.backend", "sandbox.network", "sandbox.soft_limits", "auth", "unsafe", "egress.provider_tools",
        }  # fmt: skip
        return found + [
            (words.get((key, origin), key), str(origin))
            for key, origin in self.loosened_by_files
            if key not in named
        ]


def load(
    workspace: Path | None, *, flags: Sequence[Flag] = (), environ: Mapping[str, str] | None = None
) -> Effective:
    """Resolve the configuration for a run on `workspace` (None: no project file is looked for).

    Args:
        workspace: The directory the agent would work on.
        flags: The options of the command; those whose value is None say nothing.
        environ: Instead of `os.environ`.

    Raises:
        ConfigurationError: With file, line and column where a file is to blame.
        UsageError: A flag's value does not fit.
    """
    try:
        return _load(workspace, flags, os.environ if environ is None else environ)
    except ConfigurationError as exc:
        raise with_author(exc, state_dir()) from exc


def _load(workspace: Path | None, flags: Sequence[Flag], environ: Mapping[str, str]) -> Effective:
    files: list[ConfigurationFile] = []
    layers: list[Layer] = []
    loosened_by_files: list[tuple[str, Origin]] = []
    for kind, path in _paths(workspace):
        file = read_file(path, kind, workspace)
        layer = document_layer(file.document, kind)
        if file.needs_trust:
            loosened_by_files += _check_trust(layers, layer, file, workspace)
        files.append(file)
        layers.append(layer)
    layers.append(environment_layer(environ))
    said: dict[KeyPath, tuple[str, Any]] = {
        tuple(flag.key.split(".")): (flag.name, flag.value) for flag in flags if flag.value is not None
    }
    layers.append(named_layer("flag", said))
    merged = merge(layers)
    settings = validate(merged)
    return Effective(settings, _origins(settings, merged), tuple(files), tuple(loosened_by_files))


def read_file(path: Path, kind: Literal["project", "user"], workspace: Path | None) -> ConfigurationFile:
    """Read one file and find out whether it is trusted.

    Raises:
        ConfigurationError: It cannot be read or parsed, or belongs to somebody else.
    """
    # Where there is no file, its parser is not needed: it takes 80 ms to import.
    from ringfence.config.yaml import parse_document

    content = read_regular_file(path, follow_link=kind == "user")
    needs_trust = kind == "project" or _lies_within(path, workspace)
    if kind == "user":
        _refuse_foreign(path)
    trusted = not needs_trust or is_trusted(path, content)
    return ConfigurationFile(kind, parse_document(content, path), needs_trust, trusted)


def loosened_by(path: Path, workspace: Path) -> tuple[Document, list[Loosened]]:
    """What the file at `path` would loosen as project file of `workspace`, beyond the user's own settings.

    Raises:
        ConfigurationError: The file is wrong in itself.
    """
    from ringfence.config.yaml import read_document

    user = [
        document_layer(read_file(file, "user", workspace).document, "user")
        for kind, file in _paths(None)
        if file.resolve() != path.resolve()
    ]
    document = read_document(path)
    merged = merge([*user, document_layer(document, "project")])
    before, after = validate(merge(user)), validate(merged)
    return document, loosened(before, after, unset_mode=_unset_mode(workspace))


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
) -> list[tuple[str, Origin]]:
    """What a trusted file loosens; an untrusted one that loosens anything is refused."""
    path = file.document.file
    unset_mode = _unset_mode(workspace or path.parent)
    found = loosened(validate(merge(below)), validate(merge([*below, layer])), unset_mode=unset_mode)
    if found and not file.trusted:
        raise combine(
            [layer.origin_of(item.path, False).error(item.describe()) for item in found],
            advice=f"an untrusted file can only tighten; read it, then run `{trust_command(path)}`",
        )
    return [(".".join(item.path), layer.origin_of(item.path, False)) for item in found]


def trust_command(path: Path) -> str:
    """What to type to trust `path`."""
    return f"ringfence config trust {shlex.quote(str(path))}"


def _unset_mode(workspace: Path) -> str:
    """What `sandbox.mode: null` comes to: `bind` only for an owner of the workspace who is not root."""
    try:
        owner = workspace.stat().st_uid
    except OSError:
        return "clone"
    return "bind" if owner == os.geteuid() != 0 else "clone"


def _lies_within(path: Path, workspace: Path | None) -> bool:
    # Dotfiles kept in a repository: with that as workspace, an agent can write the user's own file.
    return workspace is not None and path.resolve().is_relative_to(workspace.resolve())


def _refuse_foreign(path: Path) -> None:
    status = path.stat()
    if status.st_uid not in {os.geteuid(), 0} or status.st_mode & stat.S_IWOTH:
        raise ConfigurationError(
            "others than you can write this file, so it could loosen your fences; make it yours "
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
