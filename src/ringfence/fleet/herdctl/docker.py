"""Converts `docker:` to `sandbox:`. Options that would weaken the sandbox are left out, with a note."""

import re

from ringfence.fleet.herdctl.reader import Reader, has_variable
from ringfence.fleet.herdctl.secret import is_secret_name, names_secret

_DEFAULT_PERIOD = 100_000
_MIN_PIDS = 8
_TARGET = re.compile(r"(?P<target>/[^:]*?)(?::(?P<mode>ro|rw|z|Z))?")
_LEFT_OUT = {
    "cpu_shares": "there are no weights between sandboxes; `sandbox.cpus` is a hard limit",
    "tmpfs": "each sandbox has a /tmp of its own; `sandbox.tmp` is its size",
    "user": "the user in the sandbox is never root and cannot be chosen; files stay yours",
    "ports": "a sandbox publishes no port; `sandbox.forward` leads the other way",
    "host_config": "raw options of the container engine could weaken the sandbox; use the keys of `sandbox:`",
}


def convert_docker(reader: Reader) -> None:
    """Convert `docker`."""
    reader.keys("docker")
    for convert in (_convert_image, _convert_limits, _convert_environment, _convert_volumes, _convert_others):
        with reader.collected():
            convert(reader)


def _convert_image(reader: Reader) -> None:
    is_enabled = reader.flag("docker", "enabled")
    key = "image" if reader.has("docker", "image") else "base_image"
    image = reader.text("docker", key)
    if key == "image":
        reader.no_effect(("docker", "base_image"), "`image` is set as well")
    if is_enabled is False:
        reader.changed(("docker", "enabled"), "every agent has a sandbox, with or without containers")
    if image is None:
        if is_enabled:
            reader.changed(
                ("docker", "enabled"),
                "herdctl's own image is not used: the sandbox is bubblewrap's, unless you write `sandbox: {backend: "
                "docker, image: NAME:TAG}`",
            )
        return
    last = image.rpartition("/")[2]
    if not is_enabled:
        reader.left_out(
            ("docker", key), "`enabled` is not true; write `sandbox: {backend: docker, image: ...}`"
        )
    elif not has_variable(image) and (("@" not in image and ":" not in last) or last.endswith(":latest")):
        reader.left_out(("docker", key), "an image needs a digest or a tag other than `latest`")
    else:
        reader.put(("sandbox", "backend"), "docker", "docker", key)
        reader.put(("sandbox", "image"), image, "docker", key)


def _convert_limits(reader: Reader) -> None:
    reader.copy(("sandbox", "memory"), "docker", "memory")
    pids = reader.scalar("docker", "pids_limit")
    if isinstance(pids, int) and pids < _MIN_PIDS:
        reader.left_out(("docker", "pids_limit"), f"there is always a limit, of at least {_MIN_PIDS}")
    else:
        reader.put(("sandbox", "pids"), pids, "docker", "pids_limit")
    quota, period = reader.scalar("docker", "cpu_quota"), reader.scalar("docker", "cpu_period")
    if quota is None:
        reader.no_effect(("docker", "cpu_period"), "a period without `cpu_quota` limits nothing")
        return
    period = _DEFAULT_PERIOD if period is None else period
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (quota, period)):
        reader.left_out(("docker", "cpu_quota"), "it is not a number; write `sandbox.cpus`")
    elif quota <= 0 or period <= 0:
        reader.left_out(("docker", "cpu_quota"), "there is always a limit; write `sandbox.cpus`")
    else:
        reader.put(("sandbox", "cpus"), round(quota / period, 4), "docker", "cpu_quota")


def _convert_environment(reader: Reader) -> None:
    for name, value in reader.table("docker", "env").items():
        if is_secret_name(name) or names_secret(value):
            reader.left_out(
                ("docker", "env", name),
                "the secret would be in the sandbox; the gate adds credentials of models, and `egress.swap` others",
            )
        else:
            reader.put(("sandbox", "env", name), value, "docker", "env", name)


def _convert_volumes(reader: Reader) -> None:
    for index in reader.indices("docker", "volumes"):
        with reader.collected():
            _convert_volume(reader, index)


def _convert_volume(reader: Reader, index: int) -> None:
    path = ("docker", "volumes", index)
    text = reader.text(*path) or ""
    end = text.rfind(":/", 1)
    match = _TARGET.fullmatch(text[end + 1 :]) if end > 0 else None
    source = text[: max(0, end)]
    if match is None or match["mode"] in ("z", "Z"):
        raise reader.error(path, "write HOST:CONTAINER, or HOST:CONTAINER:ro")
    if not source.startswith(("/", "${")):
        reader.left_out(path, "named volumes and relative paths are not mounted; write an absolute path")
        return
    mount = {"source": source, "target": match["target"], "read_only": match["mode"] == "ro"}
    reader.append(("sandbox", "mounts"), mount, *path)


def _convert_others(reader: Reader) -> None:
    if reader.flag("docker", "ephemeral") is False:
        reader.left_out(("docker", "ephemeral"), "each job has a new sandbox, which ends with the job")
    reader.no_effect(("docker", "max_containers"), "no container outlives its job")
    for key, reason in _LEFT_OUT.items():
        reader.left_out(("docker", key), reason)
    network = reader.choice(("docker", "network"), ("none", "bridge", "host"))
    if network == "bridge":
        reader.left_out(
            ("docker", "network"),
            "the sandbox has no network, only the gate: allow hosts under `egress.allow`; a network of the container "
            "engine needs `sandbox: {network: bridge}` and `unsafe: [network]`",
        )
    elif network == "host":
        reader.left_out(
            ("docker", "network"),
            "the host's network is never in a sandbox; allow hosts under `egress.allow`",
        )
    reader.put(("sandbox", "labels"), reader.table("docker", "labels") or None, "docker", "labels")
    if reader.choice(("docker", "workspace_mode"), ("rw", "ro")) == "ro":
        reader.put(("sandbox", "mode"), "read_only", "docker", "workspace_mode")
