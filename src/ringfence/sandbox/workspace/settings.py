"""What the user's own git configuration says: name and address, ignore rules, and what of the workspace it obeys.

A configuration may lead into the workspace (an include, a link, an ignore file), where an agent wrote it. What
does so is not followed by us, and told: the user's own git does follow it.
"""

import os
import pwd
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.errors import InfrastructureFault, PolicyRefused
from ringfence.frozen import frozen
from ringfence.process import run_process
from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.git import git_program
from ringfence.sandbox.workspace.git_layout import GitLayout, read_config, read_small
from ringfence.sandbox.workspace.named_files import is_doubtful, is_include, is_path, paths_in
from ringfence.sandbox.workspace.private_git import Identity

_MAX_FILES = 200
_MAX_HOOKS = 200
_MAX_LINKS = 40
_SETTLED_NS = 2_000_000_000


@frozen
class UserSettings:
    """Taken from the user's configuration, not from the workspace's."""

    identity: Identity = field(default_factory=Identity)
    excludes: bytes = b""
    """Contents of the user's own ignore file."""
    obeyed: tuple[str, ...] = ()
    """Paths in the workspace that the user's git runs or follows because the configuration leads there."""
    perhaps: tuple[str, ...] = ()
    """Paths where there is nothing, that it would run if the words of its configuration are paths at all."""


@frozen
class _Setting:
    key: str
    value: str
    file: Path
    is_sure: bool
    """False behind a condition, which we do not decide."""


async def read_settings(actor: Actor, workspace: Path, layout: GitLayout | None) -> UserSettings:
    """Read the settings of a user. Git only parses files here; nothing a configuration names is run.

    Args:
        actor: The user.
        workspace: The workspace, resolved.
        layout: Its repository.

    Raises:
        PolicyRefused: More files are included than are looked at.
    """
    home = _home(actor)
    found = _Found(actor, workspace, home)
    for file in (*_system_files(actor), *_global_files(actor, home)):
        await found.read(file)
    settings = {setting.key: setting.value for setting in found.settings if setting.is_sure}
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
        await found.read(layout.common / "config")
        await found.read(layout.directory / "config.worktree")
    await found.look_at_values()
    return UserSettings(
        identity, excludes, tuple(sorted(found.obeyed)), tuple(sorted(found.perhaps - found.obeyed))
    )


@dataclass
class _Found:
    """What was read so far."""

    actor: Actor
    workspace: Path
    home: Path
    settings: list[_Setting] = field(default_factory=list)
    obeyed: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)
    seen: set[tuple[Path, bool]] = field(default_factory=set)

    async def read(self, file: Path, *, is_sure: bool = True) -> None:
        """Read a file and what it includes under whichever condition, but for what lies in the workspace."""
        file = Path(os.path.normpath(file))  # noqa: ASYNC240 -- it only looks at the text
        if (file, is_sure) in self.seen or await self.leads_in(file):
            return
        self.seen.add((file, is_sure))
        if len(self.seen) > _MAX_FILES:
            raise PolicyRefused(
                f"your git configuration includes more than {_MAX_FILES} files, the last of them {str(file)!r}, and"
                " what it leads to in the workspace cannot be guarded; include fewer",
                rule="too-many-includes",
            )
        for setting in await _parse(self.actor, file, is_sure=is_sure):
            self.settings.append(setting)
            if is_include(setting.key) and setting.value:
                included = _expanded(setting.value, self.home, file.parent)
                await self.read(included, is_sure=is_sure and setting.key == "include.path")

    async def look_at_values(self) -> None:
        """Note each word of a value that is a path in the workspace; git runs most of them in its top."""
        wholes: set[Path] = set()
        words: set[str] = set()
        for setting in self.settings:
            for text in paths_in(setting.key, setting.value):
                if is_path(setting.key) or text.startswith(("/", "~")):
                    wholes.add(_expanded(text, self.home, self.workspace))
                else:
                    words.add(text)
        for path in sorted(wholes):
            await self.leads_in(path)
        for word in sorted(await self.actor.call(lambda: self._present(words))):
            await self.leads_in(self.workspace / word)

    def _present(self, words: set[str]) -> set[str]:
        """Those that name what is there; of the others, note the ones that would."""
        present = set()
        for word in words:
            path = self.workspace / _expanded(word, self.home, self.workspace)
            status = _lstat(path)
            if status is None and not is_doubtful(word):
                self.perhaps |= self._inside({os.path.normpath(path)})
            elif status is not None and not (is_doubtful(word) and stat.S_ISDIR(status.st_mode)):
                present.add(word)
        return present

    async def leads_in(self, path: Path) -> bool:
        """Whether a path, or what it is a link to, lies in the workspace outside of its git directory."""
        inside = self._inside(await self.actor.call(lambda: _ways(path)))
        self.obeyed |= inside
        return bool(inside)

    def _inside(self, ways: set[str]) -> set[str]:
        return {str(Path(way).relative_to(self.workspace)) for way in ways if self._holds(Path(way))}

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self.workspace) and path.relative_to(self.workspace).parts[:1] != (".git",)


