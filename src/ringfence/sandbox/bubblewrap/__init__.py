"""The default fence: namespaces by bubblewrap, a seccomp filter, cgroups where they can be had."""

from ringfence.sandbox.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
