"""Settings of sandboxes on a Kubernetes cluster: where their pods are made, and what the cluster is told of them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from ringfence.config.units import Seconds
from ringfence.config.values import absolute_path

UNENFORCED = "unenforced"
"""The value of `sandbox.network` that accepts a cluster in which something answers from inside the pod."""
_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
ObjectName = Annotated[str, StringConstraints(pattern=_NAME)]
"""Name of an object, as the Kubernetes API has it: a DNS subdomain."""


class Toleration(BaseModel):
    """A taint of nodes that sandboxes may run on nevertheless, as in a pod's `tolerations`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Annotated[str, StringConstraints(min_length=1, max_length=317)]
    operator: Literal["Exists", "Equal"] = "Exists"
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Claim(BaseModel):
    """A PersistentVolumeClaim that is mounted read-only in sandboxes, such as a cache of packages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ObjectName
    target: Annotated[str, AfterValidator(absolute_path)]
    """Absolute path in the sandbox."""


class KubernetesPods(BaseModel):
    """How the pods of sandboxes are made; for the backend `kubernetes`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: ObjectName | None = None
    """Namespace of the pods. null: that of the kubeconfig's context."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets of the namespace with which nodes fetch the image."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that are tolerated: a list of {key, operator, value, effect}."""
    claims: tuple[Claim, ...] = ()
    """PersistentVolumeClaims to mount read-only: a list of {name, target}."""
    reserve: bool = False
    """Have the scheduler reserve all of `memory` and `cpus` for each sandbox, instead of a small part."""
    start_timeout: Seconds = 120.0
    """Time that the cluster is given to start a pod: for scheduling it, and for fetching its image."""

    @field_validator("claims")
    @classmethod
    def _distinct_targets(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        targets = [claim.target for claim in claims]
        if twice := next((target for target in targets if targets.count(target) > 1), None):
            raise ValueError(f"two claims have the target {twice!r}")
        return claims
