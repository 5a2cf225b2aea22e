"""`ringfence sandbox exec NAME -- CMD` without the command line's library, whose start takes longer than the command.

Only what is plain is read here; all else, and every mistake, is for the whole command line to judge.
"""

import os
from collections.abc import Sequence

from ringfence.frozen import frozen

COMPLETION = "_RINGFENCE_COMPLETE"
"""The variable by which a shell asks what may come next."""


@frozen
class PlainExec:
    """A command for a standing sandbox."""

    name: str
    command: tuple[str, ...]
    env: tuple[str, ...] = ()
    is_interactive: bool = False

    def run(self) -> int:
        """Run it; its exit code."""
        from ringfence.cli.standing import execute_in, run_to_the_end

        async def act() -> int:
            variables = dict(item.split("=", 1) for item in self.env)
            return await execute_in(
                self.name, self.command, variables, None, interactive=self.is_interactive, tty=False
            )

        return run_to_the_end(act)


def plain_exec(words: Sequence[str]) -> PlainExec | None:
    """What the words of a command line ask for, if that is a plain `sandbox exec`; else None."""
    if tuple(words[:2]) != ("sandbox", "exec") or COMPLETION in os.environ:
        return None
    env: list[str] = []
    is_interactive = False
    rest = iter(words[2:])
    for word in rest:
        if word in ("-i", "--interactive"):
            is_interactive = True
        elif word in ("-e", "--env"):
            env.append(next(rest, ""))
        elif word.startswith("-"):
            return None
        else:
            command = tuple(rest)
            command = command[1:] if command[:1] == ("--",) else command
            is_plain = command and command[0] and not command[0].startswith("-")
            return (
                PlainExec(word, command, tuple(env), is_interactive) if is_plain and _are_set(env) else None
            )
    return None


def _are_set(env: Sequence[str]) -> bool:
    return all("=" in item for item in env)
