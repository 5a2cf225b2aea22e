"""Limits on memory, processor and processes by Linux control groups, where one can be had."""

from ringfence.sandbox.cgroup.group import Cgroup, adopt, create
from ringfence.sandbox.cgroup.leftovers import clean_up, leftovers
from ringfence.sandbox.cgroup.plan import CgroupPlan, plan
from ringfence.sandbox.cgroup.systemd import launch_prefix

__all__ = ["Cgroup", "CgroupPlan", "adopt", "clean_up", "create", "launch_prefix", "leftovers", "plan"]
