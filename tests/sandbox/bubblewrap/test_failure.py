"""What bwrap says is understood: its own words, as captured."""

import subprocess

import pytest

from ringfence.sandbox.bubblewrap.bwrap import CAUSES, explain, find_bwrap
from ringfence.sandbox.cause import find_cause

NO_PERMISSION = (
    "bwrap: No permissions to creating new namespace, likely because the kernel does not allow non-privileged"
    " user namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'."
)
NO_SUPPORT = (
    "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces."
    "  bwrap must be installed setuid on such systems."
)
NO_MORE = (
    "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
)
NO_FILTERS = (
    "bwrap: Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported EINVAL."
    " (Hint: this requires a kernel configured with CONFIG_SECCOMP and CONFIG_SECCOMP_FILTER.)"
)
SAID = [
    (NO_MORE, "no-user-namespaces"),
    (NO_PERMISSION, "no-user-namespaces"),
    (NO_SUPPORT, "no-user-namespaces"),
    ("bwrap: setting up uid map: Permission denied", "no-user-namespaces"),
    ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "no-network-namespace"),
    ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "no-proc"),
    (NO_FILTERS, "no-seccomp"),
    ("bwrap: execvp /usr/bin/python3: No such file or directory", "no-interpreter"),
    ("ringfence: b'/srv/p' has no idmapped mount: Invalid argument", "no-idmapped-mount"),
    ("bwrap: Can't find source path /home/u/.cargo/bin: No such file or directory", "source-gone"),
]
"""As they are in the binary of bubblewrap 0.11.2; `test_real_words` makes it say one of them."""


@pytest.mark.parametrize(("said", "name"), SAID)
def test_known(said: str, name: str) -> None:
    """Each text that was captured is told with what to do."""
    cause = find_cause(said, CAUSES)
    assert cause is not None
    assert cause.name == name
    assert explain(said + "\n") == f"{' '.join(said.split())}; {cause.advice}"


def test_every_row_is_captured() -> None:
    """No row is without a text."""
    assert {name for _, name in SAID} == {cause.name for cause in CAUSES}


@pytest.mark.parametrize(
    "setting", ["user.max_user_namespaces", "kernel.unprivileged_userns_clone", "apparmor"]
)
def test_how_to_allow(setting: str) -> None:
    """Where user namespaces are off all three settings are named."""
    assert setting in explain("bwrap: No permissions to creating new namespace")


def test_unknown() -> None:
    """What nobody knows is told as it is, bounded and on one line."""
    assert explain("strange\n\x20 words\n") == "strange words"
    assert len(explain("x" * 10_000)) == 500


def test_real_words() -> None:
    """This machine's bwrap says about a missing program what the table knows."""
    bwrap = find_bwrap()
    assert bwrap is not None
    argv = [str(bwrap.path), "--ro-bind", "/usr", "/usr", "/no/python3"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    cause = find_cause(done.stderr, CAUSES)
    assert cause is not None
    assert cause.name == "no-interpreter"
