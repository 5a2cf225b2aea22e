"""What deploy/kubernetes promises of a fleet on a cluster: who may do what, what is where, and that its parts fit."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are another package
from tests.deploy.rendered import DEPLOY, FOLDERS, all_containers, container, named, objects, pod

from ringfence.config.units import parse_duration
from ringfence.fleet.config.loader import load_fleet
from ringfence.sandbox.kubernetes.access import NEEDED, OPTIONAL
from ringfence.sandbox.kubernetes.manifest import MANAGED_BY
from ringfence.sandbox.kubernetes.policy import make_policy

DATABASE = "RINGFENCE_FLEET_DATABASE"
_WAYS_OUT_S = 61
"""What a worker takes at most once its drain is over: its sandboxes' end, last records, its row, last traces."""


def _model(kind: str, version: str) -> type:
    """The class of an object in the schema of a current Kubernetes."""
    group, _, number = version.rpartition("/")
    group = (group or "core").removesuffix(".k8s.io").split(".")[0]
    module = importlib.import_module(f"lightkube.models.{group}_{number}")
    found: type = getattr(module, kind)
    return found


def _lost(before: Any, after: Any, where: str) -> list[str]:
    """The places of values that a schema has dropped, because it does not know their field."""
    if isinstance(before, dict):
        return [
            place
            for key, inner in before.items()
            for place in (_lost(inner, after[key], f"{where}.{key}") if key in after else [f"{where}.{key}"])
        ]
    if isinstance(before, list):
        return [
            place
            for number, (one, other) in enumerate(zip(before, after, strict=True))
            for place in _lost(one, other, f"{where}[{number}]")
        ]
    return [] if before == after else [where]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_fits_the_schema_of_a_current_kubernetes(folder: str):
    """Each object has its required fields, and no field that its kind does not know."""
    for one in objects(folder):
        read: object = msgspec.convert(one, _model(one["kind"], one["apiVersion"]))
        assert _lost(one, msgspec.to_builtins(read), one["kind"]) == []


def test_the_policy_of_sandboxes_is_the_backends():
    """The backend finds the NetworkPolicy that it would make itself, so it takes it."""
    found, wanted = named("NetworkPolicy", "ringfence-sandboxes"), make_policy()
    assert found["spec"] == wanted["spec"]
    assert found["metadata"]["name"] == wanted["metadata"]["name"]


def test_the_workers_role_is_what_the_backend_needs():
    """The Role grants each permission that `ringfence doctor` checks, and no other."""
    granted = {
        (verb, resource, group)
        for rule in named("Role", "ringfence-worker")["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }
    assert granted == {(one.verb, one.resource, one.group) for one in (*NEEDED, *OPTIONAL)}


def test_only_workers_have_a_token_of_the_cluster():
    """The daemon's pod mounts no token, and no Role is bound to its account."""
    assert pod("daemon")["spec"]["automountServiceAccountToken"] is False
    (binding,) = objects(kind="RoleBinding")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "ringfence-worker", "namespace": "ringfence"}
    ]
    assert objects(kind="ClusterRole") == []
    assert pod("worker")["spec"]["serviceAccountName"] == "ringfence-worker"


def test_no_pod_of_the_fleet_is_taken_for_a_sandbox():
    """The fleet's own pods lack the label by which sandboxes are denied the network, and are cleaned up."""
    for component in ("daemon", "worker"):
        labels = pod(component)["metadata"]["labels"]
        assert labels | MANAGED_BY != labels


def test_the_database_is_in_a_secret_only():
    """Its address comes from a Secret; no argument, variable or file holds one."""
    for component in ("daemon", "worker"):
        (variable,) = [one for one in container(component)["env"] if one["name"] == DATABASE]
        assert variable["valueFrom"]["secretKeyRef"]["name"] == "ringfence-database"
    for one in objects():
        assert "postgresql://" not in json.dumps(one)
    assert objects(kind="Secret") == []


def test_only_workers_can_sign_records():
    """Workers share the signing key; the daemon has its public half, so that it verifies what they signed."""
    keys = {
        component: next(
            volume["secret"] for volume in pod(component)["spec"]["volumes"] if volume["name"] == "keys"
        )
        for component in ("daemon", "worker")
    }
    assert keys["worker"] == {"secretName": "ringfence-signing-key"}
    assert [item["key"] for item in keys["daemon"]["items"]] == ["journal-ed25519.pub"]


@pytest.mark.parametrize("component", ["daemon", "worker"])
def test_pods_meet_the_restricted_standard(component: str):
    """Never root, system calls filtered, no capability, nothing of the node's, and a root that cannot be written."""
    spec = pod(component)["spec"]
    context = spec["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"] > 0) == (True, True)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(spec)
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}
    for owner, one in all_containers():
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, owner
        assert "memory" in one["resources"]["limits"], owner
        assert {"cpu", "memory"} <= one["resources"]["requests"].keys(), owner


def test_no_variable_is_one_that_ringfence_refuses():
    """Unknown RINGFENCE_ variables are errors: none is set, and the cluster adds none for its services."""
    for component in ("daemon", "worker"):
        assert pod(component)["spec"]["enableServiceLinks"] is False
        names = {one["name"] for one in container(component)["env"]}
        names |= set(named("ConfigMap", "ringfence-settings")["data"])
        assert {name for name in names if name.startswith("RINGFENCE_")} == {DATABASE}


