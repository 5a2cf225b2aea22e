"""Finds the program of an agent CLI: the host's native program, shown inside read-only, or the image's own.

npm puts a link or a script on PATH that leads to the native program. Programs in the workspace are never used, even if
they are on PATH, since an agent may have put them there.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.errors import ConfigurationError, InfrastructureFault, PolicyRefused
from ringfence.process import run_process
from ringfence.runtime.agent_cli.base import AgentCli, Program
from ringfence.runtime.options import Options
from ringfence.runtime.transcript.translator import CliName
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.policy import PROGRAMS_INSIDE, Surroundings, check_spec
from ringfence.sandbox.registry import examine, traits_of
from ringfence.sandbox.spec import Mount

_OUTPUT_BYTES = 4096
_PACKAGES = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex"}
_NATIVE = {"claude": ("claude",), "codex": ("vendor/*/bin/codex",)}
"""The program, in npm's package for a platform."""
_PLACES = (
    ".local/bin",
    ".local/lib/node_modules/.bin",
    ".npm-global/bin",
    ".bun/bin",
    ".volta/bin",
    ".claude/local",
    ".claude/local/node_modules/.bin",
)
_SYSTEM = ("/usr/local/bin", "/usr/bin", "/opt/agents/node_modules/.bin")
_VERSIONED = (".nvm/versions/node/*/bin", ".local/share/fnm/node-versions/*/installation/bin")
_SHIM = re.compile(r"""["' ]\$\{?basedir\}?/((?:\.\./)*[^"'\s$]{1,300}?\.(?:c?js|exe))["']""")
_SHIM_BYTES = 16 * 1024
_MAGIC = b"\x7fELF"
_VERSION = re.compile(r"\b(\d{1,6}(?:\.\d{1,6}){1,3})")
_VERSION_TIMEOUT_S = 30.0
_NO_HOME = "/dev/null/none"
"""A home that cannot exist, even for root, so that querying a version leaves no files and reads none of the user's."""


async def find_program(cli: AgentCli, spec: SandboxSpec, options: Options) -> Program:
    """Return the program for a sandbox of `spec`: the configured one, the host's, or the image's own.

    Raises:
        ConfigurationError: There is no program, or its version was not tested; the text says what to do.
    """
    unseen = await _why_not_the_hosts(cli, spec)
    if options.cli_path is not None:
        native = native_of(cli.name, options.cli_path)
        if native is None and spec.image is not None:
            return Program(str(options.cli_path), None)
        if native is None:
            what = "leads to no native program" if os.access(options.cli_path, os.F_OK) else "is not there"
            raise ConfigurationError(
                f"the program {str(options.cli_path)!r} of {cli.title} (--cli-path, client.path) {what}; "
                f"name another, or leave it out and install it: {cli.install}"
            )
    elif unseen is not None:
        return Program(cli.name, None)
    else:
        programs = native_programs(
            cli.name,
            search_path=os.environ.get("PATH", ""),
            home=Path.home(),
            workspace=spec.workspace,
        )
        native = next(programs, None)
    if native is None and spec.image is not None:
        return Program(cli.name, None)
    if native is None:
        raise missing_program(cli)
    # A program in the workspace may come from an agent, so its version is queried inside.
    is_in_workspace = spec.workspace is not None and lies_in(native, spec.workspace)
    version = await version_of(native) if is_trusted(native) and not is_in_workspace else None
    if version is not None:
        check_version(cli, version, path=str(native), force=options.force)
    return _shown(cli, native, version, spec)


def missing_program(cli: AgentCli) -> ConfigurationError:
    """Return the error for an agent CLI that is not installed, with a command that installs it."""
    return ConfigurationError(
        f"{cli.title} is not installed: no native program {cli.name!r} is on PATH or in the usual places; "
        f"install it: {cli.install}; or name an image that has it (--image), or the program itself (client.path)"
    )


