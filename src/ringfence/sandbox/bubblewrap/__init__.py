"""The default fence: bubblewrap namespaces, a seccomp filter, and control groups where they are available."""

from ringfence.sandbox.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
