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
from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.git.command import git_program, run_git
from ringfence.sandbox.workspace.git.layout import GitLayout, read_config, read_small
from ringfence.sandbox.workspace.git.named_files import (
    is_doubtful,
    is_include,
    is_path,
    names_a_file,
    paths_in,
)
from ringfence.sandbox.workspace.git.private import Identity

_MAX_FILES = 200
_MAX_BYTES = 1024**2
_MAX_SETTINGS = 10_000
_MAX_HOOKS = 200
_MAX_LINKS = 40
_SETTLED_NS = 2_000_000_000
_TIMEOUT_S = 10.0
_Pairs = tuple[tuple[str, str], ...]
_USED = frozenset({"user.name", "user.email"})


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
        PolicyRefused: It is more than is looked at.
        InfrastructureFault: Git does not say what a file holds.
    """
    look = _Look(actor, workspace, layout)
    while True:
        try:
            return await actor.call(look.settings)
        except _Unread as unread:
            await look.ask_git(unread)


class _Unread(Exception):
    """Git has not been asked what a file says."""

    def __init__(self, file: Path, status: os.stat_result) -> None:
        super().__init__(str(file))
        self.file = file
        self.status = status


@dataclass
class _Look:
    """At the whole configuration, in one go; begun anew when git was asked of a file that turned up."""

    actor: Actor
    workspace: Path
    layout: GitLayout | None
    said: dict[Path, "_Said"] = field(default_factory=dict)
    """By git in this look, whatever becomes of the files meanwhile."""

    def settings(self) -> UserSettings:
        """What it comes to, read as the user.

        Raises:
            _Unread: Git has to be asked first.
            PolicyRefused: As `read_settings`.
        """
        actor, layout = self.actor, self.layout
        home = _home(actor)
        found = _Found(self, home)
        for file in (*_system_files(actor), *_global_files(actor, home)):
            found.read(file)
        settings = {setting.key: setting.value for setting in found.settings if setting.is_sure}
        local = read_config(read_small(layout.common, b"config") or b"") if layout else {}
        merged = settings | {key: value for key, value in local.items() if key.startswith("user.")}
        identity = Identity(merged.get("user.name") or "agent", merged.get("user.email") or "agent@localhost")
        named = settings.get("core.excludesfile")
        file = _expanded(named, home, home) if named else _config_home(actor, home) / "git" / "ignore"
        excludes = b""
        if not found.leads_in(file):
            excludes = read_small(file.parent, os.fsencode(file.name)) or b""
        if layout is not None:
            for part in _parts_that_may_be_links(layout):
                found.leads_in(part)
            found.read(layout.common / "config")
            found.read(layout.directory / "config.worktree")
        found.look_at_values()
        return UserSettings(
            identity, excludes, tuple(sorted(found.obeyed)), tuple(sorted(found.perhaps - found.obeyed))
        )

    def told(self, file: Path) -> "_Said":
        """What git says of a file; nothing of what is no file.

        Raises:
            _Unread: Git has not said.
        """
        status = _stat(file)
        if status is None or not stat.S_ISREG(status.st_mode):
            return _Said((), 0)
        said = self.said.get(file) or _parsed.get(_FileKey.of(file, self.actor, status))
        if said is None:
            raise _Unread(file, status)
        return said

    async def ask_git(self, unread: _Unread) -> None:
        """What a file says, for this look, and for later ones where it has not been changed just now."""
        looked_ns = time.time_ns()
        said = self.said[unread.file] = await _asked(self.actor, unread.file)
        # What was changed a moment ago may be changed again and look as it did.
        if looked_ns - unread.status.st_ctime_ns > _SETTLED_NS:
            if len(_parsed) >= _MAX_FILES:
                _parsed.clear()
            _parsed[_FileKey.of(unread.file, self.actor, unread.status)] = said


@dataclass
class _Found:
    """What was read so far."""

    look: _Look
    home: Path
    settings: list[_Setting] = field(default_factory=list)
    obeyed: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)
    seen: set[tuple[Path, bool]] = field(default_factory=set)
    size_bytes: int = 0

    def read(self, file: Path, *, is_sure: bool = True) -> None:
        """Read a file and what it includes under whichever condition, but for what lies in the workspace."""
        file = Path(os.path.normpath(file))
        if (file, is_sure) in self.seen or self.leads_in(file):
            return
        self.seen.add((file, is_sure))
        if len(self.seen) > _MAX_FILES:
            raise PolicyRefused(
                f"your git configuration includes more than {_MAX_FILES} files, the last of them {str(file)!r}, and"
                " what it leads to in the workspace cannot be guarded; include fewer",
                rule="too-many-includes",
            )
        said = self.look.told(file)
        self.size_bytes += said.size_bytes
        if self.size_bytes > _MAX_BYTES or len(self.settings) + len(said.pairs) > _MAX_SETTINGS:
            raise _too_large(file)
        for key, value in said.pairs:
            setting = _Setting(key, value, file, is_sure)
            self.settings.append(setting)
            if is_include(key) and value:
                included = _expanded(value, self.home, file.parent)
                self.read(included, is_sure=is_sure and key == "include.path")

    def look_at_values(self) -> None:
        """Note each word of a value that is a path in the workspace; git runs most of them in its top."""
        wholes: set[Path] = set()
        words: set[str] = set()
        for setting in self.settings:
            for text in paths_in(setting.key, setting.value):
                if is_path(setting.key) or text.startswith(("/", "~")):
                    wholes.add(_expanded(text, self.home, self._workspace))
                else:
                    words.add(text)
        for path in sorted(wholes):
            self.leads_in(path)
        for word in sorted(self._present(words)):
            self.leads_in(self._workspace / word)

    @property
    def _workspace(self) -> Path:
        return self.look.workspace

    def _present(self, words: set[str]) -> set[str]:
        """Those that name what is there; of the others, note the ones that would."""
        present = set()
        for word in words:
            path = self._workspace / _expanded(word, self.home, self._workspace)
            status = _lstat(path)
            if status is None and not is_doubtful(word):
                self.perhaps |= self._inside({os.path.normpath(path)})
            elif status is not None and not (is_doubtful(word) and stat.S_ISDIR(status.st_mode)):
                present.add(word)
        return present

    def leads_in(self, path: Path) -> bool:
        """Whether a path, or what it is a link to, lies in the workspace outside of its git directory."""
        inside = self._inside(_ways(path))
        self.obeyed |= inside
        return bool(inside)

    def _inside(self, ways: set[str]) -> set[str]:
        return {str(Path(way).relative_to(self._workspace)) for way in ways if self._holds(Path(way))}

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self._workspace) and path.relative_to(self._workspace).parts[:1] != (
            ".git",
        )


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


@frozen
class _Said:
    """What git said of a file."""

    pairs: _Pairs
    """Keys and values of the settings that matter to us."""
    size_bytes: int
    """All that it said."""


_parsed: dict[_FileKey, _Said] = {}
"""What git said of files, for a process that has many runs."""


async def _asked(actor: Actor, file: Path) -> _Said:
    """Ask git what a file says.

    Raises:
        PolicyRefused: More than is looked at.
        InfrastructureFault: It does not answer in time. A file that it finds unsound stops the user's git, too.
    """
    result = await run_git(
        ["config", "--file", str(file), "--no-includes", "-z", "--list"],
        env={"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        cwd=Path("/"),
        timeout_s=_TIMEOUT_S,
        output_limit_bytes=_MAX_BYTES,
        stop_at_limit=True,
        actor=actor,
    )
    if result.truncated:
        raise _too_large(file)
    if result.timed_out or result.exit_code < 0:
        raise InfrastructureFault(
            f"git did not say in {_TIMEOUT_S:g} s what {str(file)!r} of your git configuration holds, and what it"
            " leads to in the workspace cannot be guarded; see to that file, or try again"
        )
    entries = (entry.partition("\n") for entry in result.stdout.decode("utf-8", "replace").split("\0"))
    pairs = ((key.lower(), value) for key, _, value in entries)
    return _Said(
        tuple((key, value) for key, value in pairs if key in _USED or is_include(key) or names_a_file(key)),
        len(result.stdout),
    )


def _too_large(file: Path) -> PolicyRefused:
    return PolicyRefused(
        f"your git configuration says more than {_MAX_BYTES // 1024**2} MiB, or names more than {_MAX_SETTINGS}"
        f" programs and files, in or before {str(file)!r}, and what it leads to in the workspace cannot be guarded;"
        " have it say less",
        rule="too-many-settings",
    )


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
