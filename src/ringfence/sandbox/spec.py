"""Defines the specification of a sandbox: its properties, not how it is made. See `policy` for rules about it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
)

from ringfence.config.arguments import Arguments
from ringfence.config.egress import Egress
from ringfence.config.engine_access import EngineAccess
from ringfence.config.forward import Forward, check_forwards
from ringfence.config.kubernetes import KubernetesPods
from ringfence.config.units import ByteCount, Seconds
from ringfence.config.values import Loosening

WorkspaceMode = Literal["bind", "read_only", "clone"]
Network = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]


class Mount(Arguments):
    """A host path shown inside, besides the workspace."""

    source: Path
    """Absolute path on the host."""
    target: str
    """Absolute path inside."""
    read_only: bool = True


class SandboxSpec(Arguments):
    """Everything that determines the properties of a sandbox. Equal specs give equal sandboxes.

    The arguments have the names and meanings of the keys of `sandbox` and `egress` in ringfence.yaml, which the file
    that `ringfence init` writes explains.

    Raises:
        UsageError: An argument is unknown, or its value does not fit.
    """

    backend: str = "auto"
    """Name of a registered backend, or `auto`."""
    workspace: Path | None = None
    """Directory the agent works on; shown inside at the same absolute path. None: an empty private one."""
    mode: WorkspaceMode | None = None
    """How the workspace is shown. None: as the table in `sandbox.workspace.open` says."""
    network: Network = "none"
    """`none`: a loopback interface and nothing else. `bridge`, or the name of an engine's network: needs `unsafe`.
    For Kubernetes `unenforced`: accept a cluster that does not enforce its NetworkPolicies."""
    memory: ByteCount = 2 * 1024**3
    """Total memory of everything inside, bytes."""
    cpus: PositiveFloat = 2.0
    """Processor time per second of wall clock."""
    pids: Annotated[PositiveInt, Field(ge=8)] = 512
    """Processes and threads inside."""
    disk: ByteCount = 10 * 1024**3
    """Growth of workspace and home, bytes. Soft in every backend (a watchdog measures it)."""
    tmp: ByteCount = 1024**3
    """Size of the private `/tmp`, bytes. It counts as memory."""
    ttl_s: Seconds | None = None
    """The guest ends the sandbox after this time, regardless of the host."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of every command inside. Never put a secret here."""
    mounts: tuple[Mount, ...] = ()
    setup: tuple[str, ...] = ()
    """Shell commands run once inside, before anything else, in the workspace."""
    forward: Annotated[tuple[Forward, ...], AfterValidator(check_forwards)] = ()
    """TCP services on the host's side that can be reached inside, while a gate is open (`egress.gate`)."""
    engine_access: EngineAccess | None = None
    """Operations that processes inside may do on a container engine, through the gate. None: no access."""
    egress: Egress = Egress()
    """Hosts that processes inside may reach through the gate, while it is open (`egress.gate`)."""
    soft_limits: bool = False
    """Accept a watchdog where the kernel cannot enforce a limit that was set."""
    image: str | None = None
    """Container image, by tag or digest; for backends that use one."""
    engine: str | None = None
    """The container engine: an address or a docker context, for Kubernetes a kubeconfig's context. None searches."""
    runtime: str | None = None
    """OCI runtime of the engine, such as `runsc`; for Kubernetes a RuntimeClass. None: the backend's own."""
    kubernetes: KubernetesPods = KubernetesPods()
    """How a cluster's pods are made; for the backend `kubernetes`."""
    registries: tuple[str, ...] | None = None
    """Registries that images may come from. None: any."""
    digest_only: bool = False
    """Refuse images that are not pinned by digest."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of containers and volumes, besides ringfence's own."""
    tmp_exec: bool = False
    """Let programs in `/tmp` be executed; elsewhere in the sandbox that is always allowed."""
    unsafe: tuple[Loosening, ...] = ()
    """Exceptions from the policy, by name. `network` permits a value other than `none` in the field `network`; the other
    names belong to configuration files."""
    hide_toolchains: bool = False
    """Do not show the user's toolchains (pyenv, nvm, cargo, ...) inside."""

    def host_names(self) -> tuple[str, ...]:
        """Names of the loopback inside, besides `localhost`; for `/etc/hosts`, where a backend can write it."""
        return tuple(dict.fromkeys(forward.name for forward in self.forward if forward.name is not None))

    def writable_directories(self) -> tuple[Path, ...]:
        """Directories of the host in which processes inside may replace files.

        Includes the workspace unless it is shown read-only, as it is not known here whether it is a private copy.
        """
        shown = [mount.source for mount in self.mounts if not mount.read_only]
        if self.workspace is not None and self.mode != "read_only":
            shown.append(self.workspace)
        return tuple(shown)

    def explicit_limits(self) -> frozenset[str]:
        """Names of the limits that were set explicitly, as opposed to defaults."""
        return frozenset({"memory", "cpus", "pids"} & self.model_fields_set)
