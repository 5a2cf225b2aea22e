"""Reads the user's git configuration: name and address, ignore rules, and files of the workspace that git obeys.

A configuration may name files in the workspace (an include, a link, an ignore file, a hook, a program), which an agent
may have written. They are not read or run here; the user's git does that, so the caller guards those files.

Git parses one file at a time, without its includes, and this module follows the includes. `git config --list
--includes` would read files of the workspace, and omit an include whose condition (`includeIf`) does not hold at the
moment: it may hold for the user's git later, on another branch for example.
"""

import os
import pwd
import re
import secrets
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ringfence.errors import InfrastructureFault, PolicyRefused
from ringfence.frozen import frozen
from ringfence.process import ProcessResult
from ringfence.sandbox.workspace.git.command import git_program, run_git
from ringfence.sandbox.workspace.git.layout import GitLayout, read_small
from ringfence.sandbox.workspace.git.private import Identity
from ringfence.sandbox.workspace.run_as import Actor

_MAX_FILES = 200
_MAX_BYTES = 1024**2
_MAX_SETTINGS = 10_000
_MAX_HOOKS = 200
_MAX_LINKS = 40
_TIMEOUT_S = 10.0
_SHORT_BYTES = 64 * 1024
"""Files up to this length are parsed once per process and contents: a loop opens its workspace 8 times per story."""
_MOST_PARSED = 64
_PARSED: dict[bytes, bytes] = {}
"""Cache of git's listings, by the contents of the file."""
_BOM = b"\xef\xbb\xbf"
_USED = ("user.name", "user.email")
_NAMES_FILES = (
    (("alias.", "pager.", "filter.", "sendemail.", "instaweb."), ("",)),
    (
        "core.",
        (
            *(".hookspath", ".fsmonitor", ".editor", ".pager", ".sshcommand", ".askpass", ".gitproxy"),
            *(".attributesfile", ".excludesfile", ".alternaterefscommand"),
        ),
    ),
    ("gpg.", (".program", ".defaultkeycommand", ".allowedsignersfile", ".revocationfile")),
    ("diff.", (".external", ".command", ".textconv")),
    (("difftool.", "mergetool.", "guitool.", "browser.", "man."), (".cmd", ".path")),
    (("hook.", "tar."), (".command",)),
    ("trailer.", (".cmd", ".command")),
    ("merge.", (".driver",)),
    ("credential.", (".helper",)),
    ("submodule.", (".update",)),
    ("remote.", (".uploadpack", ".receivepack")),
    ("lfs.", (".path", ".args", ".clean", ".smudge")),
    (("init.", "commit."), (".templatedir", ".template")),
    ("sequence.", (".editor",)),
    ("interactive.", (".difffilter",)),
    ("uploadpack.", (".packobjectshook",)),
    ("imap.", (".tunnel",)),
    ("svn.", (".authorsprog",)),
)
"""Prefixes and suffixes of the keys whose values name programs that git runs, or files that it reads
(git-config(1))."""
_IS_PATH = (
    *(".path", ".hookspath", ".excludesfile", ".attributesfile", ".templatedir", ".template"),
    *(".allowedsignersfile", ".revocationfile"),
)
"""Suffixes of the keys whose value is a path, not a command."""
_EXPANSION = re.compile(r"`[^`]*`|\$\{?\w*\}?")
_HAS_SUFFIX = re.compile(r"[^%*].*\.\w+")
_DEPTH = 4
_MAX_LETTERS = 16_384


@frozen
class UserSettings:
    """The settings of the user's configuration that are used here."""

    identity: Identity = field(default_factory=Identity)
    excludes: bytes = b""
    """Contents of the user's own ignore file."""
    obeyed: tuple[str, ...] = ()
    """Paths in the workspace that the user's git runs or reads because the configuration names them."""
    obeyed_if_created: tuple[str, ...] = ()
    """Paths in the workspace that git would run if they existed: words of the configuration that may be paths."""


