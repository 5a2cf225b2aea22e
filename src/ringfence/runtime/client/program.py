"""A client's program, as a sandbox has it: the host's, shown read-only, or the image's own; in a known version."""

import os
from dataclasses import replace
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.errors import ConfigurationError, PolicyRefused
from ringfence.runtime.client.base import Client, Program
from ringfence.runtime.client.native import lies_in, native_of, native_programs
from ringfence.runtime.client.version import check_version, is_trusted, read_version, version_of
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.policy import PROGRAMS_INSIDE, Surroundings, check_spec
from ringfence.sandbox.registry import examine, traits_of
from ringfence.sandbox.spec import Mount

_OUTPUT_BYTES = 4096


async def find_program(client: Client, spec: SandboxSpec, options: Options) -> Program:
    """The client's program for a sandbox of `spec`: the one that is named, the host's, or the image's own.

    Raises:
        ConfigurationError: There is none, or its version is not among those tried; says what to do.
    """
    unseen = await _why_not_the_hosts(client, spec)
    if options.cli_path is not None:
        native = native_of(client.name, options.cli_path)
        if native is None and spec.image is not None:
            return Program(str(options.cli_path), None)
        if native is None:
            what = "leads to no native program" if os.access(options.cli_path, os.F_OK) else "is not there"
            raise ConfigurationError(
                f"the program {str(options.cli_path)!r} of {client.title} (--cli-path, client.path) {what}; "
                f"name another, or leave it out and install it: {client.install}"
            )
    elif unseen is not None:
        return Program(client.name, None)
    else:
        native = next(iter(_hosts(client, spec)), None)
    if native is None and spec.image is not None:
        return Program(client.name, None)
    if native is None:
        raise missing_program(client)
    # What the workspace holds may be an agent's: it is asked inside.
    is_theirs = spec.workspace is not None and lies_in(native, spec.workspace)
    version = await version_of(native) if is_trusted(native) and not is_theirs else None
    if version is not None:
        check_version(client, version, path=str(native), force=options.force)
    return _shown(client, native, version, spec)


def missing_program(client: Client) -> ConfigurationError:
    """The error where a client is not installed, with the way to install it."""
    return ConfigurationError(
        f"{client.title} is not installed: no native program {client.name!r} is on PATH or in the usual places; "
        f"install it: {client.install}; or name an image that has it (--image), or the program itself (client.path)"
    )


async def checked_inside(program: Program, client: Client, sandbox: Sandbox, *, force: bool) -> Program:
    """A program that could not be asked outside, with its version, which must be known; any other as it is.

    Raises:
        ConfigurationError: It is not there, or its version is not among those tried.
        SandboxDied: The sandbox is gone.
    """
    if program.version is not None:
        return program
    asked = await sandbox.run([program.path, "--version"], timeout_s=60.0, output_limit_bytes=_OUTPUT_BYTES)
    version = read_version(asked.stdout)
    if asked.exit_code != 0 or version is None:
        raise ConfigurationError(
            f"there is no {client.title} in the sandbox as {program.path!r}: it ended with {asked.exit_code}; "
            "take an image that has it, such as `agents` of `ringfence image build`, or install it on the host: "
            f"{client.install}"
        )
    check_version(client, version, path=program.path, force=force)
    return replace(program, version=version)


def shown_plugins(options: Options, spec: SandboxSpec) -> tuple[tuple[Mount, ...], Options]:
    """What shows the plugins of the host inside, and the options with their paths there.

    Raises:
        ConfigurationError: One is no directory.
    """
    for plugin in options.plugins:
        if not plugin.is_dir():
            raise ConfigurationError(
                f"the plugin {str(plugin.absolute())!r} (--plugin, client.plugins) is no directory; name one that is"
            )
    if not options.plugins or not traits_of(spec).is_fence:
        return (), options
    mounts = tuple(
        Mount(source=plugin.absolute(), target=f"{PROGRAMS_INSIDE}/plugins/{number}-{plugin.name}")
        for number, plugin in enumerate(options.plugins, 1)
    )
    inside = tuple(Path(mount.target) for mount in mounts)
    return mounts, options.model_copy(update={"plugins": inside})


def _hosts(client: Client, spec: SandboxSpec) -> list[Path]:
    return list(
        native_programs(
            client.name,
            search_path=os.environ.get("PATH", ""),
            home=Path.home(),
            workspace=spec.workspace,
        )
    )


async def _why_not_the_hosts(client: Client, spec: SandboxSpec) -> str | None:
    """Why the host's program is not for this sandbox; None if it is."""
    if spec.image is not None and spec.image.startswith("localhost/ringfence/agents:"):
        return f"the image has a {client.name} that it was built with"
    return (await examine(spec)).unseen


def _shown(client: Client, native: Path, version: str | None, spec: SandboxSpec) -> Program:
    if not traits_of(spec).is_fence:
        return Program(str(native), version)
    target = f"{PROGRAMS_INSIDE}/{client.name}"
    folder = native.parent.parent
    if client.name == "codex" and native.parent.name == "bin" and (folder / "codex-path").is_dir():
        # It has programs beside its own that it looks for there. It does without them where they may not be shown.
        whole = Mount(source=folder, target=target)
        if _may_be_shown(whole):
            return Program(f"{target}/bin/codex", version, (whole,))
    alone = Mount(source=native, target=f"{target}/{client.name}")
    return Program(alone.target, version, (alone,))


def _may_be_shown(mount: Mount) -> bool:
    around = Surroundings(Path.home().resolve(), state_dir().resolve())
    try:
        check_spec(SandboxSpec(mounts=(mount,)), around)
    except PolicyRefused:
        return False
    return True
