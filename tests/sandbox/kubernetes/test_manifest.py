"""A pod is made as safe as a sandbox has to be, and each way in which a cluster makes it weaker is named."""

import copy
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.kubernetes import KubernetesPods
from ringfence.errors import PolicyRefused
from ringfence.sandbox import Placement, SandboxSpec
from ringfence.sandbox.base import Launch, UploadScope
from ringfence.sandbox.container.hardened_container import ImageFacts, harden, plan_limits
from ringfence.sandbox.kubernetes import manifest
from ringfence.sandbox.kubernetes.changes import changes_of
from ringfence.sandbox.spec import Mount

LABELS = {
    "ringfence.instance": "c0ffee",
    "ringfence.sandbox": "abc",
    "ringfence.run": "",
    "ringfence.holder": "boot:4026531836:7:99",
    "ringfence.expires": "1790000000",
    "team": "a",
}
SETTINGS = KubernetesPods.model_validate(
    {
        "claims": [{"name": "cache", "target": "/cache"}],
        "node_selector": {"pool": "agents"},
        "tolerations": [{"key": "agents", "effect": "NoSchedule"}],
        "image_pull_secrets": ["registry"],
    }
)


def make_pod(
    *,
    has_workspace: bool = True,
    settings: KubernetesPods = SETTINGS,
    upload: UploadScope = "all",
    **changes: Any,
) -> dict[str, Any]:
    """A pod, made without a cluster."""
    spec = SandboxSpec(
        **{"image": "registry.example/agent:1", "memory": 512 * 1024**2, "cpus": 1.5, **changes}
    )
    place = Path("/w") if has_workspace else None
    launch = Launch("abc", spec, Placement(1500, 1501, place, place, upload=upload), ("-I", "-c", "loader"))
    asked = harden(
        launch,
        ImageFacts("", "registry.example/agent:1", {}, ()),
        plan_limits(spec, {"pids": "the kubelet's"}, is_gvisor=False, processors=0, key=0),
        labels=LABELS,
        guest_filter=b"filter",
        runtime=spec.runtime,
        volume="workspace" if has_workspace else None,
    )
    return manifest.make_pod(asked, launch, settings)


ASKED = make_pod()


