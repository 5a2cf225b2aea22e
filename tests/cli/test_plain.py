"""A policy as a person reads it."""

from ringfence.cli.render.policy import policy_lines

_DOCUMENT = {
    "network": "none",
    "workspace": None,
    "limits": {"memory": 2 * 1024**3, "cpus": 2.0, "disk": 1536 * 1024**2, "ttl_s": None},
    "enforced": {"memory": "kernel", "cpus": "none", "disk": "soft"},
    "mounts": [{"source": "/a", "target": "/b", "read_only": True}],
    "read_only_in_workspace": [],
    "environment": ["HOME", "PATH"],
    "engine": [],
    "notes": ["toolchain shown read-only: /x", "toolchain shown read-only: /y"],
    "loosened": [{"what": "limits are only watched", "by": "--soft-limits"}],
}


def test_a_policy_is_plain_lines():
    """Sizes have units, each limit says who enforces it, and nothing that is empty has a heading."""
    assert list(policy_lines(_DOCUMENT)) == [
        "network: none",
        "limits:",
        "  - memory: 2g, by the kernel",
        "  - cpus: 2, not enforced here",
        "  - disk: 1536m, watched, short bursts are not stopped",
        "mounts:",
        "  - /b from /a, read-only",
        "environment:",
        "  - HOME, PATH",
        "notes:",
        "  - toolchain shown read-only: /x, /y",
        "loosened:",
        "  - limits are only watched (set by --soft-limits)",
    ]


def test_no_heading_stands_alone():
    """Also where all that is below it is told elsewhere."""
    assert list(policy_lines({"notes": [], "limits": {"ttl_s": None}})) == []
