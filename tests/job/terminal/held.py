"""Runs a shell's script in a sandbox on this terminal; a program for tests."""

import sys

import anyio

from ringfence.job.terminal import run_on_terminal
from ringfence.sandbox import Sandbox, SandboxSpec


async def main() -> None:
    """Do it, and say how it ended."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        outcome = await run_on_terminal(("sh", "-c", sys.argv[1]), 0, 1, sandbox, None, suspends=True)
    print("ENDED:", outcome.reason)


if __name__ == "__main__":
    anyio.run(main)
