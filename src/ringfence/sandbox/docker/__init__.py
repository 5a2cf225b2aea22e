"""Container fences: Docker, Podman and gVisor behind one engine interface."""

from ringfence.sandbox.docker.backend import DockerBackend, GvisorBackend, PodmanBackend

__all__ = ["DockerBackend", "GvisorBackend", "PodmanBackend"]
