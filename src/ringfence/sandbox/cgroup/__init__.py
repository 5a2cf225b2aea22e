"""Limits memory, processor time and processes with Linux control groups, where they can be used."""

from ringfence.sandbox.cgroup.group import Cgroup, adopt, create, leftovers, remove_leftovers
from ringfence.sandbox.cgroup.limits import GroupLimits, launch_environment, launch_prefix
from ringfence.sandbox.cgroup.plan import CgroupPlan, plan

__all__ = [
    "Cgroup",
    "CgroupPlan",
    "GroupLimits",
    "adopt",
    "create",
    "launch_environment",
    "launch_prefix",
    "leftovers",
    "plan",
    "remove_leftovers",
]
