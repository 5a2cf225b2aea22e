"""Classifies the error messages of container engines: the cause and what to do about it. Tested on captured texts.

Captured from Docker 20.10.24, Podman 4.3.1, runc 1.1.5 and runsc 20221128.
"""

import re

from ringfence.sandbox.cause import Cause, find_cause

_TEXT_LIMIT = 600
_READ_LIMIT = 64 * 1024
_LONG_JSON = re.compile(r"\{.{200,}\}", re.DOTALL)
"""Matches the request that some engines repeat as a whole in their refusal."""

_WRAPPED = (
    re.compile(r"\[SSL: \w+\] (?P<said>.+?)(?: \(_ssl\.c:\d+\))?"),
    re.compile(r"(?P<said>no such image): (\S+): No such image: \2"),
    re.compile(r"failed to find image (\S+): \1: (?P<said>No such image)"),
)


CAUSES = (
    Cause(
        "ssh",
        r"\bssh: |Permission denied \(|Host key verification failed|ssh said nothing",
        "`ssh` to that machine must work without a question: check keys, agent and known_hosts",
    ),
    Cause(
        "podman-socket-permission",
        r"permission denied.*podman[^ ]*\.sock|podman[^ ]*\.sock\b.*permission denied",
        "that engine is not yours: use one of your own (`systemctl --user start podman.socket`), or "
        "`--sandbox bubblewrap`",
    ),
    Cause(
        "socket-permission",
        r"permission denied.*docker[^ ]*\.sock|\.sock\b.*permission denied",
        "you may not use the engine's socket: `sudo usermod -aG docker $USER` and a new login allow it (whoever may, "
        "is root of this machine), or use a rootless engine, or `--sandbox bubblewrap`",
    ),
    Cause(
        "tls",
        r"certificate verify failed|tlsv1|\[SSL: |bad certificate|x509",
        "check the engine's certificates: DOCKER_CERT_PATH, DOCKER_TLS_VERIFY, or the docker context",
    ),
    Cause(
        "not-running",
        r"no such file or directory.*\.sock|\.sock\b.*no such file|connection refused|Cannot connect to",
        "start it: `systemctl start docker`, or for Podman `systemctl --user start podman.socket`",
    ),
    Cause(
        "no-image",
        r"no such image|image not known|unable to find image|pull access denied|manifest unknown",
        "build it with `ringfence image build`, or fetch it with `docker pull` (for Podman `ringfence image build "
        "--podman`, `podman pull`); ringfence fetches nothing by itself",
    ),
    Cause("no-network", r"network \S+ not found", "`docker network ls` lists those that the engine has"),
    Cause(
        "no-interpreter",
        r"python3\W.{0,40}(executable file not found|no such file or directory)|"
        r"(executable file not found|no such file).{0,60}python3|error finding executable .{0,5}python3",
        "the guest needs python3 (3.9 or newer) in the image: install it there, or take one of `ringfence image ls`",
    ),
    Cause(
        "no-runtime",
        r"unknown or invalid runtime name|unknown runtime specified|"
        r"runtime .{0,80}(not found|not configured|no such file)|"
        r"default OCI runtime .{0,80}not found",
        "the engine does not know this runtime; for gVisor install runsc, run `runsc install`, restart the engine",
    ),
    Cause(
        "source-gone",
        r"bind source path does not exist|statfs .{0,300}no such file or directory",
        "the engine does not see this directory: it is gone, or the engine runs on another machine or in a container",
    ),
    Cause(
        "processors",
        r"requested CPUs are not available|range of CPUs is from",
        "the engine has fewer processors: ask for fewer with `--cpus`",
    ),
    Cause(
        "memory-too-small",
        r"minimum memory limit|unable to start container process: container init was OOM-killed",
        "give it more with `--memory`",
    ),
    Cause(
        "disk-full",
        r"no space left on device",
        "the engine's disk is full: `docker system df` shows what takes it",
    ),
    Cause(
        "cgroup",
        r"cgroups? .{0,120}(not supported|permission denied|read-only file system|not mounted)|"
        r"crun: .{0,120}cgroup|invalid slice name",
        "the engine cannot use this machine's control groups; have systemd delegate them to a rootless engine, run the "
        "engine as root, or use `--sandbox bubblewrap`",
    ),
    Cause(
        "rlimit",
        r"setrlimit|rlimits? .{0,80}operation not permitted",
        "the engine may not raise this limit of processes; set `default_ulimits` in its configuration",
    ),
)
"""Searched in this order."""


def classify(said: str) -> Cause | None:
    """The row that matches the engine's message; None if none does."""
    return find_cause(_LONG_JSON.sub("{...}", said[:_READ_LIMIT]), CAUSES)


def explain(said: str) -> str:
    """The engine's message, bounded, with advice where the cause is known."""
    cause = classify(said)
    return f"{plain(said)}; {cause.advice}" if cause else plain(said)


def plain(said: str) -> str:
    """The engine's message in one line, bounded, without its client's wrapping and without repetitions."""
    text = " ".join(_LONG_JSON.sub("{...}", said[:_READ_LIMIT]).split())
    for wrapped in _WRAPPED:
        found = wrapped.fullmatch(text)
        if found is not None:
            return found["said"][:_TEXT_LIMIT]
    return text[:_TEXT_LIMIT]
