"""The objects of deploy/kubernetes, as `kubectl kustomize` renders them."""

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are another package

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FOLDERS = ("base", "overlays/example")


@cache
def render(folder: str | Path) -> str:
    """The manifests of a folder, as YAML; skips the test where kubectl is missing, or too old for the folder.

    Args:
        folder: Below deploy/kubernetes, or anywhere.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(DEPLOY / "kubernetes" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "must be a file" in done.stderr:
        pytest.skip(f"{folder} needs kubectl 1.21 or newer, whose kustomize takes folders as resources")
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(folder: str | Path = "base", kind: str | None = None) -> list[dict[str, Any]]:
    """The objects of a folder, all or those of a kind."""
    found = list(yaml.safe_load_all(render(folder)))
    return [one for one in found if kind in (None, one["kind"])]


def named(kind: str, name: str, folder: str | Path = "base") -> dict[str, Any]:
    """The one object of a kind and a name; a name of a generated ConfigMap has a hash."""
    (found,) = [
        one
        for one in objects(folder, kind)
        if one["metadata"]["name"] == name or one["metadata"]["name"].rpartition("-")[0] == name
    ]
    return found


def pod(component: str) -> dict[str, Any]:
    """The template of the pods of a Deployment."""
    template: dict[str, Any] = named("Deployment", f"ringfence-{component}")["spec"]["template"]
    return template


def container(component: str) -> dict[str, Any]:
    """The container that works, of a Deployment's pods."""
    (found,) = pod(component)["spec"]["containers"]
    return dict(found)


def all_containers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every container, those that begin a pod included, with the name of its Deployment."""
    for deployment in objects(kind="Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        for one in (*spec.get("initContainers", ()), *spec["containers"]):
            yield deployment["metadata"]["name"], one
