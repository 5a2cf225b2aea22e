"""Conformance checks of sandboxes: promises that every backend must keep.

Each check is an async function whose docstring states one promise. It receives a function that opens a sandbox, and
raises `AssertionError` if the promise is broken. With pytest:

    from ringfence.testing.conformance import CHECKS, Check

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check: Check) -> None:
        await check(open_my_sandbox)
"""

from ringfence.testing.conformance import bounds, commands, connections, files, lifetime, streams
from ringfence.testing.conformance.check import Check, OpenSandbox

CHECKS: tuple[Check, ...] = (
    *commands.CHECKS,
    *files.CHECKS,
    *streams.CHECKS,
    *connections.CHECKS,
    *bounds.CHECKS,
    *lifetime.CHECKS,
)
"""All checks."""

SLOW: frozenset[Check] = frozenset(
    {
        lifetime.supervisors_are_killed,
        commands.large_input,
        commands.exit_codes,
        files.large_file,
        files.large_directory,
        files.removing_deep_trees,
        streams.floods_that_are_read,
        connections.large_and_exact,
        connections.two_hundred,
        connections.storm,
        bounds.timeout_of_a_tree,
        bounds.timeout_spares_others,
        bounds.more_than_fit,
        bounds.memory,
        bounds.memory_of_a_child,
        bounds.too_many_processes,
        bounds.time_to_live,
    }
)
"""The checks that take more than a second."""

__all__ = ["CHECKS", "SLOW", "Check", "OpenSandbox"]
