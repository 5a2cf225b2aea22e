"""The lowest image where no registry can be reached: from the distribution's own packages, by mmdebstrap.

It holds the packages of `base` already: installing them in one go with the system takes a fifth less time than in a
container afterwards (docs/adr/0011-images-from-packages.md). The stages of the Dockerfile then stand on it as they
stand on the image of a registry.
"""

import os
import platform
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.process import DEVNULL, PIPE, host_program, kill_group, start_process
from ringfence.sandbox.docker.client import Engine, engine_errors
from ringfence.sandbox.docker.image.archive import archive, configuration, read_layer
from ringfence.sandbox.docker.image.failure import ImageBuildFailed
from ringfence.sandbox.docker.image.recipe import Inputs, packages, read_file
from ringfence.sandbox.docker.image.scratch import scratch_directory
from ringfence.sandbox.docker.image.targets import Target
from ringfence.sandbox.docker.image.transcript import Tell, Transcript

SUITE = "trixie"
"""The release that the Dockerfile's base is of."""
NAME = "debian"
_MIRROR = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[\w.~/-]*)?|file:///[\w.~/-]*")
_ROOM_BYTES = 1024**3
_PATIENCE_S = 1800.0
_LOAD_S = 600.0
_EPOCH = "1754179200"
"""Files that are younger get this date, so that the same packages give the same bytes."""
_GRACE_S = 20.0
"""mmdebstrap removes what it unpacked when it is told to end."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Names of the building machine are nobody's business, and what apt and debconf keep beside is not needed.
_TIDY = (
    'rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/cache/debconf/*-old; '
    'find "$1"/var/log -type f -delete'
)


def bootstrap_inputs(mirror: str | None) -> Inputs:
    """What the image from packages is made of.

    Args:
        mirror: Where packages come from; None: mmdebstrap's own choice.

    Raises:
        UsageError: `mirror` is no address of a mirror, or holds a password.
    """
    if mirror is not None and not _MIRROR.fullmatch(mirror):
        raise UsageError(
            f"--mirror {mirror!r} is no address of a Debian mirror; write http://HOST/debian, https:// or file://"
        )
    files = {"dpkg.cfg": read_file("dpkg.cfg"), "packages/base": read_file("packages/base")}
    return Inputs(NAME, "scratch", source_of(mirror), _TIDY, files)


def source_of(mirror: str | None) -> str:
    """What the label of images calls this source."""
    return f"packages of {SUITE}" + (f" from {mirror}" if mirror else "")


def mirror_of(source: str) -> tuple[bool, str | None]:
    """Whether a source is one of ours, and its mirror: what `source_of` wrote."""
    head, _, mirror = source.partition(" from ")
    return head == source_of(None), mirror or None


async def bootstrap(
    engine: Engine, inputs: Inputs, *, mirror: str | None, labels: dict[str, str], tell: Tell
) -> None:
    """Make the image and load it into the engine.

    Args:
        engine: Where it goes.
        inputs: Of `bootstrap_inputs`.
        mirror: As given to `bootstrap_inputs`.
        labels: What the image is labelled with.
        tell: Is given each line of what goes on.

    Raises:
        ImageBuildFailed: It could not be made. Nothing of it is left.
        InfrastructureFault: mmdebstrap is not installed, or the engine's machine is of another kind.
    """
    architecture = _architecture(engine)
    try:
        program = host_program("mmdebstrap")
    except InfrastructureFault as exc:
        raise InfrastructureFault(
            f"{exc}: --bootstrap needs it (Debian and Ubuntu: apt-get install mmdebstrap)"
        ) from exc
    try:
        async with scratch_directory(_ROOM_BYTES) as scratch:
            file = scratch / "layer.tar"
            settings = scratch / "dpkg.cfg"
            settings.write_bytes(inputs.files["dpkg.cfg"])
            argv = _command(program, settings, file, mirror)
            await _run(argv, scratch, tell)
            layer = await read_layer(file)
            config = configuration(
                layer,
                architecture=architecture,
                created=datetime.now(UTC),
                labels=labels,
                made_by=" ".join(argv[1:]),
            )
            tell(f"loading {layer.size_bytes // 1000**2} MB, {layer.digest}")
            async with engine_errors("load the image", timeout_s=_LOAD_S):
                pieces = archive(layer, config, inputs.reference)
                await engine.docker.images.import_image(_asynchronous(pieces))
    except OSError as exc:
        raise ImageBuildFailed(NAME, "making room", os.strerror(exc.errno or 0), detail=str(exc)) from exc
    except InfrastructureFault as exc:
        if isinstance(exc, ImageBuildFailed):
            raise
        raise ImageBuildFailed(NAME, "loading it", str(exc)) from exc


def _architecture(engine: Engine) -> str:
    here, there = platform.machine(), engine.facts.architecture
    same = _ARCHITECTURES.get(here, here) == _ARCHITECTURES.get(there, there)
    if not same:
        raise InfrastructureFault(
            f"the engine's machine is {there!r} and this one {here!r}: run --bootstrap on a machine of its kind"
        )
    return _ARCHITECTURES.get(here, here)


def _command(program: str, settings: Path, file: Path, mirror: str | None) -> list[str]:
    return [
        program,
        # Left to choose, it falls back to ways that fail late and say nothing.
        "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
        "--variant=minbase",
        f"--include={','.join(packages(Target.BASE))}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        f"--dpkgopt={settings}",
        f"--customize-hook={_TIDY}",
        "--format=tar",
        SUITE,
        str(file),
        *([mirror] if mirror else []),
    ]


async def _run(argv: Sequence[str], scratch: Path, tell: Tell) -> None:
    transcript = Transcript(tell)
    env = {**os.environ, "TMPDIR": str(scratch), "SOURCE_DATE_EPOCH": _EPOCH, "LC_ALL": "C.UTF-8"}
    process = await start_process(argv, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, cwd=scratch, env=env)
    try:
        with anyio.fail_after(_PATIENCE_S):
            assert process.stderr is not None
            async for chunk in process.stderr:
                transcript.write(chunk.decode("utf-8", "replace"))
            code = await process.wait()
    except TimeoutError as exc:
        raise ImageBuildFailed(NAME, "mmdebstrap", f"no end within {_PATIENCE_S:g} s") from exc
    finally:
        with anyio.CancelScope(shield=True):
            await kill_group(process, grace_s=_GRACE_S)
    if code != 0:
        raise ImageBuildFailed(NAME, "mmdebstrap", f"exit code {code}", detail=transcript.last_lines)


async def _asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
