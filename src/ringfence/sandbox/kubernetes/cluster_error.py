"""The errors of a cluster, from its own words (`Status` of the Kubernetes API conventions)."""

import json
from typing import Any

from ringfence.errors import AuthenticationFailed, InfrastructureFault, RingfenceError
from ringfence.escape import visible

_SAID_CHARS = 600
_DOCTOR = "`ringfence doctor --sandbox kubernetes` lists the permissions that are needed"


class ClusterError(InfrastructureFault):
    """A cluster refused a request or cannot be reached.

    Args:
        doing: The operation that failed: "create the pod".
        said: The cluster's message.
        status: The HTTP status; None if there was no response.
        reason: The `reason` of the `Status`: `Forbidden`, `AlreadyExists`, ...
        advice: What to do about it.
    """

    def __init__(
        self, doing: str, said: str, *, status: int | None, reason: str = "", advice: str = ""
    ) -> None:
        self.said = shown(said)
        self.status = status
        self.reason = reason
        super().__init__(f"could not {doing}: {self.said}" + (f"; {advice}" if advice else ""))

    @property
    def is_absent(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404

    @property
    def is_refusal(self) -> bool:
        """Whether the cluster answered, and will answer the same if it is asked again."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in (408, 429)


def shown(text: str) -> str:
    """A text of the cluster on one line, bounded, without control characters."""
    line = visible(" ".join(text.split()), one_line=True)
    return line if len(line) <= _SAID_CHARS else f"{line[:_SAID_CHARS]} ..."


def refusal(doing: str, status: int, body: bytes, *, name: str, namespace: str) -> RingfenceError:
    """Return the error for a response that reports a failure.

    Args:
        doing: The operation that failed.
        status: The HTTP status.
        body: A `Status` object, or anything else.
        name: The cluster, for messages.
        namespace: The namespace of the session.
    """
    try:
        document: dict[str, Any] = json.loads(body)
        said, reason = str(document["message"]), str(document.get("reason") or "")
    except (ValueError, KeyError, TypeError, RecursionError):
        said, reason = body.decode("utf-8", "replace") or f"HTTP status {status}", ""
    if status == 401:
        return AuthenticationFailed(
            f"could not {doing}: {name} does not accept the credentials ({shown(said)}); renew them in the kubeconfig"
        )
    if status == 403 and "is forbidden: User" in said:
        return AuthenticationFailed(f"could not {doing}: {shown(said)}; {_DOCTOR}")
    return ClusterError(doing, said, status=status, reason=reason, advice=_advice(status, said, namespace))


def _advice(status: int, said: str, namespace: str) -> str:
    if status == 403 and "exceeded quota" in said:
        return "end other sandboxes, ask for less with --memory or --cpus, or have the quota raised"
    if "is being terminated" in said:
        return f"namespace {namespace!r} is being deleted: name another (sandbox.kubernetes.namespace)"
    if status == 404 and f'namespaces "{namespace}" not found' in said:
        return f"create it (`kubectl create namespace {namespace}`), or name another (sandbox.kubernetes.namespace)"
    if "usage per" in said and status == 403:  # of a LimitRange
        return "ask for what the namespace allows (`kubectl describe limitrange`) with --memory or --cpus"
    if "RuntimeClass" in said and "not found" in said:
        return "`kubectl get runtimeclass` lists those that there are (sandbox.runtime)"
    if "violates PodSecurity" in said:
        return "the namespace's own rules refused it: name another (sandbox.kubernetes.namespace), or have them changed"
    if "admission webhook" in said:
        return "the cluster's own policy refused it: ask its administrators, or name another namespace"
    return ""
