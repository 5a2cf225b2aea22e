"""herdctl's `docker:` as our fence. What would open it is never taken over; the words to open it are told."""

import re
from collections.abc import Iterator

from ringfence.fleet.herdctl.document import PreparedJob
from ringfence.fleet.herdctl.reader import Reader, holds_variable
from ringfence.fleet.herdctl.secret import is_secret_name, names_secret

_PERIOD = 100_000
_FEWEST_PIDS = 8
_TARGET = re.compile(r"(?P<target>/[^:]*?)(?::(?P<mode>ro|rw|z|Z))?")
_LEFT_OUT = {
    "cpu_shares": "weights between containers are not told to the fence; `sandbox.cpus` is a hard bound",
    "tmpfs": "each sandbox has a /tmp of its own; `sandbox.tmp` is its size",
    "user": "who works inside is never root, and is not chosen: files stay yours",
    "ports": "nothing inside listens to the outside; `sandbox.forward` leads the other way",
    "host_config": "raw options of the engine could open the fence; say what is needed under `sandbox:`",
}
KEYS = [
    "enabled",
    "ephemeral",
    "memory",
    "cpu_shares",
    "cpu_period",
    "cpu_quota",
    "pids_limit",
    "tmpfs",
    "labels",
    "max_containers",
    "workspace_mode",
    "image",
    "base_image",
    "network",
    "user",
    "volumes",
    "env",
    "ports",
    "host_config",
]


def convert_docker(reader: Reader, made: PreparedJob) -> None:
    """Say `docker:` as `sandbox:`."""
    reader.keys("docker")
    _image(reader, made)
    _bounds(reader, made)
    if reader.flag("docker", "ephemeral") is False:
        reader.left_out(("docker", "ephemeral"), "each job has a new sandbox, which ends with it")
    reader.no_effect(("docker", "max_containers"), "no container outlives its job")
    for key, reason in _LEFT_OUT.items():
        reader.left_out(("docker", key), reason)
    _network(reader)
    labels = reader.table("docker", "labels")
    if labels:
        made.put(("sandbox", "labels"), labels, reader.origin("docker", "labels"))
    for name, value in _environment(reader):
        made.put(("sandbox", "env", name), value, reader.origin("docker", "env", name))
    for index in reader.indices("docker", "volumes"):
        _volume(reader, made, index)
    if reader.word(("docker", "workspace_mode"), ("rw", "ro")) == "ro":
        made.put(("sandbox", "mode"), "read_only", reader.origin("docker", "workspace_mode"))


def _image(reader: Reader, made: PreparedJob) -> None:
    is_enabled = reader.flag("docker", "enabled")
    key = "image" if reader.value("docker", "image") is not None else "base_image"
    image = reader.text("docker", key)
    if key == "image":
        reader.no_effect(("docker", "base_image"), "`image` is said as well")
    if is_enabled is False:
        reader.changed(("docker", "enabled"), "every agent has a fence here, with or without containers")
    if image is None:
        if is_enabled:
            reader.changed(
                ("docker", "enabled"),
                "herdctl's own image is not used: the fence is bubblewrap's, or say `sandbox: {backend: docker, image: "
                "NAME:TAG}`",
            )
        return
    last = image.rpartition("/")[2]
    if not is_enabled:
        reader.left_out(
            ("docker", key), "`enabled` is not true beside it; say `sandbox: {backend: docker, image: ...}`"
        )
    elif not holds_variable(image) and (("@" not in image and ":" not in last) or last.endswith(":latest")):
        reader.left_out(
            ("docker", key), "an image is pinned here, by tag or digest, never `latest`; name one so"
        )
    else:
        made.put(("sandbox", "backend"), "docker", reader.origin("docker", key))
        made.put(("sandbox", "image"), image, reader.origin("docker", key))


def _bounds(reader: Reader, made: PreparedJob) -> None:
    made.put(("sandbox", "memory"), reader.scalar("docker", "memory"), reader.origin("docker", "memory"))
    pids = reader.scalar("docker", "pids_limit")
    if isinstance(pids, int) and pids < _FEWEST_PIDS:
        reader.left_out(
            ("docker", "pids_limit"), f"at least {_FEWEST_PIDS} are needed, and there is always a bound"
        )
    else:
        made.put(("sandbox", "pids"), pids, reader.origin("docker", "pids_limit"))
    quota, period = reader.scalar("docker", "cpu_quota"), reader.scalar("docker", "cpu_period")
    if quota is None:
        reader.no_effect(("docker", "cpu_period"), "a period without `cpu_quota` bounds nothing")
        return
    period = _PERIOD if period is None else period
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (quota, period)):
        reader.left_out(("docker", "cpu_quota"), "it is no number; write `sandbox.cpus`")
    elif quota <= 0 or period <= 0:
        reader.left_out(("docker", "cpu_quota"), "there is always a bound; write `sandbox.cpus`")
    else:
        made.put(("sandbox", "cpus"), round(quota / period, 4), reader.origin("docker", "cpu_quota"))


def _network(reader: Reader) -> None:
    network = reader.word(("docker", "network"), ("none", "bridge", "host"))
    if network == "bridge":
        reader.left_out(
            ("docker", "network"),
            "inside there is no network, only the gate: name hosts under `egress.allow`; a network of the engine needs "
            "`sandbox: {network: bridge}` and `unsafe: [network]`",
        )
    elif network == "host":
        reader.left_out(
            ("docker", "network"),
            "refused: the host's own network is never inside; name hosts under `egress.allow`",
        )


def _environment(reader: Reader) -> Iterator[tuple[str, str]]:
    for name, value in reader.table("docker", "env").items():
        if is_secret_name(name) or names_secret(value):
            reader.left_out(
                ("docker", "env", name),
                "a secret would be inside the fence; the models' are brought by the gate, others by `egress.swap`",
            )
        else:
            yield name, value


def _volume(reader: Reader, made: PreparedJob, index: int) -> None:
    path = ("docker", "volumes", index)
    text = reader.text(*path) or ""
    end = text.rfind(":/", 1)
    match = _TARGET.fullmatch(text[end + 1 :]) if end > 0 else None
    source = text[: max(0, end)]
    if match is None or match["mode"] in ("z", "Z"):
        raise reader.wrong(path, "write HOST:CONTAINER, or HOST:CONTAINER:ro")
    if not source.startswith(("/", "${")):
        reader.left_out(path, "named volumes and relative paths are not mounted; name an absolute path")
        return
    mount = {"source": source, "target": match["target"], "read_only": match["mode"] == "ro"}
    made.add(("sandbox", "mounts"), mount, reader.origin(*path))
