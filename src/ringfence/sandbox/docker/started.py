"""What a sandbox in a container turned out to be, and what its commands find."""

from collections.abc import Mapping

from ringfence.sandbox.base import Facts
from ringfence.sandbox.docker.create import HOME, SCRATCH, Recipe, memory_places, memory_volumes
from ringfence.sandbox.docker.limits import ContainerLimits

SILENCE_LIMIT_S = 30.0
"""An engine that is killed leaves its containers running, with input that never ends."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_FROM_IMAGE = frozenset({"HOME", "USER", "LOGNAME", "HOSTNAME", "SHELL", "TMPDIR", "BASH_ENV", "ENV"})


def is_gvisor(runtime: str) -> bool:
    """Whether an OCI runtime is gVisor, by its name."""
    return runtime.startswith("runsc") or "gvisor" in runtime


def started_facts(
    name: str, recipe: Recipe, laps_ms: Mapping[str, float], notes: tuple[str, ...] = ()
) -> Facts:
    """What is told of a sandbox in a container, and what its commands get.

    Args:
        name: Of the backend.
        recipe: What it was made from.
        laps_ms: How long each step took.
        notes: Further things the user should be told.
    """
    launch, image, limits = recipe.launch, recipe.image, recipe.limits
    environment = {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        **{key: value for key, value in image.environment.items() if key not in _NOT_FROM_IMAGE},
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "TMPDIR": SCRATCH,
        "RINGFENCE": launch.sandbox_id,
    }
    workspace = launch.placement.workspace
    is_written = workspace is not None and not launch.placement.workspace_read_only
    return Facts(
        backend=name,
        enforced=limits.enforced,
        process_limit=limits.process_limit,
        home=HOME,
        environment=environment,
        watched_paths=(str(workspace),) if is_written else (),
        tmpfs_paths=(*memory_places(recipe), "/dev/shm"),  # noqa: S108 -- inside
        notes=(*_notes(recipe), *notes),
        image=f"{image.reference} ({image.id})",
        engine=recipe.engine.product,
        laps_ms=dict(laps_ms),
        silence_limit_s=SILENCE_LIMIT_S,
        covers_guest=recipe.covers_guest,
        filters_guest=True,
    )


def _notes(recipe: Recipe) -> list[str]:
    limits: ContainerLimits = recipe.limits
    runtime = recipe.runtime or recipe.engine.default_runtime
    notes = [f"engine: {recipe.engine.product}, runtime {runtime}, image {recipe.image.reference}"]
    if recipe.launch.placement.carry != "none":
        back = (
            "and back when the sandbox ends" if recipe.launch.placement.carry == "both" else "and stays there"
        )
        notes.append(f"the workspace is no mount: it is carried to the engine, {back}")
    notes += [f"limit {limit} is {how}" for limit, how in limits.enforced.items() if how != "kernel"]
    notes += [f"the image's volume {place} is memory, gone at the end" for place in memory_volumes(recipe)]
    if recipe.has_network:
        notes.append(f"UNSAFE: the sandbox is on the engine's network {recipe.launch.spec.network!r}")
    return notes
