"""`ringfence image` as a user has it."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

ABSENT = "unix:///nowhere/docker.sock"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "gigantic"], "unknown image 'gigantic'; known: base, polyglot, operator, agents"),
        (["build", "--mirror", "http://mirror.example/debian"], "has no effect without --bootstrap"),
        (
            ["build", "--bootstrap", "--mirror", "mirror.example; rm -rf /"],
            "is no address of a Debian mirror",
        ),
        (["build", "--bootstrap", "--mirror", "http://me:secret@mirror.example/"], "is no address"),
        (["rm"], "nothing to remove"),
        (["ls", "--engine", "ftp://engine"], "is no address of an engine"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_is_told_before_an_engine_is_asked(ringfence, arguments, said):
    """A command line that makes no sense ends with 2, one line and the next step."""
    ended = ringfence("image", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


@pytest.mark.parametrize("command", [["build"], ["ls"], ["show", "base"], ["rm", "--all"]], ids=" ".join)
def test_without_an_engine_the_next_step_is_told(ringfence, command):
    """Each command says where it looked and how to start an engine."""
    ended = ringfence("image", *command, "--engine", ABSENT)
    assert (ended.code, ended.out) == (125, "")
    assert ABSENT in ended.err
    assert "systemctl start docker" in ended.err


def lacking(reason: str) -> None:
    """Skip; fail where engines have to be there."""
    if os.environ.get("TEST_REQUIRES_ENGINES"):
        pytest.fail(reason)
    pytest.skip(reason)


def test_the_configured_engine_is_used(ringfence):
    """Images are looked for where sandboxes would be opened."""
    file = Path(os.environ["XDG_CONFIG_HOME"], "ringfence", "ringfence.yaml")
    file.parent.mkdir(parents=True)
    file.write_text(f"sandbox: {{engine: '{ABSENT}'}}\n")
    assert ABSENT in ringfence("image", "ls").err


@pytest.fixture
def base(ringfence) -> dict[str, object]:
    """The base that the engine has, as `show` tells it."""
    shown = ringfence("image", "show", "base", "--json")
    if shown.code != 0:
        lacking(shown.err.strip())
    document: dict[str, object] = json.loads(shown.out)
    return document


@pytest.mark.docker
def test_show_tells_what_an_image_is(ringfence, base):
    """User, entry, size, budget and source of an image, for programs and for people."""
    assert (base["user"], base["entrypoint"]) == ("1000:1000", ["/usr/bin/env"])
    assert str(base["base_digest"]).startswith("sha256:")
    said = ringfence("image", "show", str(base["name"])).out
    assert f"inputs: {base['inputs']}" in said
    assert "MB of 200 MB\n" in said
    assert "_" not in "".join(line.partition(":")[0] for line in said.splitlines())


@pytest.mark.docker
def test_ls_names_what_is_there(ringfence, base):
    """Each image is a line with its name, whether it is current, and its size against the budget."""
    lines = ringfence("image", "ls").out.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{base['name']} ")]
    assert "current" in line
    assert "MB of 200 MB" in line


@pytest.mark.docker
def test_an_unknown_image_is_told(ringfence, base):
    """A name that no image has is a usage error that says where to look."""
    ended = ringfence("image", "rm", "localhost/ringfence/base:nothing")
    assert ended.code == 2
    assert "`ringfence image ls` lists them" in ended.err


def directories() -> set[Path]:
    """Those that builds make on their way."""
    places = {Path("/dev/shm"), Path(tempfile.gettempdir())}
    return {folder for place in places for folder in place.glob("ringfence-image-*")}


def kept(ringfence) -> set[str]:
    """The images that a build of base makes."""
    images = json.loads(ringfence("image", "ls", "--json").out)["images"]
    return {image["id"] for image in images if image["target"] in ("debian", "base")}


@pytest.mark.docker
@pytest.mark.slow
def test_a_mirror_that_does_not_answer_leaves_nothing(ringfence, base):
    """Without packages the error says so, and neither an image nor a directory stays."""
    if shutil.which("mmdebstrap") is None:
        lacking("mmdebstrap is not installed; scripts/engines.sh installs it")
    images, folders = kept(ringfence), directories()
    ended = ringfence("image", "build", "--bootstrap", "--mirror", "http://127.0.0.1:9/debian")
    assert (ended.code, ended.out) == (75, "")
    assert "reaches no package server" in ended.err.splitlines()[-1]
    assert (kept(ringfence), directories() - folders) == (images, set())