def _ways(path: Path) -> set[str]:
    """A path, each link on the way along it, and where it leads: to change any of them is to change what it names."""
    ways = {os.path.realpath(path)}
    pending = os.path.normpath(path)
    for _ in range(_MAX_LINKS):
        ways.add(pending)
        whole = Path(pending)
        link = next((part for part in (*reversed(whole.parents), whole) if os.path.islink(part)), None)  # noqa: PTH114 -- this one never fails
        if link is None:
            break
        ways.add(str(link))
        with suppress(OSError):  # gone meanwhile
            pending = os.path.normpath(link.parent / link.readlink() / whole.relative_to(link))
    return ways


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


async def _parse(actor: Actor, file: Path, *, is_sure: bool) -> list[_Setting]:
    status = await actor.call(lambda: _stat(file))
    if status is None or not stat.S_ISREG(status.st_mode):
        return []
    looked_ns = time.time_ns()
    key = _FileKey.of(file, actor, status)
    pairs = _parsed.get(key)
    if pairs is None:
        pairs = await _pairs(actor, file)
        # What was changed a moment ago may be changed again and look as it did.
        if pairs is not None and looked_ns - status.st_ctime_ns > _SETTLED_NS:
            if len(_parsed) >= _MAX_FILES:
                _parsed.clear()
            _parsed[key] = pairs
    return [_Setting(key, value, file, is_sure) for key, value in pairs or ()]


@frozen
class _FileKey:
    """A file as it was when it was read, and by whom."""

    file: Path
    uid: int
    status: tuple[int, ...]

    @classmethod
    def of(cls, file: Path, actor: Actor, status: os.stat_result) -> "_FileKey":
        """Of a file as it is."""
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(file, actor.uid, (status.st_dev, status.st_ino, status.st_size, *times))


_parsed: dict[_FileKey, tuple[tuple[str, str], ...]] = {}
"""What git said of files, for a process that has many runs."""


async def _pairs(actor: Actor, file: Path) -> tuple[tuple[str, str], ...] | None:
    """Keys and values of a file; None where git does not say."""
    with suppress(InfrastructureFault):
        result = await run_process(
            [git_program(), "config", "--file", str(file), "--no-includes", "-z", "--list"],
            env={"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
            cwd=Path("/"),
            timeout_s=10.0,
            output_limit_bytes=1024**2,
            user=actor.process_user,
            group=actor.process_group,
        )
        entries = (entry.partition("\n") for entry in result.stdout.decode("utf-8", "replace").split("\0"))
        return tuple((key.lower(), value) for key, _, value in entries)
    return None


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None


def _system_files(actor: Actor) -> list[Path]:
    """As git was built to find them, or is told; those of a git that lies elsewhere are beside it."""
    if not actor.switches:
        if os.environ.get("GIT_CONFIG_NOSYSTEM", "").lower() in ("1", "true", "yes", "on"):
            return []
        if named := os.environ.get("GIT_CONFIG_SYSTEM"):
            return [Path(named)]
    prefix = Path(os.path.normpath(git_program())).parent.parent
    return list(dict.fromkeys([Path("/etc/gitconfig"), prefix / "etc" / "gitconfig"]))


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
    if clean.startswith("~/"):
        return home / clean[2:]
    if clean.startswith("~"):
        return Path(os.path.expanduser(clean))  # noqa: PTH111 -- another user's home; it stays as it is if there is none
    return base / clean


def _home(actor: Actor) -> Path:
    if not actor.switches:
        return Path.home()
    with suppress(KeyError):
        return Path(pwd.getpwuid(actor.uid).pw_dir)
    return Path("/nonexistent")


def _config_home(actor: Actor, home: Path) -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "") if not actor.switches else ""
    return Path(named) if named.startswith("/") else home / ".config"
