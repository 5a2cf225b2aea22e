"""Checks the spec of a sandbox against a table of rules, and describes a sandbox's effective policy."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringfence.config.egress import WEB_PORTS
from ringfence.config.engine_access import EngineAccess
from ringfence.config.kubernetes import UNENFORCED, KubernetesPods
from ringfence.egress.address import refused_target
from ringfence.egress.environment import PROXY_PORT
from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Facts, Placement
from ringfence.sandbox.image_name import ImageName, parse_image_name
from ringfence.sandbox.registry import traits_of
from ringfence.sandbox.spec import Mount, SandboxSpec

_FORBIDDEN_SOURCES = (
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/boot",
    "/run",
    "/var/run",
    "/root",
    "/var/lib/docker",
)
_FORBIDDEN_TARGETS = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/tmp")  # noqa: S108
_CREDENTIALS = frozenset({
    ".ssh", ".aws", ".azure", ".gnupg", ".docker", ".kube", ".claude", ".claude.json", ".codex",
    ".netrc", ".config", ".git-credentials", ".gitconfig", ".mozilla", ".password-store", ".npmrc",
    ".yarnrc", ".yarnrc.yml", ".pypirc", ".m2", ".gradle", ".cargo", ".bash_history", ".zsh_history",
    ".python_history", ".pgpass", ".my.cnf", ".vault-token", ".terraform.d", ".bashrc", ".bash_profile",
    ".profile", ".zshrc", ".zshenv", ".boto",
})  # fmt: skip
"""Names in a home directory that hold keys and tokens, or that a shell runs."""
_ENGINE_SOCKET = re.compile(r"(docker|podman|containerd|crio|buildkitd)[^/]*\.sock$")
_HARMFUL_VARIABLES = re.compile(r"^(LD_.*|PYTHONSTARTUP|BASH_ENV|ENV|BASH_FUNC_.*|GCONV_PATH|HOME)$")


PROGRAMS_INSIDE = "/ringfence"
"""The directory where native programs of the host may be shown, wherever the user has installed them.

It is at the top, as bubblewrap shows the host's `/opt` unchanged, and can add nothing to it.
"""
_PROGRAM_TYPES = (2, 3)
"""Types of ELF files. Not 4: a core dump holds the memory of a process."""


@frozen
class Surroundings:
    """Resolved paths of the host that rules depend on."""

    home: Path
    state: Path


@frozen
class Rule:
    """One row of the table: `violations` yields each part of a spec that breaks the rule."""

    name: str
    because: str
    violations: Callable[[SandboxSpec, Surroundings], Iterator[str]]


def _sources(spec: SandboxSpec) -> Iterator[tuple[Mount, Path]]:
    for mount in spec.mounts:
        yield mount, Path(os.path.realpath(mount.source))


def _normal(target: str) -> Path:
    """A path inside as the kernel resolves it; `normpath` alone keeps two slashes at the start."""
    return Path("/", os.path.normpath(target).lstrip("/"))


def _is_in(path: Path, *places: str | Path) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _is_program(mount: Mount, source: Path) -> bool:
    """Whether a mount shows only a native program, read-only: such a file holds no credential."""
    if not mount.read_only or not _is_in(_normal(mount.target), PROGRAMS_INSIDE):
        return False
    try:
        if not source.is_file():
            return False
        with source.open("rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and int.from_bytes(head[16:18], sys.byteorder) in _PROGRAM_TYPES


def _root(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    yield from (f"mount of {str(mount.source)!r}" for mount, source in _sources(spec) if source == Path("/"))


def _system(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for mount, source in _sources(spec):
        if _is_in(source, *_FORBIDDEN_SOURCES) and not (
            _is_in(source, "/root") and _is_program(mount, source)
        ):
            yield f"mount of {str(mount.source)!r}"


def _home(spec: SandboxSpec, around: Surroundings) -> Iterator[str]:
    for mount, source in _sources(spec):
        if around.home.is_relative_to(source):
            yield f"mount of {str(mount.source)!r}"


def _hidden_home(spec: SandboxSpec, around: Surroundings) -> Iterator[str]:
    for mount, source in _sources(spec):
        if source.is_relative_to(around.home):
            parts = source.relative_to(around.home).parts
            is_hidden = parts and (parts[0] in _CREDENTIALS or parts[:3] == (".local", "share", "keyrings"))
            if is_hidden and not _is_program(mount, source):
                yield f"mount of {str(mount.source)!r}"


def _state(spec: SandboxSpec, around: Surroundings) -> Iterator[str]:
    for mount, source in _sources(spec):
        if _is_in(source, around.state) or around.state.is_relative_to(source):
            yield f"mount of {str(mount.source)!r}"


def _socket(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for mount, source in _sources(spec):
        if _ENGINE_SOCKET.search(str(source)) or source.is_socket():
            yield f"mount of {str(mount.source)!r}"


def _device(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for mount, source in _sources(spec):
        if source.is_block_device() or source.is_char_device():
            yield f"mount of {str(mount.source)!r}"


def _targets(spec: SandboxSpec) -> Iterator[str]:
    yield from (mount.target for mount in spec.mounts)
    yield from (claim.target for claim in spec.kubernetes.claims)


def _target(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for text in _targets(spec):
        target = _normal(text)
        if not text.startswith("/") or target == Path("/") or _is_in(target, *_FORBIDDEN_TARGETS):
            yield f"mount on {text!r}"


def _over_workspace(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for text in _targets(spec):
        if spec.workspace is not None and _normal(text) in (spec.workspace, *spec.workspace.parents):
            yield f"mount on {text!r}"


def _forwards(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for forward in spec.forward:
        reason = refused_target(forward.host, forward.target_port)
        if reason is not None:
            yield f"forward '{forward}' ({reason})"


def _egress(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for rule in spec.egress.allow:
        reasons = (refused_target(rule.host or "", port) for port in rule.ports or WEB_PORTS)
        for reason in filter(None, reasons):
            yield f"egress to '{rule}' ({reason})"


def _taken_ports(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    if spec.egress.wants_proxy:
        yield from (f"forward '{forward}'" for forward in spec.forward if forward.port == PROXY_PORT)


def _unfenced(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    if not traits_of(spec).is_fence:
        yield from (f"forward '{forward}' on the bare host" for forward in spec.forward)
        if spec.engine_access is not None:
            yield "engine access on the bare host"
        yield from (f"egress to '{rule}' on the bare host" for rule in spec.egress.allow)


def _environment(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    yield from (f"variable {name!r}" for name in spec.env if _HARMFUL_VARIABLES.match(name))


def _impossible_variables(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            yield f"variable {name!r}"


def _image(spec: SandboxSpec) -> ImageName | None:
    """The image's name; None if there is none, or it cannot be parsed (which `image-name` refuses)."""
    return parse_image_name(spec.image) if spec.image is not None else None