async def checked_inside(program: Program, cli: AgentCli, sandbox: Sandbox, *, force: bool) -> Program:
    """Return a program with its version, which is queried inside if that was not possible outside.

    Raises:
        ConfigurationError: It does not exist, or its version was not tested.
        SandboxDied: The sandbox is gone.
    """
    if program.version is not None:
        return program
    asked = await sandbox.run([program.path, "--version"], timeout_s=60.0, output_limit_bytes=_OUTPUT_BYTES)
    version = read_version(asked.stdout)
    if asked.exit_code != 0 or version is None:
        raise ConfigurationError(
            f"there is no {cli.title} in the sandbox as {program.path!r}: it ended with {asked.exit_code}; "
            "take an image that has it, such as `agents` of `ringfence image build`, or install it on the host: "
            f"{cli.install}"
        )
    check_version(cli, version, path=program.path, force=force)
    return replace(program, version=version)


def shown_plugins(options: Options, spec: SandboxSpec) -> tuple[tuple[Mount, ...], Options]:
    """Return the mounts that show the host's plugins inside, and the options with their paths there.

    Raises:
        ConfigurationError: A plugin is not a directory.
    """
    for plugin in options.plugins:
        if not plugin.is_dir():
            raise ConfigurationError(
                f"the plugin {str(plugin.absolute())!r} (--plugin, client.plugins) is not a directory; name one"
            )
    if not options.plugins or not traits_of(spec).is_fence:
        return (), options
    mounts = tuple(
        Mount(source=plugin.absolute(), target=f"{PROGRAMS_INSIDE}/plugins/{number}-{plugin.name}")
        for number, plugin in enumerate(options.plugins, 1)
    )
    inside = tuple(Path(mount.target) for mount in mounts)
    return mounts, options.model_copy(update={"plugins": inside})


async def _why_not_the_hosts(cli: AgentCli, spec: SandboxSpec) -> str | None:
    """Return why the host's program cannot be used in this sandbox; None if it can."""
    if spec.image is not None and spec.image.startswith("localhost/ringfence/agents:"):
        return f"the image has a {cli.name} that it was built with"
    return (await examine(spec)).unseen


def _shown(cli: AgentCli, native: Path, version: str | None, spec: SandboxSpec) -> Program:
    if not traits_of(spec).is_fence:
        return Program(str(native), version)
    target = f"{PROGRAMS_INSIDE}/{cli.name}"
    folder = native.parent.parent
    if cli.name == "codex" and native.parent.name == "bin" and (folder / "codex-path").is_dir():
        # It searches for programs beside its own, and works without them if they may not be shown.
        whole = Mount(source=folder, target=target)
        if _may_be_shown(whole):
            return Program(f"{target}/bin/codex", version, (whole,))
    alone = Mount(source=native, target=f"{target}/{cli.name}")
    return Program(alone.target, version, (alone,))


def _may_be_shown(mount: Mount) -> bool:
    around = Surroundings(Path.home().resolve(), state_dir().resolve())
    try:
        check_spec(SandboxSpec(mounts=(mount,)), around)
    except PolicyRefused:
        return False
    return True


def native_programs(cli: CliName, *, search_path: str, home: Path, workspace: Path | None) -> Iterator[Path]:
    """Yield the native programs of an agent CLI, those on PATH first.

    Args:
        cli: The agent CLI.
        search_path: PATH.
        home: The user's home directory.
        workspace: Programs in it are skipped.
    """
    folders = [Path(entry) for entry in search_path.split(":") if entry.startswith("/")]
    folders += [home / name for name in _PLACES]
    folders += [folder for pattern in _VERSIONED for folder in sorted(home.glob(pattern), reverse=True)]
    found: dict[Path, None] = {}
    for folder in dict.fromkeys([*folders, *map(Path, _SYSTEM)]):
        program = native_of(cli, folder / cli)
        if program is not None:
            found[program] = None
    bundled = _bundled() if cli == "claude" else None
    if bundled is not None:
        found[bundled] = None
    for program in found:
        if workspace is None or not lies_in(program, workspace):
            yield program


