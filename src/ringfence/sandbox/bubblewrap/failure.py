"""Why bwrap did not start, by what it wrote: a pure classifier over the texts of bubblewrap 0.11."""

import re

from ringfence.frozen import frozen
from ringfence.sandbox.idmap import ADVICE

_ALLOW = (
    "this machine does not let you make user namespaces; as root allow it: "
    "`sysctl user.max_user_namespaces=15000`, on Debian 10 and older also "
    "`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu 23.10 and newer "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` (or an AppArmor profile for bwrap); "
    "in a container, start it with user namespaces allowed"
)
_TEXT_LIMIT = 500


@frozen
class Cause:
    """One row: what bwrap says, and what to do about it."""

    name: str
    said: re.Pattern[str]
    advice: str


CAUSES = (
    Cause(
        "no-user-namespaces",
        re.compile(
            r"No permissions to creat\w+ (a )?new namespace|Creating new namespace failed|setting up [ug]id map|"
            r"cannot open /proc/sys/user/max_user_namespaces|creation of new user namespaces was not disabled"
        ),
        _ALLOW,
    ),
    Cause(
        "no-network-namespace",
        re.compile(r"loopback: Failed"),
        "the machine restricts what a namespace may do (AppArmor's userns restriction does so): "
        "as root `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    Cause(
        "no-proc",
        re.compile(r"Can't mount proc on"),
        "the container you are in hides parts of /proc; start it with `--security-opt systempaths=unconfined`",
    ),
    Cause(
        "no-seccomp",
        re.compile(r"PR_SET_SECCOMP"),
        "the kernel was built without seccomp filters; use one with CONFIG_SECCOMP_FILTER",
    ),
    Cause(
        "no-interpreter",
        re.compile(r"execvp .*python[\d.]*: No such file"),
        "the guest needs python3 (3.9 or newer) inside: install python3 as /usr/bin/python3",
    ),
    Cause("no-idmapped-mount", re.compile(r"has no idmapped mount"), ADVICE),
    Cause(
        "source-gone",
        re.compile(r"Can't (find source path|get type of source|bind mount)"),
        "a directory that was to be shown inside is gone or may not be entered by the sandbox's user",
    ),
)
"""Asked in this order."""


def classify(said: str) -> Cause | None:
    """The row that fits what bwrap wrote; None if none does."""
    return next((cause for cause in CAUSES if cause.said.search(said)), None)


def explain(said: str) -> str:
    """What bwrap wrote, bounded, and what to do about it where that is known."""
    text = " ".join(said.split())[-_TEXT_LIMIT:]
    cause = classify(said)
    return f"{text}; {cause.advice}" if cause else text
