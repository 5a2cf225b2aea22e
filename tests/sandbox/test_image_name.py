"""Names of images, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.image_name import ImageName, parse_image_name

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("debian", ImageName("docker.io", "debian", None, None)),
        ("debian:12", ImageName("docker.io", "debian", "12", None)),
        ("library/debian:12", ImageName("docker.io", "library/debian", "12", None)),
        ("ghcr.io/a/b_c:v1", ImageName("ghcr.io", "a/b_c", "v1", None)),
        ("localhost/ringfence/base:1", ImageName("localhost", "ringfence/base", "1", None)),
        ("localhost:5000/a:1", ImageName("localhost:5000", "a", "1", None)),
        ("host:5000/a", ImageName("host:5000", "a", None, None)),
        (f"a/b@{DIGEST}", ImageName("docker.io", "a/b", None, DIGEST)),
        (f"a:1@{DIGEST}", ImageName("docker.io", "a", "1", DIGEST)),
        (DIGEST, ImageName("", "", None, DIGEST)),
    ],
)
def test_parts(text: str, name: ImageName) -> None:
    """Registry, repository, tag and digest are told apart as engines do it."""
    assert parse_image_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "a:",
        "a b",
        "a@sha256:00",
        "a@md5:" + "0" * 32,
        "a/../b",
        "-a",
        "a:b:c",
        "/a",
        "a//b",
        "a\n:1",
    ],
)
def test_no_name(text: str) -> None:
    """What no engine would take is none."""
    assert parse_image_name(text) is None


@pytest.mark.parametrize(
    ("text", "is_pinned"), [("a", False), ("a:latest", False), ("a:1", True), (f"a:latest@{DIGEST}", True)]
)
def test_pinned(text: str, is_pinned: bool) -> None:
    """A digest or a tag other than `latest` pins."""
    name = parse_image_name(text)
    assert name is not None
    assert name.is_pinned is is_pinned


@given(st.text())
def test_any_text(text: str) -> None:
    """Any text is a name or is refused; a name that was taken names something."""
    name = parse_image_name(text)
    assert name is None or name.repository or name.digest