async def read_settings(actor: Actor, workspace: Path, layout: GitLayout | None) -> UserSettings:
    """Read the git configuration of a user. Git only parses files here; nothing a configuration names is run.

    Args:
        actor: The user.
        workspace: The workspace, resolved.
        layout: Its repository.

    Raises:
        PolicyRefused: The configuration exceeds the limits for reading it.
        InfrastructureFault: Git did not parse a file in time.
    """
    home = _home(actor)
    environ = {} if actor.switches else dict(os.environ)
    reader = _Reader(actor, workspace, home)
    files = _config_files(environ, home)
    await reader.parse_together([*files, *([layout.common / "config"] if layout is not None else [])])
    for file in files:
        await reader.read(file)
    if layout is not None:
        await actor.call(lambda: [reader.leads_in(part) for part in _parts_that_may_be_links(layout)])
        await reader.read(layout.common / "config")
        await reader.read(layout.directory / "config.worktree", is_sure=False)
    ignore = _config_home(environ, home) / "git" / "ignore"
    return await actor.call(lambda: reader.settings(ignore))


@frozen
class _Setting:
    key: str
    value: str
    is_sure: bool
    """False for settings under a condition, which is not evaluated here."""


@dataclass
class _Reader:
    """Reads configuration files, and collects the paths in the workspace that they name."""

    actor: Actor
    workspace: Path
    home: Path
    found: list[_Setting] = field(default_factory=list)
    obeyed: set[str] = field(default_factory=set)
    obeyed_if_created: set[str] = field(default_factory=set)
    seen: set[tuple[Path, bool]] = field(default_factory=set)
    size_bytes: int = 0

    async def read(self, file: Path, *, is_sure: bool = True) -> None:
        """Read a file and all its includes, under any condition, except files in the workspace."""
        if (file, is_sure) in self.seen:
            return
        self.seen.add((file, is_sure))
        if len(self.seen) > _MAX_FILES:
            raise PolicyRefused(
                f"your git configuration includes more than {_MAX_FILES} files, the last of them {str(file)!r}, and"
                " what it leads to in the workspace cannot be guarded; include fewer",
                rule="too-many-includes",
            )
        if not await self.actor.call(lambda: self._may_be_read(file)):
            return
        for key, value in await self._settings_in(file):
            self.found.append(_Setting(key, value, is_sure))
            if _is_include(key) and value:
                included = _normal(self._expand(value, file.parent))
                await self.read(included, is_sure=is_sure and key == "include.path")

    def _may_be_read(self, file: Path) -> bool:
        return not self.leads_in(file) and os.path.isfile(file)  # noqa: PTH113 -- never raises

    async def parse_together(self, files: Sequence[Path]) -> None:
        """Parse several files with one git. If that fails, each is parsed alone when it is read."""
        contents = await self.actor.call(
            lambda: [_read_short(file) for file in files if self._may_be_read(file)]
        )
        new = [data for data in dict.fromkeys(contents) if data and data not in _PARSED]
        if len(new) < 2:
            return
        mark = f"ringfence-{secrets.token_hex(16)}"  # no file can contain it
        header = f"\n[{mark}]\n\tnext\n".encode()
        result = await self._run_git("-", stdin=b"".join(header + data.removeprefix(_BOM) for data in new))
        parts = result.stdout.split(f"{mark}.next\0".encode())[1:]
        if result.ok and not result.truncated and len(parts) == len(new):
            for data, listing in zip(new, parts, strict=True):
                _remember(data, listing)

    async def _settings_in(self, file: Path) -> list[tuple[str, str]]:
        """The relevant settings of a file; none if git rejects the file, which stops the user's git, too."""
        listing = await self._list(file)
        entries = (entry.partition("\n") for entry in listing.decode("utf-8", "replace").split("\0"))
        pairs = [(key.lower(), value) for key, _, value in entries]
        pairs = [pair for pair in pairs if pair[0] in _USED or _is_include(pair[0]) or _names_files(pair[0])]
        self.size_bytes += len(listing)
        if self.size_bytes > _MAX_BYTES or len(self.found) + len(pairs) > _MAX_SETTINGS:
            raise _too_long(file)
        return pairs

    async def _list(self, file: Path) -> bytes:
        """Git's listing of a file; a short file with contents that were listed before is not parsed again."""
        data = await self.actor.call(lambda: _read_short(file))
        if data is not None and data in _PARSED:
            return _PARSED[data]
        result = await (self._run_git(str(file)) if data is None else self._run_git("-", stdin=data))
        if result.truncated:
            raise _too_long(file)
        if result.timed_out or result.exit_code < 0:
            raise InfrastructureFault(
                f"git did not say in {_TIMEOUT_S:g} s what {str(file)!r} of your git configuration holds, and what it"
                " leads to in the workspace cannot be guarded; see to that file, or try again"
            )
        if data is not None and result.ok:
            _remember(data, result.stdout)
        return result.stdout

    async def _run_git(self, file: str, *, stdin: bytes = b"") -> ProcessResult:
        return await run_git(
            ["config", "--file", file, "--no-includes", "-z", "--list"],
            env={"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
            cwd=Path("/"),
            timeout_s=_TIMEOUT_S,
            stdin=stdin,
            output_limit_bytes=_MAX_BYTES,
            stop_at_limit=True,
            actor=self.actor,
        )

    def settings(self, ignore: Path) -> UserSettings:
        """Combine the settings of all files that were read; `ignore` is the ignore file if they name no other."""
        sure = {setting.key: setting.value for setting in self.found if setting.is_sure}
        named = sure.get("core.excludesfile")
        ignore = self._expand(named, self.workspace) if named else ignore
        excludes = b""
        if not self.leads_in(ignore):
            excludes = read_small(ignore.parent, os.fsencode(ignore.name)) or b""
        for path, is_word in sorted({one for setting in self.found for one in _paths_in(setting)}):
            self._note(path, is_word=is_word)
        return UserSettings(
            Identity(sure.get("user.name") or "agent", sure.get("user.email") or "agent@localhost"),
            excludes,
            tuple(sorted(self.obeyed)),
            tuple(sorted(self.obeyed_if_created - self.obeyed)),
        )

    def _note(self, text: str, *, is_word: bool) -> None:
        """Note a word that may be the path of a file in the workspace, at whose top git runs most programs."""
        path = self._expand(text, self.workspace)
        # A word without a slash or suffix is a path only if such a file exists (as for `clean` in `git-lfs clean`).
        is_doubtful = is_word and "/" not in text and not _HAS_SUFFIX.fullmatch(text)
        if is_word and not os.path.lexists(path):
            self.obeyed_if_created |= set() if is_doubtful else self._inside({str(_normal(path))})
        elif not (is_doubtful and os.path.isdir(path) and not os.path.islink(path)):  # noqa: PTH112, PTH114 -- these never fail
            self.leads_in(path)

    def leads_in(self, path: Path) -> bool:
        """Whether a path, or the target of the link there, is in the workspace outside its git directory."""
        inside = self._inside(_ways(path))
        self.obeyed |= inside
        return bool(inside)

    def _inside(self, ways: set[str]) -> set[str]:
        paths = (
            Path(way).relative_to(self.workspace) for way in ways if Path(way).is_relative_to(self.workspace)
        )
        return {str(path) for path in paths if path.parts[:1] != (".git",)}

    def _expand(self, text: str, base: Path) -> Path:
        clean = text.replace("\0", "")
        if clean.startswith("~/"):
            return self.home / clean[2:]
        if clean.startswith("~"):
            return Path(os.path.expanduser(clean))  # noqa: PTH111 -- keeps `~name` if there is no such user
        return base / clean


def _read_short(file: Path) -> bytes | None:
    """A file's contents; None if it is too long, unreadable, or not a regular file."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as opened:  # noqa: PTH123 -- a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = opened.read(_SHORT_BYTES + 1)
    return data if len(data) <= _SHORT_BYTES else None


def _remember(data: bytes, listing: bytes) -> None:
    if len(_PARSED) >= _MOST_PARSED:
        _PARSED.clear()
    _PARSED[data] = listing


def _too_long(file: Path) -> PolicyRefused:
    return PolicyRefused(
        f"your git configuration says more than {_MAX_BYTES // 1024**2} MiB, or names more than"
        f" {_MAX_SETTINGS} programs and files, in or before {str(file)!r}, and what it leads to in the"
        " workspace cannot be guarded; have it say less",
        rule="too-many-settings",
    )


def _ways(path: Path) -> set[str]:
    """A path, each link on its way, and its target: changing any of them changes the file that it names."""
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


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _config_files(environ: Mapping[str, str], home: Path) -> list[Path]:
    """The configuration files of the system and of the user, in git's order: the last one wins."""
    # The path that git was built with; for a git in another place, the file beside it.
    prefix = _normal(Path(git_program())).parent.parent
    files = [Path("/etc/gitconfig"), prefix / "etc" / "gitconfig"]
    if named := environ.get("GIT_CONFIG_SYSTEM"):
        files = [Path(named)]
    if environ.get("GIT_CONFIG_NOSYSTEM", "").lower() in ("1", "true", "yes", "on"):
        files = []
    if (named := environ.get("GIT_CONFIG_GLOBAL")) is not None:
        return [*files, Path(named)]
    return [*files, _config_home(environ, home) / "git" / "config", home / ".gitconfig"]


def _config_home(environ: Mapping[str, str], home: Path) -> Path:
    named = environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if named.startswith("/") else home / ".config"


def _parts_that_may_be_links(layout: GitLayout) -> list[Path]:
    """Entries of a git directory that git reads even if they are links to elsewhere."""
    hooks = layout.common / "hooks"
    parts = [layout.common / name for name in ("config", "info/exclude", "info/attributes")] + [hooks]
    with suppress(OSError):
        parts += sorted(hooks.iterdir())[:_MAX_HOOKS]
    return parts


def _home(actor: Actor) -> Path:
    if not actor.switches:
        return Path.home()
    with suppress(KeyError):
        return Path(pwd.getpwuid(actor.uid).pw_dir)
    return Path("/nonexistent")


def _is_include(key: str) -> bool:
    """Whether a setting makes git read a further file, perhaps under a condition."""
    return key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))