def native_of(cli: CliName, path: Path) -> Path | None:
    """Return the native program that `path` is or leads to; None if there is none."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        head = _head(real)
    except (OSError, ValueError):
        return None
    if head.startswith(_MAGIC):
        return _beside(cli, real) or real
    beside = _beside(cli, real)
    if beside is not None:
        return beside
    shim = _SHIM.search(head.decode("utf-8", "replace")) if head.startswith(b"#!") else None
    return _beside(cli, Path(os.path.realpath(path.parent / shim[1]))) if shim is not None else None


def _beside(cli: CliName, real: Path) -> Path | None:
    """Return the program in npm's package for this platform, if `real` is part of the package that leads to it."""
    package = next((above for above in real.parents if _is_package(above, _PACKAGES[cli])), None)
    if package is None:
        return None
    scope, name = _PACKAGES[cli].split("/")
    roots = (package / "node_modules" / scope, package.parent)
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    for root in roots:
        for pattern in _NATIVE[cli]:
            for program in sorted(root.glob(f"{name}-linux-{machine}/{pattern}")):
                if _head(program).startswith(_MAGIC):
                    return program
    return None


def _is_package(folder: Path, name: str) -> bool:
    return str(folder).endswith(f"/node_modules/{name}")


def _bundled() -> Path | None:
    """Return the program that comes with the SDK for Python, without importing the SDK."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    return native_of("claude", Path(spec.origin).parent / "_bundled" / "claude")


def _head(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        return b""
    with path.open("rb") as file:
        return file.read(_SHIM_BYTES)


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path is below a folder, with links in either of them resolved."""
    ways = (path, Path(os.path.realpath(path)))
    return any(way.is_relative_to(folder) or way.is_relative_to(os.path.realpath(folder)) for way in ways)


def is_trusted(program: Path) -> bool:
    """Return whether a program may be started on the host: only this user and root can have written it."""
    status = program.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


async def version_of(program: Path) -> str:
    """Return the version that a program on this host reports.

    Raises:
        ConfigurationError: It reports no version, or cannot be started.
    """
    version = read_version(await _version_output(program))
    if version is None:
        raise ConfigurationError(
            f"{str(program)!r} prints no version; check whether `{program} --version` works"
        )
    return version


def read_version(text: str) -> str | None:
    """Return the version in the output of `--version`."""
    found = _VERSION.search(text)
    return found[1] if found is not None else None


def check_version(cli: AgentCli, version: str, *, path: str, force: bool) -> None:
    """Check that this release was tested with a version.

    Raises:
        ConfigurationError: It was not tested, and `force` is False.
    """
    oldest, newest = cli.tested
    if force or is_tested(version, oldest, newest):
        return
    known = oldest if oldest == newest else f"{oldest} to {newest}"
    raise ConfigurationError(
        f"{cli.title} {version} ({path!r}) was not tested with this release of ringfence, which supports {known}; "
        f"use --force to try it, or install a supported one: {cli.install}"
    )


def is_tested(version: str, oldest: str, newest: str) -> bool:
    """Return whether a version is in a range, by its first three numbers."""
    low, number, high = (
        [int(part) for part in re.findall(r"\d+", each)[:3]] for each in (oldest, version, newest)
    )
    return low <= number <= high


async def _version_output(program: Path) -> str:
    env = {"PATH": "/usr/bin:/bin", **dict.fromkeys(("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"), _NO_HOME)}
    try:
        done = await run_process(
            [program, "--version"], env=env, timeout_s=_VERSION_TIMEOUT_S, output_limit_bytes=_OUTPUT_BYTES
        )
    except InfrastructureFault as exc:
        raise ConfigurationError(f"{str(program)!r} cannot be started: {exc}") from exc
    return done.stdout.decode("utf-8", "replace") if done.ok else ""
