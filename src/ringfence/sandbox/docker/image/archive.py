"""One layer and its configuration as the archive that engines load (OCI image specification 1.0, `docker save`)."""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import anyio

from ringfence.frozen import frozen

_CHUNK_BYTES = 1024**2
_BLOCK_BYTES = tarfile.BLOCKSIZE


@frozen
class Layer:
    """A tar file that becomes an image."""

    file: Path
    digest: str
    """SHA-256 of the file, as `sha256:...`."""
    size_bytes: int


async def read_layer(file: Path) -> Layer:
    """Measure and hash a layer."""

    def read() -> Layer:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Layer(file, f"sha256:{digest}", file.stat().st_size)

    return await anyio.to_thread.run_sync(read)


def configuration(
    layer: Layer, *, architecture: str, created: datetime, labels: Mapping[str, str], made_by: str
) -> bytes:
    """The image's configuration; its hash is the image's id."""
    moment = created.isoformat()
    return json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "created": moment,
            "config": {"Labels": dict(labels), "Cmd": ["bash"]},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
            "history": [{"created": moment, "created_by": made_by}],
        },
        sort_keys=True,
    ).encode()


def archive(layer: Layer, config: bytes, reference: str) -> Iterator[bytes]:
    """The archive in pieces; the layer is read on the way, never held."""
    identity = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{identity}.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    yield _entry("manifest.json", json.dumps(manifest).encode())
    yield _entry(f"{identity}.json", config)
    yield _header("layer.tar", layer.size_bytes)
    with layer.file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
    yield _padding(layer.size_bytes)
    yield bytes(2 * _BLOCK_BYTES)  # the end of a tar


def _entry(name: str, data: bytes) -> bytes:
    return _header(name, len(data)) + data + _padding(len(data))


def _header(name: str, size_bytes: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size_bytes
    return entry.tobuf(tarfile.GNU_FORMAT)


def _padding(size_bytes: int) -> bytes:
    return bytes(-size_bytes % _BLOCK_BYTES)