def made(change: Callable[[dict[str, Any]], object] = lambda _one: None) -> dict[str, Any]:
    """A pod as an API server of 1.20.2 returns it (captured), with a change of an admission controller."""
    pod = copy.deepcopy(ASKED)
    pod["metadata"] |= {"namespace": "agents", "uid": "19a715c7", "creationTimestamp": "2026-11-29T01:38:31Z"}
    pod["metadata"]["annotations"]["seccomp.security.alpha.kubernetes.io/pod"] = "runtime/default"
    spec = pod["spec"]
    for key in ("hostNetwork", "hostPID", "hostIPC", "hostAliases"):
        del spec[key]
    spec |= {
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    spec["tolerations"].append(
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    )
    for container in spec["containers"]:
        container |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
        for variable in container["env"]:
            if not variable["value"]:
                del variable["value"]
    change(pod)
    return pod


def changes(change: Callable[[dict[str, Any]], object] = lambda _one: None) -> list[str]:
    """What is found wrong with a pod that was changed."""
    return list(changes_of(ASKED, made(change)))


def container(pod: dict[str, Any], name: str = manifest.GUEST) -> dict[str, Any]:
    """One container of a pod."""
    (found,) = (one for one in pod["spec"]["containers"] if one["name"] == name)
    return dict[str, Any](found) if pod is ASKED else found


# --- the pod that is asked for


def test_pod_meets_the_restricted_standard() -> None:
    """A pod keeps all that the Pod Security Standard "restricted" demands, which namespaces may enforce."""
    spec = ASKED["spec"]
    assert not any(spec[key] for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1500,
        "runAsGroup": 1501,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for one in spec["containers"]:
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert {kind for volume in spec["volumes"] for kind in volume} == {
        "name",
        "emptyDir",
        "persistentVolumeClaim",
    }


def test_pod_knows_nothing_of_its_cluster() -> None:
    """A pod has no token, no variables of services, and no name server."""
    spec = ASKED["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})


def test_all_memory_is_bounded() -> None:
    """Each file system in memory has a size, and each container limits of memory and processors."""
    for volume in ASKED["spec"]["volumes"]:
        memory = volume.get("emptyDir", {})
        assert "medium" not in memory or memory["sizeLimit"] == str(SandboxSpec().tmp)
    assert container(ASKED)["resources"]["limits"] == {"memory": str(512 * 1024**2), "cpu": "1.500"}
    assert container(ASKED, manifest.FILES)["resources"]["limits"].keys() == {"memory", "cpu"}


def test_only_the_guest_sees_the_workspace_in_its_place() -> None:
    """The container for transfers has the workspace, and nothing else of the guest's."""
    mounts = container(ASKED, manifest.FILES)["volumeMounts"]
    assert mounts == [{"name": "workspace", "mountPath": "/carried/workspace"}]
    assert {"name": "workspace", "mountPath": "/w", "readOnly": False} in container(ASKED)["volumeMounts"]


def test_without_a_workspace_the_other_container_sees_nothing() -> None:
    """Without a workspace the container for the probe mounts nothing."""
    assert container(make_pod(has_workspace=False), manifest.FILES)["volumeMounts"] == []


def test_image_cannot_choose_the_guests_libraries() -> None:
    """Variables that decide which programs and libraries run first are set, whatever the image sets."""
    for one in ASKED["spec"]["containers"]:
        names = {variable["name"]: variable["value"] for variable in one["env"]}
        assert names["LD_PRELOAD"] == ""
    assert {"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"} <= {
        variable["name"] for variable in container(ASKED)["env"]
    }


def test_labels_select_and_annotations_tell() -> None:
    """Labels say whose the pod is; what has characters that no label may have is in annotations."""
    metadata = ASKED["metadata"]
    assert metadata["labels"] == {
        "app.kubernetes.io/managed-by": "ringfence",
        "ringfence.instance": "c0ffee",
        "ringfence.sandbox": "abc",
        "ringfence.run": "",
        "team": "a",
    }
    assert metadata["annotations"].keys() == {"ringfence.holder", "ringfence.expires"}


@pytest.mark.parametrize(("ttl_s", "seconds"), [(None, 7 * 86_400), (90.5, 150)])
def test_a_forgotten_pod_ends_by_itself(ttl_s: float | None, seconds: int) -> None:
    """The cluster ends a pod that nobody ends."""
    assert make_pod(ttl_s=ttl_s)["spec"]["activeDeadlineSeconds"] == seconds


def test_pods_of_a_pod_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ringfence runs in a pod, the cluster removes sandboxes with that pod."""
    assert ASKED["metadata"]["ownerReferences"] == []
    monkeypatch.setenv("POD_NAME", "worker-0")
    monkeypatch.setenv("POD_UID", "d7e950be")
    (owner,) = make_pod()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "worker-0", "d7e950be")
    monkeypatch.setenv("POD_NAMESPACE", "fleet")
    for namespace, owners in (("fleet", 1), ("elsewhere", 0)):
        made = make_pod(settings=KubernetesPods(namespace=namespace))
        assert len(made["metadata"]["ownerReferences"]) == owners


def test_settings_arrive() -> None:
    """Settings for scheduling and for fetching the image are the pod's, and claims are mounted read-only."""
    pod = make_pod(runtime="gvisor")
    spec = pod["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"pool": "agents", "kubernetes.io/arch": "amd64"}
    assert spec["tolerations"] == [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    claim = {"claimName": "cache", "readOnly": True}
    assert {"name": "claim-0", "persistentVolumeClaim": claim} in spec["volumes"]
    mount = {"name": "claim-0", "mountPath": "/cache", "readOnly": True}
    assert mount in container(pod)["volumeMounts"]
    assert mount not in container(pod, manifest.FILES)["volumeMounts"]


@pytest.mark.parametrize("reserve", [False, True])
def test_reserved_is_what_is_used(reserve: bool) -> None:
    """With `reserve` the scheduler counts all that a sandbox may use, else a small part of it."""
    resources = container(make_pod(settings=KubernetesPods(reserve=reserve)))["resources"]
    assert (resources["requests"] == resources["limits"]) is reserve


def test_two_claims_for_one_directory_are_refused() -> None:
    """The second would hide the first."""
    claims = [{"name": name, "target": "/cache"} for name in ("a", "b")]
    with pytest.raises(ValueError, match="two claims have the target '/cache'"):
        KubernetesPods.model_validate({"claims": claims})


def test_mounts_of_this_machine_are_refused(tmp_path: Path) -> None:
    """A pod cannot see a directory of this machine, and says what else there is."""
    with pytest.raises(PolicyRefused, match=r"sandbox\.mounts.*sandbox\.kubernetes\.claims"):
        make_pod(mounts=(Mount(source=tmp_path, target="/x"),))


def test_a_workspace_that_would_be_mounted_is_refused() -> None:
    """A workspace that is not uploaded is refused, and never an empty directory in its place."""
    with pytest.raises(PolicyRefused, match="mode 'clone'"):
        make_pod(upload="none")


# --- the pod that was made


def test_pod_as_asked() -> None:
    """A pod that an API server only completed has no change."""
    assert changes() == []


def newer(pod: dict[str, Any]) -> None:
    """Complete a pod as later servers do (1.33: procMount, resizePolicy), and as usual admission controllers do."""
    for one in pod["spec"]["containers"]:
        one["securityContext"]["procMount"] = "Default"
        one["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
        one["imagePullPolicy"] = "Always"
    pod["spec"]["priorityClassName"] = "agents"
    pod["spec"]["nodeSelector"]["zone"] = "a"
    pod["metadata"]["labels"]["cost-center"] = "7"
    pod["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/sandbox"] = (
        "runtime/default"
    )
    pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = "[]"
    container(pod)["resources"]["limits"] = {"memory": "512Mi", "cpu": "1500m"}
    pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "1Gi"


def test_harmless_completions() -> None:
    """What later servers and usual admission controllers complete, and quantities in another form, are no change."""
    assert changes(newer) == []


def sidecar(pod: dict[str, Any]) -> None:
    """Inject a container, as a service mesh does."""
    pod["spec"]["containers"].append({"name": "istio-proxy", "image": "proxy:1"})


def token(pod: dict[str, Any]) -> None:
    """Mount the token of the service account, as `automountServiceAccountToken` does."""
    pod["spec"]["automountServiceAccountToken"] = True
    pod["spec"]["volumes"].append({"name": "default-token", "secret": {"secretName": "default-token"}})
    mount = {
        "name": "default-token",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    container(pod)["volumeMounts"].append(mount)


def swapped_mount(pod: dict[str, Any]) -> None:
    """Mount another volume in the workspace's place."""
    for mount in container(pod)["volumeMounts"]:
        if mount["mountPath"] == "/w":
            mount["name"] = "claim-0"


def annotated(key: str, value: str) -> Callable[[dict[str, Any]], object]:
    """Add an annotation, which a runtime or a network plugin of the node obeys."""
    return lambda pod: pod["metadata"]["annotations"].update({key: value})


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "hostNetwork is on": lambda pod: pod["spec"].update(hostNetwork=True),
    "hostPID is on": lambda pod: pod["spec"].update(hostPID=True),
    "hostIPC is on": lambda pod: pod["spec"].update(hostIPC=True),
    "shareProcessNamespace is on": lambda pod: pod["spec"].update(shareProcessNamespace=True),
    "enableServiceLinks is on": lambda pod: pod["spec"].update(enableServiceLinks=True),
    "restartPolicy is 'Always'": lambda pod: pod["spec"].update(restartPolicy="Always"),
    "dnsPolicy is 'ClusterFirst'": lambda pod: pod["spec"].update(dnsPolicy="ClusterFirst"),
    "dnsConfig is ": lambda pod: pod["spec"].update(dnsConfig={"nameservers": ["10.96.0.10"]}),
    "hostAliases is ": lambda pod: pod["spec"].update(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}]),
    "runtimeClassName is 'weak'": lambda pod: pod["spec"].update(runtimeClassName="weak"),
    "activeDeadlineSeconds is None": lambda pod: pod["spec"].pop("activeDeadlineSeconds"),
    "hostnameOverride is 'db'": lambda pod: pod["spec"].update(hostnameOverride="db"),
    "unheardOf is ['a']": lambda pod: pod["spec"].update(unheardOf=["a"]),
    "unheardOf of container 'sandbox' was changed": lambda pod: container(pod).update(unheardOf="a"),
    "terminationMessagePath of container 'files' was changed": lambda pod: container(pod, "files").update(
        terminationMessagePath="/etc/ld.so.preload"
    ),
    "resourceClaims is ": lambda pod: pod["spec"].update(resourceClaims=[{"name": "gpu"}]),
    "label 'app.kubernetes.io/managed-by' is None": lambda pod: pod["metadata"]["labels"].pop(
        "app.kubernetes.io/managed-by"
    ),
    "annotation 'ringfence.expires' is '1'": lambda pod: pod["metadata"]["annotations"].update(
        {"ringfence.expires": "1"}
    ),
    "runAsUser in securityContext is 0": lambda pod: pod["spec"]["securityContext"].update(runAsUser=0),
    "runAsNonRoot in securityContext is None": lambda pod: pod["spec"]["securityContext"].pop("runAsNonRoot"),
    "fsGroup in securityContext is 0": lambda pod: pod["spec"]["securityContext"].update(fsGroup=0),
    "supplementalGroups in securityContext is [0]": lambda pod: pod["spec"]["securityContext"].update(
        supplementalGroups=[0]
    ),
    "sysctls in securityContext is": lambda pod: pod["spec"]["securityContext"].update(
        sysctls=[{"name": "a", "value": "1"}]
    ),
    "seccompProfile in securityContext is {'type': 'Unconfined'}": lambda pod: pod["spec"][
        "securityContext"
    ].update(seccompProfile={"type": "Unconfined"}),
    "runAsUser in securityContext of container 'sandbox' is 0": lambda pod: container(pod)[
        "securityContext"
    ].update(runAsUser=0),
    "runAsNonRoot in securityContext of container 'sandbox' is False": lambda pod: container(pod)[
        "securityContext"
    ].update(runAsNonRoot=False),
    "seccompProfile in securityContext of container 'sandbox'": lambda pod: container(pod)[
        "securityContext"
    ].update(seccompProfile={"type": "Unconfined"}),
    "procMount in securityContext of container 'sandbox' is 'Unmasked'": lambda pod: container(pod)[
        "securityContext"
    ].update(procMount="Unmasked"),
    "privileged in securityContext of container 'files' is True": lambda pod: container(pod, "files")[
        "securityContext"
    ].update(privileged=True),
    "allowPrivilegeEscalation in": lambda pod: container(pod)["securityContext"].update(
        allowPrivilegeEscalation=True
    ),
    "readOnlyRootFilesystem in": lambda pod: container(pod)["securityContext"].update(
        readOnlyRootFilesystem=False
    ),
    "capabilities in": lambda pod: container(pod)["securityContext"]["capabilities"].update(
        add=["NET_ADMIN"]
    ),
    "containers are ['files', 'sandbox', 'istio-proxy']": sidecar,
    "initContainers are ['init']": lambda pod: pod["spec"].update(initContainers=[{"name": "init"}]),
    "ephemeralContainers are ['debugger']": lambda pod: pod["spec"].update(
        ephemeralContainers=[{"name": "debugger"}]
    ),
    "restartPolicy of container 'sandbox' was changed": lambda pod: container(pod).update(
        restartPolicy="Always"
    ),
    "annotation 'container.apparmor.security.beta.kubernetes.io/sandbox' is 'unconfined'": annotated(
        "container.apparmor.security.beta.kubernetes.io/sandbox", "unconfined"
    ),
    "annotation 'k8s.v1.cni.cncf.io/networks' is 'open'": annotated("k8s.v1.cni.cncf.io/networks", "open"),
    "annotation 'io.kubernetes.cri-o.Devices' is '/dev/sda'": annotated(
        "io.kubernetes.cri-o.Devices", "/dev/sda"
    ),
    "annotation 'cdi.k8s.io/x' is 'vendor.com/d=all'": annotated("cdi.k8s.io/x", "vendor.com/d=all"),
    "annotation 'dev.gvisor.spec.rootfs' is 'x'": annotated("dev.gvisor.spec.rootfs", "x"),
    "command of container 'sandbox' was changed": lambda pod: container(pod)["command"].insert(0, "/wrapper"),
    "args of container 'sandbox' was changed": lambda pod: container(pod).update(args=["x"]),
    "image of container 'files' was changed": lambda pod: container(pod, "files").update(image="other:1"),
    "env of container 'sandbox' was changed": lambda pod: container(pod)["env"].append(
        {"name": "LD_PRELOAD", "value": "/x.so"}
    ),
    "envFrom of container 'sandbox' was changed": lambda pod: container(pod).update(
        envFrom=[{"secretRef": {"name": "keys"}}]
    ),
    "lifecycle of container 'sandbox' was changed": lambda pod: container(pod).update(
        lifecycle={"postStart": {"exec": {"command": ["x"]}}}
    ),
    "livenessProbe of container 'sandbox' was changed": lambda pod: container(pod).update(
        livenessProbe={"exec": {"command": ["x"]}}
    ),
    "volumeDevices of container 'sandbox' was changed": lambda pod: container(pod).update(
        volumeDevices=[{"name": "disk", "devicePath": "/dev/sda"}]
    ),
    "the limits of container 'sandbox' were changed": lambda pod: container(pod)["resources"][
        "limits"
    ].update(memory="1Ti"),
    "the limits of container 'files' were changed": lambda pod: container(pod, "files")["resources"].pop(
        "limits"
    ),
    "volume 'workspace' was changed": lambda pod: pod["spec"]["volumes"].__setitem__(
        3, {"name": "workspace", "hostPath": {"path": "/"}}
    ),
    "volume 'memory-0' was changed": lambda pod: pod["spec"]["volumes"][0]["emptyDir"].pop("sizeLimit"),
    "volume 'host' was added": lambda pod: pod["spec"]["volumes"].append(
        {"name": "host", "hostPath": {"path": "/"}}
    ),
    "'workspace' is not mounted on '/w'": swapped_mount,
    "the mount on '/cache' is writable": lambda pod: container(pod)["volumeMounts"][-1].pop("readOnly"),
    "the mount on '/cache' was changed": lambda pod: container(pod)["volumeMounts"][-1].update(
        mountPropagation="Bidirectional"
    ),
    "the mount on '/tmp' was changed": lambda pod: container(pod)["volumeMounts"][0].update(subPath="a"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_each_change_is_named(said: str) -> None:
    """Each change that makes the pod weaker is reported, once, by its name."""
    (found,) = changes(CHANGES[said])
    assert found.startswith(said)


def test_a_token_is_named() -> None:
    """A token of a service account is named as what it is."""
    assert any("the token of a service account" in one for one in changes(token))


# Scheduling and fetching are the cluster's own affair, and `files` and `sandbox` are told apart by their names.
LEFT_TO_THE_CLUSTER = {
    "nodeSelector",
    "tolerations",
    "imagePullSecrets",
    "imagePullPolicy",
    "requests",
    "terminationGracePeriodSeconds",
}


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values in an object that matter."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in LEFT_TO_THE_CLUSTER:
                yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path


VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bool: st.booleans(),
    int: st.integers(),
}
"""Values of the types that the API's schema has."""


@given(st.sampled_from(sorted(leaves(ASKED["spec"]), key=repr)), st.data())
def test_no_value_can_be_changed_unseen(path: tuple[str | int, ...], data: st.DataObject) -> None:
    """Whatever value of the pod is replaced, and by whatever, it is reported."""
    pod = copy.deepcopy(ASKED)
    place = pod["spec"]
    for step in path[:-1]:
        place = place[step]
    old = place[path[-1]]
    place[path[-1]] = data.draw(VALUES[type(old)].filter(lambda value: value != old))
    assert list(changes_of(ASKED, pod))


@given(st.text(alphabet="0123456789.eEnumkKMGTPi+-", max_size=12))
def test_any_text_can_be_a_quantity(text: str) -> None:
    """A limit of any text is compared."""
    found = changes(lambda pod: container(pod)["resources"]["limits"].update(cpu=text))
    assert found in ([], ["the limits of container 'sandbox' were changed"])


@given(st.decimals(0, 4, places=4) | st.just(Decimal("1.5")), st.sampled_from([("m", 3), ("", 0), ("k", -3)]))
def test_limits_are_compared_by_value(cpus: Decimal, unit: tuple[str, int]) -> None:
    """The form does not matter; what is finer than the API's thousandth of a processor is rounded up, as there."""
    text = f"{cpus.scaleb(unit[1]):f}{unit[0]}"
    found = changes(lambda pod: container(pod)["resources"]["limits"].update(cpu=text))
    assert (not found) is (Decimal("1.499") < cpus <= Decimal("1.5"))