def _names_files(key: str) -> bool:
    return any(key.startswith(begins) and key.endswith(ends) for begins, ends in _NAMES_FILES)


def _paths_in(setting: _Setting) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a value that may be paths of files, each with whether it may just as well be a mere word."""
    key, value = setting.key, setting.value
    if not _names_files(key):
        return
    if key.endswith(_IS_PATH):
        yield value, False
        return
    if key.startswith("alias.") and not value.startswith("!"):
        # An alias of a git command runs no file that it names, but may contain settings.
        for option, word in pairwise(_words(value)):
            inner, _, text = word.partition("=")
            if option == "-c" and text:
                yield from _paths_in(_Setting(inner.lower(), text, setting.is_sure))
        return
    for word in _in_command(value[:_MAX_LETTERS].removeprefix("!"), _DEPTH):
        yield word, not word.startswith(("/", "~"))


def _in_command(text: str, depth: int) -> Iterator[str]:
    """Words of a command that may be paths. Only its shell could tell, so rather too many than too few.

    A word without a slash is a path only as an argument: as a program, it is searched for in PATH.
    """
    is_expanded = "$" in text or "`" in text or depth < _DEPTH
    for before, word in pairwise(("", *_words(text))):
        if depth > 0 and any(letter.isspace() for letter in word):
            yield from _in_command(word, depth - 1)
        if before or "/" in word:
            yield from _in_word(word, is_expanded=is_expanded)
        if before == "cd":
            yield f"{word}/."


def _in_word(word: str, *, is_expanded: bool) -> Iterator[str]:
    """A word, and the parts of it that may be a path: after `=`, between colons, after shell expansions."""
    for part in {word, *word.partition("=")[2].split(":"), *word.split(":")}:
        if not part.strip(".") or part.startswith("-"):
            continue
        yield part
        rest = _EXPANSION.sub("", part).strip("\"'`").lstrip("/")
        if is_expanded and rest and rest != part:
            yield rest


def _words(text: str) -> list[str]:
    """Split words as a shell does; at blanks if a shell would fail."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return text.replace('"', " ").replace("'", " ").split()
