"""Inputs of the images, each of which counts."""

import io
import re
import tarfile
from dataclasses import replace

import pytest

from ringfence.sandbox.docker.image.recipe import (
    DEBIAN,
    SUITE,
    Recipe,
    Target,
    label_instruction,
    packages,
    packages_source,
    pinned_base,
    read_file,
    recipe_of,
)

RECIPE = Recipe("base", "a test", "below:1", "RUN true\n", {"a": b"1"})


def stages(target: Target) -> list[str]:
    """The stages of the Dockerfile that build an image."""
    return re.findall(r"^FROM \S+ AS (\S+)$", recipe_of(target, pinned_base(), {}).dockerfile, re.MULTILINE)


def test_every_target_is_a_stage():
    """The Dockerfile has a stage for each image, and no other."""
    assert set(re.findall(r"^FROM \S+ AS (\S+)$", read_file("Dockerfile").decode(), re.MULTILINE)) == set(
        Target
    )


@pytest.mark.parametrize(
    ("target", "built"),
    [
        (Target.BASE, ["base"]),
        (Target.POLYGLOT, ["base", "polyglot"]),
        (Target.OPERATOR, ["base", "operator"]),
        (Target.AGENTS, ["base", "polyglot", "agents"]),
    ],
)
def test_only_needed_stages_are_built(target, built):
    """Each image is built by its own stage and those it is based on, in order."""
    assert stages(target) == built


def test_the_base_from_outside_is_pinned():
    """The external base image is named with a dated tag and a digest."""
    assert re.fullmatch(rf"debian:{SUITE}-\d{{8}}-slim@sha256:[0-9a-f]{{64}}", pinned_base())


@pytest.mark.parametrize("target", Target)
def test_images_end_as_an_ordinary_user(target):
    """The last USER of each image is a number that is not root's, and no instruction needs a shell."""
    dockerfile = recipe_of(target, pinned_base(), {}).dockerfile
    assert re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE)[-1] == "1000:1000"
    for form in re.findall(r"^(?:RUN|CMD|ENTRYPOINT) (.)", dockerfile, re.MULTILINE):
        assert form == "["


@pytest.mark.parametrize(
    "change",
    [
        {"target": "polyglot"},
        {"below": "below:2"},
        {"dockerfile": "RUN false\n"},
        {"files": {"a": b"2"}},
        {"files": {"b": b"1"}},
    ],
    ids=str,
)
def test_a_change_of_an_input_is_another_image(change):
    """Each input is part of the hash, and so of the name."""
    changed = replace(RECIPE, **change)
    assert changed.hash != RECIPE.hash
    assert changed.reference != RECIPE.reference


def test_authorities_make_another_image():
    """An additional authority changes the base image, and all images on top of it."""
    for target in (Target.BASE, Target.POLYGLOT):
        plain, trusting = (
            recipe_of(target, pinned_base(), given) for given in ({}, {"ours.crt": b"certificate"})
        )
        assert plain.hash != trusting.hash


@pytest.mark.parametrize("target", [DEBIAN, Target.BASE])
def test_a_mirror_makes_another_image(target):
    """An image built from a mirror has another name."""
    sources = [packages_source(mirror) for mirror in (None, "http://mirror.example/debian")]
    assert len({recipe_of(target, source, {}).hash for source in (*sources, pinned_base())}) >= 2


def test_files_of_other_images_do_not_count():
    """A file that no stage of an image copies is not one of its inputs."""
    assert "operator.txt" in recipe_of(Target.OPERATOR, pinned_base(), {}).files
    assert "operator.txt" not in recipe_of(Target.AGENTS, pinned_base(), {}).files


def test_the_same_inputs_are_the_same_bytes():
    """The build context has no dates and a fixed order, so that engines can use their cache."""
    other = replace(RECIPE, files=dict(reversed({"a": b"1", "b": b"2"}.items())))
    assert other.context({}) == replace(RECIPE, files={"a": b"1", "b": b"2"}).context({})


def test_programs_of_the_context_can_be_run():
    """A script in the context is executable, however the package was installed."""
    packed = replace(RECIPE, files={"run": b"#!/bin/sh\n", "read": b"text"}).context({})
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        modes = {entry.name: entry.mode for entry in tar}
    assert (modes["run"], modes["read"]) == (0o755, 0o644)


def test_labels_cannot_leave_their_quotes():
    """A label's value stays one value, whatever characters it has."""
    assert label_instruction({"a": 'x" b="$HOME\\'}) == 'LABEL a="x\\" b=\\"\\$HOME\\\\"'


@pytest.mark.parametrize("target", [Target.BASE, Target.POLYGLOT, Target.OPERATOR])
def test_packages_are_listed_once_and_in_order(target):
    """Package lists are sorted and without duplicates, so that a diff shows what changed."""
    assert list(packages(target)) == sorted(set(packages(target)))


def test_packages_from_elsewhere_are_pinned():
    """Python packages have a version and hashes, npm programs a version and a lock."""
    for requirement in re.split(r"\n(?=\S)", read_file("operator.txt").decode().strip()):
        assert re.match(r"[\w-]+==\S+ \\\n    --hash=sha256:", requirement)
    assert b'"integrity": "sha512-' in read_file("agents/package-lock.json")
