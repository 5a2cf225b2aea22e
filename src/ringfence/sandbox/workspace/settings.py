"""What the user's own git configuration says: name and address, ignore rules, and what of the workspace it obeys.

A configuration may lead into the workspace (an include, a link, an ignore file), where an agent wrote it. What
does so is not followed by us, and told: the user's own git does follow it.
"""

import os
import pwd
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.process import run_process
from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.git import git_program
from ringfence.sandbox.workspace.git_layout import GitLayout, read_config, read_small
from ringfence.sandbox.workspace.private_git import Identity

_MAX_FILES = 32
_MAX_HOOKS = 200
_NAMES_A_FILE = re.compile(
    r"include(if\..*)?\.path|alias\..*|pager\..*|filter\..*|credential\.(.*\.)?helper|gpg\.(.*\.)?program"
    r"|core\.(hookspath|fsmonitor|editor|pager|sshcommand|askpass|gitproxy|attributesfile|excludesfile"
    r"|alternaterefscommand)|sequence\.editor|interactive\.difffilter|diff\.external|diff\..*\.(command|textconv)"
    r"|merge\..*\.driver|(diff|merge)tool\..*\.(cmd|path)|browser\..*\.(cmd|path)|trailer\..*\.(cmd|command)"
    r"|remote\..*\.(uploadpack|receivepack)|uploadpack\.packobjectshook|init\.templatedir|commit\.template",
    re.DOTALL,
)
"""Settings whose value is a program to git, or a file that it follows (git-config(1))."""
_PATHS = (".path", ".hookspath", ".excludesfile", ".attributesfile", ".templatedir", ".template")
"""Of these, the ones whose value is a path as a whole, not a command."""
_RELATIVE_TO_WORKSPACE = ("core.hookspath", "core.excludesfile", "core.attributesfile")


@dataclass(frozen=True)
class UserSettings:
    """Taken from the user's configuration, not from the workspace's."""

    identity: Identity = field(default_factory=Identity)
    excludes: bytes = b""
    """Contents of the user's own ignore file."""
    obeyed: tuple[str, ...] = ()
    """Paths in the workspace that the user's git runs or follows because the configuration leads there."""


@dataclass(frozen=True)
class _Setting:
    key: str
    value: str
    file: Path


async def read_settings(actor: Actor, workspace: Path, layout: GitLayout | None) -> UserSettings:
    """Read the settings of a user. Git only parses files here; nothing a configuration names is run.

    Args:
        actor: The user.
        workspace: The workspace, resolved.
        layout: Its repository.
    """
    home = _home(actor)
    found = _Found(actor, workspace, home)
    for file in _global_files(actor, home):
        await found.read(file)
    settings = {setting.key: setting.value for setting in found.settings}
    local = (
        await actor.call(lambda: read_config(read_small(layout.common, b"config") or b"")) if layout else {}
    )
    merged = settings | {key: value for key, value in local.items() if key.startswith("user.")}
    identity = Identity(merged.get("user.name") or "agent", merged.get("user.email") or "agent@localhost")
    named = settings.get("core.excludesfile")
    file = _expanded(named, home, home) if named else _config_home(actor, home) / "git" / "ignore"
    excludes = b""
    if not await found.leads_in(file):
        excludes = await actor.call(lambda: read_small(file.parent, os.fsencode(file.name)) or b"")
    if layout is not None:
        for part in await actor.call(lambda: _parts_that_may_be_links(layout)):
            await found.leads_in(part)
        await found.read(layout.common / "config", includes=False)
    await found.look_at_values()
    return UserSettings(identity, excludes, tuple(sorted(found.obeyed)))


@dataclass
class _Found:
    """What was read so far."""

    actor: Actor
    workspace: Path
    home: Path
    settings: list[_Setting] = field(default_factory=list)
    obeyed: set[str] = field(default_factory=set)
    files: int = 0

    async def read(self, file: Path, *, includes: bool = True) -> None:
        """Read a file and what it includes, but for what lies in the workspace."""
        self.files += 1
        if self.files > _MAX_FILES or await self.leads_in(file):
            return
        for setting in await _parse(self.actor, file):
            self.settings.append(setting)
            if setting.key == "include.path" and includes:
                await self.read(_expanded(setting.value, self.home, file.parent))

    async def look_at_values(self) -> None:
        """Note each value that is, or begins with, a path in the workspace."""
        for setting in self.settings:
            key, is_program = setting.key, not setting.key.endswith(_PATHS)
            if not _NAMES_A_FILE.fullmatch(key) or not setting.value:
                continue
            text = setting.value.lstrip("!").partition(" ")[0] if is_program else setting.value
            base = self.workspace if key in _RELATIVE_TO_WORKSPACE else setting.file.parent
            if text.startswith(("/", "~/")) or not is_program:
                await self.leads_in(_expanded(text, self.home, base))

    async def leads_in(self, path: Path) -> bool:
        """Whether a path, or what it is a link to, lies in the workspace outside of its git directory."""
        ways = await self.actor.call(lambda: {os.path.normpath(path), os.path.realpath(path)})
        inside = [Path(way).relative_to(self.workspace) for way in ways if self._holds(Path(way))]
        self.obeyed.update(map(str, inside))
        return bool(inside)

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self.workspace) and path.relative_to(self.workspace).parts[:1] != (".git",)


async def _parse(actor: Actor, file: Path) -> list[_Setting]:
    if not await actor.call(file.is_file):
        return []
    command = [git_program(), "config", "--file", str(file), "--no-includes", "-z", "--list"]
    found: list[_Setting] = []
    with suppress(InfrastructureFault):
        result = await run_process(
            command,
            env={"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
            cwd=Path("/"),
            timeout_s=10.0,
            output_limit_bytes=1024**2,
            user=actor.process_user,
            group=actor.process_group,
        )
        for entry in result.stdout.decode("utf-8", "replace").split("\0"):
            key, _, value = entry.partition("\n")
            found.append(_Setting(key.lower(), value, file))
    return found


def _global_files(actor: Actor, home: Path) -> list[Path]:
    """As git reads them, the last one wins."""
    named = os.environ.get("GIT_CONFIG_GLOBAL") if not actor.switches else None
    if named is not None:
        return [Path(named)]
    return [_config_home(actor, home) / "git" / "config", home / ".gitconfig"]


def _parts_that_may_be_links(layout: GitLayout) -> list[Path]:
    """What git follows in a git directory though it may be a link to elsewhere."""
    hooks = layout.common / "hooks"
    parts = [layout.common / name for name in ("config", "info/exclude", "info/attributes")] + [hooks]
    with suppress(OSError):
        parts += sorted(hooks.iterdir())[:_MAX_HOOKS]
    return parts


def _expanded(text: str, home: Path, base: Path) -> Path:
    clean = text.replace("\0", "")
    return home / clean[2:] if clean.startswith("~/") else base / clean


def _home(actor: Actor) -> Path:
    if not actor.switches:
        return Path.home()
    with suppress(KeyError):
        return Path(pwd.getpwuid(actor.uid).pw_dir)
    return Path("/nonexistent")


def _config_home(actor: Actor, home: Path) -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "") if not actor.switches else ""
    return Path(named) if named.startswith("/") else home / ".config"