def _image_name(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    if spec.image is not None and _image(spec) is None:
        yield f"image {spec.image!r}"


def _image_tag(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    name = _image(spec)
    if name is not None and not name.is_pinned:
        yield f"image {spec.image!r}"


def _image_digest(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    name = _image(spec)
    if name is not None and spec.digest_only and name.digest is None:
        yield f"image {spec.image!r}"


def _image_registry(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    name = _image(spec)
    if (
        name is not None
        and spec.registries is not None
        and name.registry not in (*spec.registries, "localhost")
    ):
        yield f"image {spec.image!r} of registry {name.registry!r}"


def _network(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    if spec.network != "none" and (spec.network == "host" or "network" not in spec.unsafe):
        yield f"network {spec.network!r}"


def _labels(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    yield from (f"label {name!r}" for name in spec.labels if name.startswith("ringfence.") or not name)


def _without_containers(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    takes_none = not traits_of(spec).needs_image
    fields = {
        "image": spec.image is not None,
        "engine": spec.engine is not None,
        "runtime": spec.runtime is not None,
        "network": spec.network != "none",
        "labels": bool(spec.labels),
        "tmp_exec": spec.tmp_exec,
    }
    for name in (name for name, is_set in fields.items() if is_set and takes_none):
        yield f"sandbox.{name} with backend {spec.backend!r}"


def _pods_only(spec: SandboxSpec, _around: Surroundings) -> Iterator[str]:
    is_pod = spec.backend == "kubernetes"
    if not is_pod and spec.kubernetes != KubernetesPods():
        yield f"sandbox.kubernetes with backend {spec.backend!r}"
    if is_pod and spec.network not in ("none", UNENFORCED):
        yield f"network {spec.network!r} with backend 'kubernetes'"


RULES = (
    Rule("mount-root", "it shows the whole machine", _root),
    Rule("mount-system", "it holds the machine's accounts, devices or kernel settings", _system),
    Rule("mount-home", "your keys and history are in it", _home),
    Rule("mount-credentials", "credentials are kept there", _hidden_home),
    Rule("mount-state", "ringfence keeps its records there, and an agent could edit its own", _state),
    Rule("mount-socket", "whoever answers on a socket works with your rights, outside of the fence", _socket),
    Rule("mount-device", "a device is a way round the fence", _device),
    Rule("mount-target", "the sandbox's own system is there; mount elsewhere", _target),
    Rule("mount-over-workspace", "it would hide the workspace", _over_workspace),
    Rule(
        "image-name", "it is no name of an image; write repository:tag or repository@sha256:...", _image_name
    ),
    Rule(
        "image-tag",
        "what `latest`, or no tag, means changes; name a version or a digest; `ringfence image ls` lists those built",
        _image_tag,
    ),
    Rule(
        "image-digest", "sandbox.digest_only allows only name@sha256:..., or an id: sha256:...", _image_digest
    ),
    Rule("image-registry", "it is not among sandbox.registries", _image_registry),
    Rule(
        "network",
        "a sandbox has no network; `unsafe: [network]` allows an engine's bridge or named network, never the host's",
        _network,
    ),
    Rule("labels", "labels that begin with 'ringfence.' are ours", _labels),
    Rule(
        "containers-only",
        "it would have no effect; use docker, podman, gvisor or kubernetes",
        _without_containers,
    ),
    Rule(
        "pods-only",
        "it would have no effect; only pods have such settings, and they have no other network",
        _pods_only,
    ),
    Rule(
        "variable-name",
        "no process can have it: a name is not empty and holds no '=', and there is no NUL",
        _impossible_variables,
    ),
    Rule("environment", "it would change what programs inside load before they start", _environment),
    Rule("forward-target", "nothing inside is led to credentials or to a container engine", _forwards),
    Rule("egress-target", "nothing inside is led to credentials or to a container engine", _egress),
    Rule(
        "forward-port",
        f"port {PROXY_PORT} inside is where the proxy of `egress.allow` listens; write NAME:PORT=HOST:PORT",
        _taken_ports,
    ),
    Rule("forward-unfenced", "without a fence everything of this machine is in reach already", _unfenced),
)
"""All rules for a spec. The rules for the workspace are in `sandbox.workspace.open`."""


def check_spec(spec: SandboxSpec, around: Surroundings) -> None:
    """Refuse a spec that breaks a rule.

    Raises:
        PolicyRefused: The spec breaks a rule; the error names the first one.
    """
    for rule in RULES:
        for violation in rule.violations(spec, around):
            raise PolicyRefused(f"{violation} is not allowed: {rule.because}", rule=rule.name)


def effective_policy(spec: SandboxSpec, placement: Placement, facts: Facts) -> dict[str, Any]:
    """The policy that a sandbox enforces, as plain data; `config policy show` and `sandbox.created` show it."""
    return {
        "network": spec.network if facts.is_fence else "the host's",
        "uid": placement.uid,
        "gid": placement.gid,
        "workspace": str(placement.workspace) if placement.workspace else None,
        "workspace_is": placement.mode or "none",
        "limits": {
            "memory": int(spec.memory),
            "cpus": spec.cpus,
            "pids": spec.pids,
            "disk": int(spec.disk),
            "tmp": int(spec.tmp),
            "ttl_s": spec.ttl_s,
        },
        "enforced": dict(facts.enforced),
        "mounts": [mount.model_dump(mode="json") for mount in spec.mounts],
        "forward": [
            f"127.0.0.1:{forward.port}{f' ({forward.name})' if forward.name else ''} inside is {forward.target}"
            for forward in spec.forward
        ],
        "engine": _engine_lines(spec.engine_access),
        "egress": spec.egress.describe(),
        "read_only_in_workspace": [str(mount.target) for mount in placement.mounts if mount.read_only],
        "image": facts.image,
        "container_engine": facts.engine,
        "environment": sorted({**facts.environment, **spec.env}) if facts.is_fence else "the host's",
        "notes": list(facts.notes),
    }


def _engine_lines(access: EngineAccess | None) -> list[str]:
    if access is None:
        return []
    acts = ", ".join(access.allow) or "nothing"
    return [
        f"containers with the label {access.label!r} can be seen: list, inspect, logs, stats, top",
        f"what can be done with them: {acts}",
    ]


def check_effect_without_run(spec: SandboxSpec) -> None:
    """Refuse settings that would have no effect.

    Raises:
        UsageError: The model's API or a credential is set, which only a run has; or a mode without a workspace.
    """
    if spec.egress.wants_model or spec.egress.swap:
        what = "the model's API" if spec.egress.wants_model else "egress.swap"
        raise UsageError(
            f"SandboxSpec(egress=...) grants {what}, which needs a run, whose gateway has the credentials; use"
            " `run_task`, `ringfence run` or `ringfence exec`"
        )
    if spec.mode is not None and spec.workspace is None:
        raise UsageError(
            f"SandboxSpec(mode={spec.mode!r}) has no effect without a workspace; name one, or leave it out"
        )
