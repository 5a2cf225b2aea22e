"""Images of a real registry: run by their digest, checked against the policy, never fetched by ringfence."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ringfence.errors import PolicyRefused, SandboxStartFailed
from ringfence.sandbox import Sandbox

pytestmark = [pytest.mark.docker, pytest.mark.slow]

Open = Callable[..., AbstractAsyncContextManager[Sandbox]]
_PATIENCE_S = 60.0
_SETTINGS = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {directory}}}}}
http: {{addr: 127.0.0.1:{port}}}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`HOST:PORT` of a registry on loopback, which the engine trusts without TLS."""
    program = shutil.which("docker-registry")
    if program is None:
        if os.environ.get("TEST_REQUIRES_ENGINES"):
            pytest.fail("docker-registry is missing")
        pytest.skip("docker-registry is missing")
    directory = tmp_path_factory.mktemp("registry")
    while True:  # until no other process takes the port before the registry does
        port = _free_port()
        settings = directory / "settings.yml"
        settings.write_text(_SETTINGS.format(directory=directory / "blobs", port=port))
        with subprocess.Popen([program, "serve", settings], stderr=subprocess.DEVNULL) as process:
            try:
                if _answers(process, f"http://127.0.0.1:{port}/v2/"):
                    yield f"127.0.0.1:{port}"
                    return
            finally:
                process.kill()


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    """Wait until the registry answers or has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None:
        try:
            with urllib.request.urlopen(url):
                return process.poll() is None
        except (OSError, urllib.error.URLError):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def published(registry: str, images: Callable[[str], str | None]) -> Iterator[str]:
    """`HOST:PORT/NAME@sha256:...` of an image that was pushed to the registry."""
    own = images("docker")
    assert own is not None
    name = f"{registry}/team/base"
    _docker("tag", own, f"{name}:1")
    _docker("push", "--quiet", f"{name}:1")
    listed = _docker("image", "inspect", "--format", '{{join .RepoDigests "\\n"}}', own)
    (pinned,) = [line for line in listed.splitlines() if line.startswith(f"{name}@sha256:")]
    yield pinned
    _forget(pinned)


def _forget(pinned: str) -> None:
    for one in (f"{pinned.partition('@')[0]}:1", pinned):
        subprocess.run(["docker", "rmi", "--no-prune", one], capture_output=True, check=False)


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def opened(opener: Callable[[str], Open]) -> Open:
    """A function that opens Docker sandboxes."""
    return opener("docker")


async def test_missing_image_is_not_fetched(opened: Open, published: str, registry: str):
    """A missing image is not fetched; the error says how to. Once fetched so, it runs by its digest alone."""
    allowed: dict[str, Any] = {"image": published, "digest_only": True, "registries": (registry,)}
    _forget(published)
    with pytest.raises(SandboxStartFailed, match="docker pull"):
        async with opened(**allowed):
            pass
    _docker("pull", "--quiet", published)
    async with opened(**allowed) as sandbox:
        assert (await sandbox.run(["python3", "-c", "print('here')"])).stdout == "here\n"


async def test_another_digest_of_the_same_name_is_another_image(opened: Open, published: str, registry: str):
    """An image of the same name with another digest is not used in its place."""
    _docker("pull", "--quiet", published)
    name, _, digest = published.rpartition(":")
    other = f"{name}:{'0' if digest[0] != '0' else '1'}{digest[1:]}"
    with pytest.raises(SandboxStartFailed, match="docker pull"):
        async with opened(image=other, digest_only=True, registries=(registry,)):
            pass


@pytest.mark.parametrize("registries", [(), ("ghcr.io",), ("127.0.0.1",)])
async def test_an_image_of_a_registry_that_is_not_allowed_is_refused(
    opened: Open, published: str, registries: tuple[str, ...]
):
    """An image from a registry that the policy does not allow is refused, even if the engine has it."""
    _docker("pull", "--quiet", published)
    with pytest.raises(PolicyRefused, match="registries"):
        async with opened(image=published, registries=registries):
            pass
