"""An archive that engines load, made of a layer that is never held in memory."""

import hashlib
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ringfence.sandbox.docker.image.archive import archive, configuration, read_layer


@pytest.mark.parametrize("size_bytes", [0, 1, 512, 1_048_577])
async def test_the_archive_holds_what_its_manifest_says(tmp_path: Path, size_bytes: int):
    """Whatever the layer's size, name, configuration and layer are found where the manifest says."""
    file = tmp_path / "layer"
    file.write_bytes(b"x" * size_bytes)
    layer = await read_layer(file)
    config = configuration(
        layer,
        architecture="amd64",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        labels={"a": "b"},
        made_by="test",
    )
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive(layer, config, "localhost/a:1")))) as tar:
        held = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    (manifest,) = json.loads(held["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/a:1"]
    assert held[manifest["Layers"][0]] == file.read_bytes()
    assert json.loads(held[manifest["Config"]])["config"]["Labels"] == {"a": "b"}
    assert layer.digest == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
