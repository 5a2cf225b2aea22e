"""Builds on a real engine: existing images are found, failed builds leave nothing."""

import anyio
import pytest
from tests.sandbox.docker.image.conftest import SOURCE

from ringfence.sandbox.docker.image.build import BuildOptions, build_image
from ringfence.sandbox.docker.image.failure import ImageBuildFailed
from ringfence.sandbox.docker.image.recipe import Target
from ringfence.sandbox.docker.image.store import built_from, list_images, remove_image

pytestmark = [pytest.mark.docker, pytest.mark.slow]


async def test_an_image_is_found_by_its_inputs(trial):
    """An image is found by the inputs that it was built from, and names its base."""
    recipe = trial.recipe('RUN ["true"]')
    await trial.build(recipe)
    image = await built_from(trial.engine, recipe)
    assert image is not None
    assert image.name == recipe.reference
    assert image.base_name == trial.below
    assert image.base_digest == (await trial.engine.image(trial.below))["Id"]


async def test_labels_are_the_oci_ones(trial):
    """Title, version, revision, creation and base are in the standard OCI labels, with the given values."""
    recipe = trial.recipe()
    await trial.build(recipe)
    labels = (await trial.engine.image(recipe.reference))["Config"]["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}revision"] == recipe.hash
    assert labels[f"{prefix}title"] == "ringfence test"
    assert labels["ringfence.image.source"] == SOURCE
    names = {"version", "created", "base.name", "base.digest", "description"}
    assert names <= {name.removeprefix(prefix) for name in labels}


async def test_the_log_is_live(trial):
    """A step's output is shown while the build goes on."""
    seen = anyio.Event()

    def tell(line: str) -> None:
        if line == "hello":
            seen.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.build, trial.recipe('RUN ["sh", "-c", "echo hello; sleep 60"]'), tell)
        with anyio.fail_after(30):
            await seen.wait()
        tasks.cancel_scope.cancel()


async def test_a_failed_step_leaves_nothing(trial):
    """The error names the step and quotes the last output; no image and no container stay."""
    with pytest.raises(ImageBuildFailed, match="oh no") as failed:
        await trial.build(trial.recipe('RUN ["true"]', 'RUN ["sh", "-c", "echo oh no; exit 3"]'))
    assert failed.value.step.startswith('RUN ["sh"')
    assert await trial.left() == []


async def test_a_cancelled_build_leaves_nothing(trial):
    """A build that is cancelled during a step removes its container and its images."""
    running = anyio.Event()

    def tell(line: str) -> None:
        if line == "begun":
            running.set()

    recipe = trial.recipe('RUN ["true"]', 'RUN ["sh", "-c", "echo begun; sleep 60"]')
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.build, recipe, tell)
        with anyio.fail_after(30):
            await running.wait()
        tasks.cancel_scope.cancel()
    assert await trial.left() == []


async def test_a_full_disk_is_named(trial):
    """A step that finds the disk full fails with that cause, and leaves nothing."""
    with pytest.raises(ImageBuildFailed, match="disk is full"):
        await trial.build(trial.recipe('RUN ["dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M"]'))
    assert await trial.left() == []


async def test_an_unreachable_registry_is_named(trial):
    """Without the base image, the error says how to build without a registry."""
    with pytest.raises(ImageBuildFailed, match="--bootstrap") as failed:
        await trial.build(trial.recipe(below=f"registry.invalid/debian@sha256:{'0' * 64}"))
    assert failed.value.cause is not None
    assert failed.value.cause.name == "no-registry"


async def test_derived_images_are_not_ours(trial):
    """An image that a user made from ours has our labels, but is neither listed nor removed."""
    recipe = trial.recipe()
    await trial.build(recipe)
    theirs = "somebody/elses:1"
    asked = {"repo": "somebody/elses", "tag": "1"}
    await trial.engine.call("name it", "POST", f"/images/{recipe.reference}/tag", params=asked)
    ours = await built_from(trial.engine, recipe)
    assert ours is not None
    assert theirs not in ours.references
    await remove_image(trial.engine, ours)
    assert recipe.hash not in {image.inputs for image in await list_images(trial.engine)}
    assert await trial.engine.image(theirs)


async def test_existing_image_is_used(engine, image_of):
    """A second build of an image does nothing and takes no time."""
    name = await image_of(Target.BASE)
    labels = (await engine.image(name))["Config"]["Labels"]
    source = labels["ringfence.image.source"]
    options = BuildOptions(
        bootstrap=source.startswith("packages"), trust_host="ringfence.image.authorities" in labels
    )
    told: list[str] = []
    built = await build_image(engine, Target.BASE, options, told.append)
    assert built.was_there
    assert built.seconds < 5
    assert told == []
