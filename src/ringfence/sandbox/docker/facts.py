"""What an engine says of itself, taken from `/version` and `/info` (Docker Engine API 1.41)."""

from collections.abc import Mapping
from typing import Any

from ringfence.frozen import frozen

_LIMITS = {"MemoryLimit": "memory", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}


@frozen
class EngineFacts:
    """What decides how a container is made on this engine."""

    version: str
    api_version: str
    is_podman: bool
    is_rootless: bool
    has_user_namespace: bool
    """Whether uids inside are other uids outside by the engine's own setting (`userns-remap`)."""
    cgroup_version: int
    limits: frozenset[str]
    """Of `memory`, `cpus`, `pids`: those that it says it can enforce."""
    has_cpuset: bool
    has_apparmor: bool
    runtimes: frozenset[str]
    default_runtime: str
    processors: int
    memory_bytes: int
    architecture: str

    @property
    def product(self) -> str:
        """Name for people."""
        rootless = "rootless " if self.is_rootless else ""
        return f"{rootless}{'Podman' if self.is_podman else 'Docker'} {self.version}"

    @property
    def shifts_ids(self) -> bool:
        """Whether a uid inside is another uid outside. Rootless Podman keeps ours."""
        return self.has_user_namespace or (self.is_rootless and not self.is_podman)

    @property
    def unset_limits(self) -> dict[str, str]:
        """Limits that the engine cannot set, and why."""
        if self.is_rootless and self.cgroup_version == 1:
            # It says that it can, and silently does nothing (Podman 4.3: inspect shows 0).
            reason = "a rootless engine cannot set limits on control groups of version 1"
            return dict.fromkeys(_LIMITS.values(), reason)
        return {
            name: f"{self.product} says it cannot" for name in _LIMITS.values() if name not in self.limits
        }

    def is_gvisor(self, runtime: str | None) -> bool:
        """Whether an OCI runtime, or the default one, is gVisor, by its name."""
        name = runtime or self.default_runtime
        return name.startswith("runsc") or "gvisor" in name


def parse_facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineFacts:
    """Read the answers of an engine; what it does not say counts as not there."""
    options = [str(option) for option in info.get("SecurityOptions") or ()]

    def has(name: str) -> bool:
        return any(f"name={name}" in option.split(",") for option in options)

    components = [str(one.get("Name", "")) for one in version.get("Components") or ()]
    return EngineFacts(
        version=str(version.get("Version", "?")),
        api_version=str(version.get("ApiVersion", "")),
        is_podman=any("podman" in name.lower() for name in components),
        is_rootless=has("rootless") or bool(info.get("Rootless")),  # Docker, Podman
        has_user_namespace=has("userns"),
        cgroup_version=2 if str(info.get("CgroupVersion", "1")) == "2" else 1,
        limits=frozenset(name for key, name in _LIMITS.items() if info.get(key)),
        has_cpuset=bool(info.get("CPUSet")),
        has_apparmor=has("apparmor"),
        runtimes=frozenset(info.get("Runtimes") or ()),
        default_runtime=str(info.get("DefaultRuntime") or "runc"),
        processors=int(info.get("NCPU") or 0),
        memory_bytes=int(info.get("MemTotal") or 0),
        architecture=str(info.get("Architecture", "")),
    )
