"""Builds the file system that a bubblewrap fence shows, as arguments for bwrap.

The system and the user's toolchains are read-only, `/etc` holds a short list of files, and everything else is empty
and private. Other sources are bound by descriptor without following links, so nothing inside can swap a path meanwhile.
"""

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ringfence.config.paths import state_dir
from ringfence.errors import SandboxStartFailed
from ringfence.frozen import frozen
from ringfence.sandbox.base import Launch
from ringfence.sandbox.bubblewrap.stage import Staging

HOME = "/home/agent"
_TOOLCHAINS = (
    ".pyenv/versions", ".pyenv/shims", ".pyenv/bin", ".pyenv/libexec", ".pyenv/plugins", ".pyenv/version",
    ".local/share/uv/python", ".local/share/uv/tools", ".local/share/pipx", ".local/pipx", ".local/bin",
    ".local/lib/node_modules", ".local/share/claude/versions", ".npm-global/bin",
    ".npm-global/lib/node_modules", ".nvm/versions", ".fnm", ".local/share/fnm", ".volta/bin",
    ".volta/tools", ".bun/bin", ".deno/bin", ".cargo/bin", ".rustup/toolchains", ".rustup/settings.toml",
    ".rustup/update-hashes", ".sdkman/candidates", ".jdks", ".rbenv/versions", ".rbenv/shims",
    ".asdf/installs", ".asdf/shims", ".asdf/bin", ".local/share/mise/installs", ".local/share/mise/shims",
    "go/bin", ".go/bin", "miniconda3", "anaconda3", "miniforge3", ".ghcup/bin", ".dotnet",
)  # fmt: skip
"""Toolchains below the user's home that are shown read-only. Credentials stored beside one are not in the table.

Only paths in this table are ever shown, never a directory because a link in the workspace points there: an agent may
have made that link to read it.
"""
_VARIABLES = {"PYENV_ROOT": ".pyenv", "RUSTUP_HOME": ".rustup", "RBENV_ROOT": ".rbenv", "ASDF_DIR": ".asdf"}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/snap")
"""Directories of the system that are shown read-only as they are."""
_DEFAULT_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts",
    "host.conf", "inputrc", "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "login.defs",
    "lsb-release", "magic", "maven", "mime.types", "nsswitch.conf", "os-release", "perl", "pki", "profile",
    "protocols", "python3", "services", "shells", "ssl", "terminfo", "timezone", "xattr.conf",
)  # fmt: skip
_PRIVATE = ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/CA/private")
"""Keys of the machine's services, which a group may read; an ordinary caller keeps his groups inside."""
_MASKED = ("kallsyms", "kcore", "key-users", "keys", "latency_stats", "sched_debug", "timer_list")
"""Files of `/proc` that reveal information about the machine or the user outside the sandbox."""
_SHM_BYTES = 64 * 1024**2


