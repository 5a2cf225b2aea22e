"""Says why a pod did not start or has ended, from the pod's own words. Tested on captured objects."""

import re
from collections.abc import Mapping
from typing import Any

from ringfence.errors import DeathReason
from ringfence.frozen import frozen
from ringfence.sandbox.base import EndReason
from ringfence.sandbox.container.hardened_container import end_reason
from ringfence.sandbox.kubernetes.cluster_error import shown
from ringfence.sandbox.kubernetes.manifest import GUEST

_POD_REASONS: Mapping[str, tuple[DeathReason, str]] = {
    "Evicted": ("evicted", "its node evicted it"),
    "Preempted": ("evicted", "the scheduler gave its place to another pod"),
    "DeadlineExceeded": ("ttl", "its time was up"),
    "NodeLost": ("node_lost", "its node is lost"),
    "NodeShutdown": ("node_lost", "its node was shut down"),
    "Terminated": ("node_lost", "its node was shut down"),
    "Shutdown": ("node_lost", "its node was shut down"),
}
"""`status.reason` of a pod that has failed (kubelet and node lifecycle controller, 1.20 to 1.37)."""
_NO_IMAGE = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_BACK_OFF = "ImagePullBackOff"
_FETCH = frozenset({"ErrImagePull", "RegistryUnavailable", _BACK_OFF})
_REFUSED_FETCH = re.compile(
    r"not found|manifest unknown|does not exist|denied|unauthorized|forbidden|authentication required|no basic auth",
    re.IGNORECASE,
)
"""Words of registries about images that are not there for this user; anything else may pass, and kubelets try again."""
_TRANSIENT = re.compile(r"deadline exceeded|is reserved for|timed? ?out", re.IGNORECASE)
"""Words of a node that is too busy to make a container, and tries again."""
_BROKEN = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "StartError",
        "ContainerCannotRun",
    }
)
_OF_THE_RUNTIME = frozenset({"StartError", "ContainerCannotRun"})
"""Ends with a message of the runtime's; with any other it is the text of a file that the agent can write."""
_NO_PYTHON = "the guest needs python3 (3.9 or newer) in the image"


@frozen
class StartProblem:
    """Why a pod does not run yet."""

    text: str
    is_final: bool
    """Whether waiting longer does not help."""
    is_repetition: bool = False
    """Whether it only says that an earlier problem lasts; the earlier one tells more."""


def container_status(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The status of one container; empty before the node has reported it."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in statuses if one.get("name") == name), {})


def is_running(pod: Mapping[str, Any], container: str) -> bool:
    """Whether the node reports a container as running."""
    return "running" in (container_status(pod, container).get("state") or {})


def end_of(pod: Mapping[str, Any]) -> EndReason | None:
    """Why the guest of a pod has ended; None while it runs, or has not started."""
    status = pod.get("status") or {}
    reason = str(status.get("reason") or "")
    if reason in _POD_REASONS and (status.get("phase") in ("Failed", "Unknown") or reason == "NodeLost"):
        kind, text = _POD_REASONS[reason]
        said = shown(str(status.get("message") or ""))
        return EndReason(kind, f"{text}: {said}" if said else text)
    ended = (container_status(pod, GUEST).get("state") or {}).get("terminated")
    if ended is None:
        return (
            EndReason("node_lost", "its node does not answer") if status.get("phase") == "Unknown" else None
        )
    said = shown(str(ended.get("message") or "")) if ended.get("reason") in _OF_THE_RUNTIME else ""
    is_deleted = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
    if is_deleted and ended.get("reason") != "OOMKilled":
        return EndReason("killed", "its pod was deleted from outside")
    return end_reason(
        int(ended.get("exitCode") or 0), is_out_of_memory=ended.get("reason") == "OOMKilled", said=said
    )


def start_problem(pod: Mapping[str, Any]) -> StartProblem | None:
    """Why a pod does not run yet; None if nothing is known to be wrong."""
    status = pod.get("status") or {}
    problems = [
        problem
        for one in status.get("containerStatuses") or ()
        if (problem := _container_problem(str(one.get("name")), one.get("state") or {})) is not None
    ]
    if problems:
        return min(problems, key=lambda one: (not one.is_final, one.is_repetition))
    if status.get("phase") in ("Failed", "Succeeded"):
        end = end_of(pod)
        return StartProblem(
            str(end) if end else shown(str(status.get("message") or "the pod has ended")), is_final=True
        )
    for one in status.get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated")
        if ended is not None:
            return StartProblem(
                f"container {shown(str(one.get('name')))!r} ended at once ({shown(str(ended.get('reason')))}, exit code "
                f"{int(ended.get('exitCode') or 0)}); {_NO_PYTHON}",
                is_final=True,
            )
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = shown(str(condition.get("message") or condition.get("reason")))
            return StartProblem(
                f"no node takes the pod: {said.rstrip('.')}; {_scheduling_advice(said)}",
                is_final=False,
            )
    return None


def _scheduling_advice(said: str) -> str:
    if "persistentvolumeclaim" in said.lower():
        return "check the names in sandbox.kubernetes.claims, and that those claims are bound"
    return "ask for less with --memory or --cpus, or check sandbox.kubernetes.node_selector and tolerations"


def _container_problem(name: str, state: Mapping[str, Any]) -> StartProblem | None:
    found = state.get("waiting") or state.get("terminated") or {}
    reason, said = str(found.get("reason") or ""), shown(str(found.get("message") or ""))
    if reason in _NO_IMAGE or reason in _FETCH:
        return StartProblem(
            f"the node has no such image, and cannot fetch it ({reason}: {said}); check the name, and "
            "sandbox.kubernetes.image_pull_secrets",
            is_final=reason in _NO_IMAGE or bool(_REFUSED_FETCH.search(said)),
            is_repetition=reason == _BACK_OFF,
        )
    if reason in _BROKEN:
        advice = f"; {_NO_PYTHON}" if "python3" in said and "not found" in said else ""
        return StartProblem(
            f"container {shown(name)!r} does not start ({reason}: {said}){advice}",
            is_final=not _TRANSIENT.search(said),
        )
    return None
