"""What images are made of, and that every part of it counts."""

import io
import re
import tarfile
from dataclasses import replace

import pytest

from ringfence.sandbox.docker.image.bootstrap import SUITE, bootstrap_inputs
from ringfence.sandbox.docker.image.plan import make_plan
from ringfence.sandbox.docker.image.recipe import (
    Inputs,
    chain,
    packages,
    pinned_base,
    read_file,
    stages,
)
from ringfence.sandbox.docker.image.targets import Target

INPUTS = Inputs("base", "below:1", "below:1", "RUN true\n", {"a": b"1"})


def test_every_target_is_a_stage():
    """The Dockerfile has a stage for each image, and no other."""
    assert set(stages()) == set(Target)


def test_images_stand_on_each_other():
    """The image agents stands on polyglot, and that on base."""
    assert [stage.name for stage in chain(Target.AGENTS)] == ["base", "polyglot", "agents"]


def test_the_base_from_outside_is_pinned():
    """The image below is named with a dated tag and a digest."""
    assert re.fullmatch(rf"debian:{SUITE}-\d{{8}}-slim@sha256:[0-9a-f]{{64}}", pinned_base())


@pytest.mark.parametrize("stage", stages().values(), ids=lambda stage: stage.name)
def test_images_end_as_an_ordinary_user(stage):
    """The last user of each stage is a number that is not root's, and no instruction needs a shell."""
    assert re.findall(r"^USER (.+)$", stage.body, re.MULTILINE)[-1] == "1000:1000"
    for form in re.findall(r"^(?:RUN|CMD|ENTRYPOINT) (.)", stage.body, re.MULTILINE):
        assert form == "["


@pytest.mark.parametrize(
    "change",
    [
        {"target": "polyglot"},
        {"below_identity": "below:2"},
        {"body": "RUN false\n"},
        {"files": {"a": b"2"}},
        {"files": {"b": b"1"}},
    ],
    ids=str,
)
def test_a_change_of_an_input_is_another_image(change):
    """Each input has its part in the hash, and so in the name."""
    changed = replace(INPUTS, **change)
    assert changed.hash != INPUTS.hash
    assert changed.reference != INPUTS.reference


def test_authorities_make_another_image():
    """A base that trusts an authority of this machine is not the one that does not, nor is what stands on it."""
    plain, trusting = (
        make_plan(Target.POLYGLOT, bootstrap=False, mirror=None, authorities=given)
        for given in ({}, {"ours.crt": b"certificate"})
    )
    for one, other in zip(plain.links, trusting.links, strict=True):
        assert one.hash != other.hash


def test_a_mirror_makes_another_image():
    """What came from elsewhere is not taken for the same."""
    assert bootstrap_inputs("http://mirror.example/debian").hash != bootstrap_inputs(None).hash


def test_the_same_inputs_are_the_same_bytes():
    """The context has no dates and no order of its own, so that engines recognize it."""
    other = replace(INPUTS, files=dict(reversed({"a": b"1", "b": b"2"}.items())))
    assert other.context({}) == replace(INPUTS, files={"a": b"1", "b": b"2"}).context({})


def test_programs_of_the_context_can_be_run():
    """What begins as a script is executable, however the package was installed."""
    packed = replace(INPUTS, files={"run": b"#!/bin/sh\n", "read": b"text"}).context({})
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        modes = {entry.name: entry.mode for entry in tar}
    assert (modes["run"], modes["read"]) == (0o755, 0o644)


def test_labels_cannot_leave_their_quotes():
    """A label's value stays one value, whatever is in it."""
    text = INPUTS.dockerfile({"a": 'x" b="$HOME\\'})
    assert text.endswith('LABEL a="x\\" b=\\"\\$HOME\\\\"\n')


@pytest.mark.parametrize("target", [Target.BASE, Target.POLYGLOT, Target.OPERATOR])
def test_packages_are_listed_once_and_in_order(target):
    """A list that is sorted shows in a difference what came and went."""
    assert list(packages(target)) == sorted(set(packages(target)))


def test_what_is_not_the_distributions_is_pinned():
    """Python packages have a version and hashes, programs of npm a version and a lock."""
    for requirement in re.split(r"\n(?=\S)", read_file("operator.txt").decode().strip()):
        assert re.match(r"[\w-]+==\S+ \\\n    --hash=sha256:", requirement)
    assert b'"integrity": "sha512-' in read_file("agents/package-lock.json")