@dataclass
class Arguments:
    """Arguments for `bwrap --args` and the descriptors they name; `close` closes the descriptors."""

    staging: Staging | None = None
    """For a root caller: sources are staged rather than bound by descriptor."""
    words: list[str] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    """The descriptors that bwrap inherits, unless it is staged."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _pipe: BinaryIO | None = None

    def add(self, *words: object) -> None:
        """Append arguments."""
        self.words += [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words]

    def hold(self, descriptor: int) -> int:
        """Take ownership of a descriptor, so that `close` closes it."""
        self._stack.callback(os.close, descriptor)
        return descriptor

    def pass_descriptor(self, descriptor: int) -> int:
        """Pass a descriptor that is owned here to bwrap; return its number there."""
        if self.staging is not None:
            return self.staging.pass_descriptor(descriptor)
        self.descriptors.append(descriptor)
        return descriptor

    def bind(
        self,
        source: Path,
        target: Path | str,
        *,
        read_only: bool,
        within: Path | None = None,
        is_idmapped: bool = False,
    ) -> None:
        """Mount `source`, as it is now, on `target`.

        Args:
            source: On the host.
            target: Inside.
            read_only: Whether it cannot be written there.
            within: A directory that an agent may write to: no link is followed on the way from it to the source.
            is_idmapped: Whether root's files belong to the sandbox's user there.
        """
        try:
            descriptor = self.hold(_open(source, within))
        except OSError as exc:
            raise SandboxStartFailed(
                f"cannot show {str(source)!r} inside the sandbox: {exc.strerror}"
            ) from exc
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            raise SandboxStartFailed(f"cannot show {str(source)!r} inside the sandbox: it is a symbolic link")
        if self.staging is not None:
            staged = self.staging.add(source, status, is_idmapped=is_idmapped)
            self.add("--ro-bind" if read_only else "--bind", staged, target)
        else:
            assert not is_idmapped  # only root has files of root's to show
            self.add("--ro-bind-fd" if read_only else "--bind-fd", self.pass_descriptor(descriptor), target)

    def data(self, text: bytes, target: str) -> None:
        """Add a file with these bytes to the root of the sandbox, which is read-only once it is complete."""
        self.copy(self.hold(memory_file(text)), target)

    def copy(self, descriptor: int, target: str) -> None:
        """Add a file with everything read from `descriptor`. A mount takes bwrap 0.2 ms, a small file no time."""
        self.add("--perms", "0444", "--file", self.pass_descriptor(descriptor), target)

    def open_pipe(self) -> int:
        """Open the pipe from which bwrap reads the arguments; return the number of its end in bwrap."""
        read_end, write_end = os.pipe()
        self._pipe = self._stack.enter_context(os.fdopen(write_end, "wb"))
        return self.pass_descriptor(self.hold(read_end))

    def send(self) -> None:
        """Write the arguments to the pipe and close it; block while bwrap does not read."""
        assert self._pipe is not None
        with suppress(BrokenPipeError), self._pipe:  # if bwrap is gone, its stderr says why
            self._pipe.write(b"".join(os.fsencode(word) + b"\0" for word in self.words))

    def close(self) -> None:
        """Close all descriptors held."""
        if self.staging is not None:
            self.staging.close()
        self._stack.close()


def _open(source: Path, within: Path | None) -> int:
    """Open a path to mount it; a link as the last component is opened itself, one on the way is refused."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    if within is None or not source.is_relative_to(within):
        return os.open(source, flags)
    folder = os.open(within, flags)
    for name in source.relative_to(within).parts:
        if name == "..":
            os.close(folder)
            raise OSError(errno.EINVAL, "its path leads upwards", str(source))
        try:
            # A link, like any other non-directory, cannot be opened as a directory: O_DIRECTORY is implied here.
            inner = os.open(name, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def memory_file(data: bytes) -> int:
    """A descriptor to read `data` from, without a file on disk."""
    descriptor = os.memfd_create("ringfence", os.MFD_CLOEXEC)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def add_mounts(arguments: Arguments, launch: Launch, toolchains: Iterable[Path]) -> None:
    """Build the whole file system view, in the order in which bwrap makes it."""
    spec, placement = launch.spec, launch.placement
    _add_system(arguments)
    home, state = str(Path.home()), str(state_dir())
    for private in (home, os.path.realpath(home), state, os.path.realpath(state)):
        if lies_in(private, SYSTEM) and os.path.isdir(private):  # noqa: PTH112 -- a text, to be quick
            arguments.add("--perms", "0755", "--size", 1024**2, "--tmpfs", private)
    _add_etc(arguments, placement.uid, placement.gid, names=spec.host_names())
    arguments.add("--proc", "/proc", "--dev", "/dev")
    # The settings of the sandbox's own IPC namespace belong to its user, who could write them.
    arguments.add("--ro-bind", "/proc/sys", "/proc/sys")
    for path in (f"/proc/{name}" for name in _MASKED):
        if os.path.exists(path):  # noqa: PTH110 -- a text, to be quick
            arguments.add("--ro-bind", "/dev/null", path)
    arguments.add("--perms", "1777", "--size", _SHM_BYTES, "--tmpfs", "/dev/shm")  # noqa: S108 -- inside
    arguments.add("--perms", "1777", "--size", spec.tmp, "--tmpfs", "/tmp")  # noqa: S108 -- inside
    arguments.add("--perms", "0700", "--size", spec.tmp, "--tmpfs", HOME)
    if placement.workspace is not None and placement.workspace.is_relative_to("/var/tmp"):  # noqa: S108
        arguments.add("--perms", "1777", "--size", spec.tmp, "--tmpfs", "/var/tmp")  # noqa: S108 -- inside
    else:
        arguments.add("--symlink", "/tmp", "/var/tmp")  # noqa: S108 -- inside
    for root in toolchains:
        arguments.bind(root, root, read_only=True)
    source = placement.workspace_source
    # The path of the workspace itself is resolved, and a run above it could put links there.
    top = Path("/") if source == placement.workspace else None
    if placement.workspace is not None and source is not None:
        arguments.bind(
            source,
            placement.workspace,
            read_only=placement.workspace_read_only,
            within=top,
            is_idmapped=placement.is_idmapped,
        )
    for bind in placement.mounts:
        lies_inside = source is not None and bind.source.is_relative_to(source)
        arguments.bind(
            bind.source,
            bind.target,
            read_only=bind.read_only,
            within=(top or source) if lies_inside else None,
            is_idmapped=placement.is_idmapped and lies_inside,
        )
    for mount in spec.mounts:
        arguments.bind(mount.source, mount.target, read_only=mount.read_only)
    # Otherwise the directories between the mounts would be unbounded memory.
    arguments.add("--remount-ro", "/dev", "--remount-ro", "/")


def _add_system(arguments: Arguments) -> None:
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            arguments.add("--symlink", path.readlink(), name)
        elif path.is_dir():
            arguments.add("--ro-bind", name, name)


def _mode_of(path: str) -> int:
    """Mode of the file that a path leads to; 0 if there is none."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116 -- a text, to be quick
    except OSError:
        return 0


def _add_etc(arguments: Arguments, uid: int, gid: int, *, names: Iterable[str]) -> None:
    arguments.add("--perms", "0755", "--dir", "/etc")
    # Without its part of /etc, a JDK of Debian does not start.
    java = sorted(path.name for path in Path("/etc").glob("java-*-openjdk"))
    for path in (f"/etc/{name}" for name in (*_ETC, *java)):
        kind = _mode_of(path)
        if stat.S_ISDIR(kind):
            arguments.add("--ro-bind-try", path, path)
        elif stat.S_ISREG(kind) and kind & stat.S_IROTH:
            arguments.copy(arguments.hold(os.open(path, os.O_RDONLY | os.O_CLOEXEC)), path)
    for name in filter(os.path.isdir, _PRIVATE):
        arguments.add("--perms", "0555", "--size", 4096, "--tmpfs", name, "--remount-ro", name)
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    arguments.data(
        f"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:{uid}:{gid}::{HOME}:/bin/bash\n{nobody}".encode(),
        "/etc/passwd",
    )
    arguments.data(f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n".encode(), "/etc/group")
    hosts = " ".join(("127.0.0.1", "localhost", "ringfence", *names))
    arguments.data(f"{hosts}\n::1 localhost\n".encode(), "/etc/hosts")
    arguments.data(b"ringfence\n", "/etc/hostname")
    arguments.data(b"# The sandbox has no network.\n", "/etc/resolv.conf")


@frozen
class Toolchains:
    """The toolchains that are shown, and the environment variables by which programs find them."""

    roots: tuple[Path, ...]
    environment: Mapping[str, str]


def _is_there(path: str) -> bool:
    """Whether a path exists and is not a link, whose target would not be in the table."""
    try:
        return not stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def find_toolchains(
    home: Path, search_path: str, *, hide: bool, extra: tuple[Path, ...] = (), workspace: Path | None = None
) -> Toolchains:
    """Find the installed toolchains under `home`, and a PATH of the directories that can be seen inside.

    Args:
        home: The user's home directory.
        search_path: The user's PATH.
        hide: Show none.
        extra: Further roots (the interpreter that the guest needs).
        workspace: Directories of PATH that lie in it (an activated venv) stay on PATH.
    """
    roots = [] if hide else [home / name for name in _TOOLCHAINS if _is_there(f"{home}/{name}")]
    # A home below /opt, say, is masked: its toolchains are mounted on top of the mask.
    roots = [
        root
        for root in [*roots, *extra]
        if not lies_in(str(root), SYSTEM) or lies_in(str(root), (str(home),))
    ]
    shown = (*SYSTEM, *map(str, roots), *([str(workspace)] if workspace else []))
    path = [entry for entry in search_path.split(":") if entry.startswith("/") and lies_in(entry, shown)]
    path += [entry for entry in _DEFAULT_PATH if entry not in path]
    environment = {"PATH": ":".join(dict.fromkeys(path))}
    for variable, name in _VARIABLES.items():
        if any(lies_in(str(root), (str(home / name),)) for root in roots):
            environment[variable] = str(home / name)
    return Toolchains(tuple(dict.fromkeys(roots)), environment)


def lies_in(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of these or lies below one."""
    # Compares text: opening a sandbox calls this hundreds of times, and pathlib made it a quarter of the host's part.
    return any(path == place or path.startswith(place + "/") for place in places)
