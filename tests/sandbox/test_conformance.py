"""All backends keep what every sandbox promises."""

import os
from collections.abc import Callable

import pytest

from ringfence.testing.conformance import (
    CHECKS,
    SLOW,
    Check,
    OpenSandbox,
    bounds,
    commands,
    connections,
    files,
    lifetime,
    streams,
)

GAPS: dict[str, dict[object, str]] = {
    "bubblewrap": {},
    "docker": {},
    "podman": {},
    "gvisor": {
        commands.default_signals: "gVisor's /proc/self/status has no lines about signals",
        streams.terminal: "gVisor tells nobody that a terminal's size changed",
        lifetime.guest_is_out_of_reach: "in gVisor process 1 can be killed from inside: the sandbox ends",
    },
    "host": {
        lifetime.one_is_not_another: "no fence: all processes of the machine are seen",
        lifetime.guest_is_out_of_reach: "no fence: process 1 is the machine's own",
    },
}
AS_ROOT: dict[object, str] = {files.no_permission: "no fence: root's permissions are not limited"}
CONTAINERS = ("docker", "podman", "gvisor")
DEAR = {
    bounds.cancelled,
    bounds.many_at_once,
    commands.large_arguments,
    connections.cut_off_from_inside,
    connections.slow_reader,
    connections.unix_socket,
    files.many_at_once,
    lifetime.one_is_not_another,
    files.stream_left_early,
    streams.terminal_signals,
}
"""Those that take a third of a second, and are like another."""
CARRIED = (connections, streams)
"""What the guest carries, which in a container of Docker's daemon is the same whoever asked for it."""
CASES = [
    pytest.param(
        backend,
        check,
        id=f"{backend}-{check.__module__.rpartition('.')[2]}-{check.__name__}",
        marks=[
            *([pytest.mark.slow] if check in SLOW | DEAR or backend == "host" else []),
            *([pytest.mark.docker] if backend in CONTAINERS else []),
            *(
                [pytest.mark.any_user("bytes that a guest in a container carries, whoever asked its daemon")]
                if backend == "docker" and check.__module__ in {module.__name__ for module in CARRIED}
                else []
            ),
        ],
    )
    for backend in GAPS
    for check in CHECKS
]


@pytest.mark.parametrize(("backend", "check"), CASES)
async def test_conforms(backend: str, check: Check, opener: Callable[[str], OpenSandbox]) -> None:
    """The backend keeps the promise in the check's docstring."""
    reason = GAPS[backend].get(check)
    if reason is None and backend == "host" and os.geteuid() == 0:
        reason = AS_ROOT.get(check)
    if reason is not None:
        pytest.skip(f"{backend}: {reason}")
    await check(opener(backend))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.__module__}.{check.__name__}")
def test_promise_is_said(check: Check) -> None:
    """Every check says its promise in one sentence."""
    assert check.__doc__
    assert "\n" not in check.__doc__.strip()


def test_none_is_forgotten() -> None:
    """Each promise is listed once."""
    assert len(set(CHECKS)) == len(CHECKS)
    assert set(CHECKS) >= SLOW
