"""Limits on memory, processor and processes by Linux control groups, where one can be had."""

from ringfence.sandbox.cgroup.group import Cgroup, adopt, create
from ringfence.sandbox.cgroup.leftovers import leftovers, remove_leftovers
from ringfence.sandbox.cgroup.plan import CgroupPlan, plan
from ringfence.sandbox.cgroup.systemd import launch_environment, launch_prefix

__all__ = [
    "Cgroup",
    "CgroupPlan",
    "adopt",
    "create",
    "launch_environment",
    "launch_prefix",
    "leftovers",
    "plan",
    "remove_leftovers",
]