def test_the_owner_of_sandboxes_is_the_workers_pod():
    """The worker knows its own pod, so that the cluster removes its sandboxes with it."""
    variables = {one["name"]: one.get("valueFrom", {}) for one in container("worker")["env"]}
    assert variables["POD_NAME"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert variables["POD_UID"]["fieldRef"]["fieldPath"] == "metadata.uid"


def _worker_words() -> list[str]:
    """The arguments of a worker, with its variables filled in as the cluster does."""
    settings = named("ConfigMap", "ringfence-settings")["data"]
    return [
        re.sub(r"\$\((\w+)\)", lambda name: settings[name[1]], word) for word in container("worker")["args"]
    ]


def _option(name: str) -> str:
    (found,) = [word.partition("=")[2] for word in _worker_words() if word.startswith(f"--{name}=")]
    return found


def test_a_worker_has_the_time_that_its_drain_takes():
    """The cluster kills a worker only after its drain, and what follows it, is over."""
    grace_s = pod("worker")["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= parse_duration(_option("drain")) + _WAYS_OUT_S


def test_the_worker_knows_its_options():
    """`ringfence fleet worker` takes the arguments of the Deployment, and only misses its database."""
    command = [sys.executable, "-m", "ringfence", *_worker_words()]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert (done.returncode, f"{DATABASE} is not set" in done.stderr) == (2, True), done.stderr


def test_probes_ask_what_exists(tmp_path: Path):
    """A worker's probes succeed for a file that the worker just touched only; a daemon's are of its metrics address."""
    heartbeat = _option("heartbeat")
    file = tmp_path / "heartbeat"
    one = container("worker")
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        command = [word.replace(heartbeat, str(file)) for word in one[kind]["exec"]["command"]]
        assert command != one[kind]["exec"]["command"]
        assert subprocess.run(command, capture_output=True, timeout=20, check=False).returncode != 0
        file.touch()
        assert subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
        file.unlink()
    daemon = container("daemon")
    probes = {daemon[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"/healthz", "/readyz"}
    assert {
        daemon[kind]["httpGet"]["port"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    } == {"metrics"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_fleets_file_is_valid_and_listens_where_the_service_leads(folder: str, tmp_path: Path):
    """The file in the ConfigMap loads, runs no job in the daemon, and its ports are those of container and Service."""
    file = tmp_path / "ringfence.yaml"
    file.write_text(named("ConfigMap", "ringfence-fleet", folder)["data"]["ringfence.yaml"])
    records = named("ConfigMap", "ringfence-settings", folder)["data"]["FLEET_RECORDS"]
    settings = load_fleet(
        file, environ={DATABASE: "postgresql://fleet@db/fleet", "FLEET_RECORDS": records}
    ).settings
    assert (settings.workers, settings.engine.type) == (0, "postgres")
    assert settings.api is not None
    assert settings.metrics is not None
    listens = {
        "api": int(settings.api.address.rpartition(":")[2]),
        "metrics": int(settings.metrics.address.rpartition(":")[2]),
    }
    assert {one["name"]: one["containerPort"] for one in container("daemon")["ports"]} == listens
    (service,) = objects(folder, "Service")
    assert {one["name"]: (one["port"], one["targetPort"]) for one in service["spec"]["ports"]} == {
        name: (port, name) for name, port in listens.items()
    }
    assert service["spec"]["selector"].items() <= pod("daemon")["metadata"]["labels"].items()
    mounts = {one["mountPath"] for one in container("worker")["volumeMounts"]}
    assert records in mounts
    assert settings.records is not None
    assert settings.records.url == _option("records")


def test_nothing_reaches_workers_and_only_named_namespaces_the_daemon():
    """The policies of the fleet allow connections to the daemon's two ports alone, from namespaces with a label."""
    policies = {one["metadata"]["name"]: one["spec"] for one in objects(kind="NetworkPolicy")}
    fleet, daemon = policies["ringfence-fleet"], policies["ringfence-daemon"]
    assert fleet.get("ingress", []) == []
    for component in ("daemon", "worker"):
        labels = pod(component)["metadata"]["labels"]
        assert fleet["podSelector"]["matchLabels"].items() <= labels.items()
    assert not daemon["podSelector"]["matchLabels"].items() <= pod("worker")["metadata"]["labels"].items()
    for rule in daemon["ingress"]:
        assert all(source["namespaceSelector"]["matchLabels"] for source in rule["from"])
    ports = [port["port"] for rule in daemon["ingress"] for port in rule["ports"]]
    assert ports == ["api", "metrics"]


def test_all_containers_have_the_image_that_an_overlay_replaces():
    """One name stands in the base, so that `images` of an overlay replaces all of them."""
    assert {one["image"].rpartition(":")[0] for _, one in all_containers()} == {
        "registry.example.com/ringfence"
    }
    rendered = yaml.safe_dump_all(objects("overlays/example"))
    assert "registry.example.com/ringfence:" not in rendered


def test_records_can_be_in_a_bucket(tmp_path: Path):
    """With the component, no pod needs the claim, and the address of the bucket reaches daemon and workers."""
    here = os.path.relpath(DEPLOY / "kubernetes", tmp_path.resolve())
    literals = ["FLEET_RECORDS=s3://BUCKET/PREFIX"]
    overlay = {
        "resources": [f"{here}/base"],
        "components": [f"{here}/components/bucket"],
        "configMapGenerator": [{"name": "ringfence-settings", "behavior": "merge", "literals": literals}],
        "namespace": "ringfence",
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    assert objects(tmp_path, "PersistentVolumeClaim") == []
    settings = named("ConfigMap", "ringfence-settings", tmp_path)
    assert settings["data"] == {"FLEET_RECORDS": "s3://BUCKET/PREFIX", "FLEET_SLOTS": "4"}
    for deployment in objects(tmp_path, "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        assert [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume] == []
        (one,) = spec["containers"]
        assert {"configMapRef": {"name": settings["metadata"]["name"]}} in one["envFrom"]
