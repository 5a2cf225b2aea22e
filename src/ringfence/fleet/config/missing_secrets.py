"""Secrets that triggers and hooks ask for, and nobody says where they are: told when the file is read, not at night."""

from collections.abc import Iterator

from ringfence.config.document import KeyPath
from ringfence.config.names import nearest
from ringfence.errors import RingfenceError
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.secret_placeholders import names_in
from ringfence.secret import VARIABLES


def unnamed_secrets(agent: Agent) -> Iterator[RingfenceError]:
    """What `${secret:NAME}` asks for and `secrets:` does not name; credentials of models need no name there."""
    known = agent.settings.secrets
    for path, text in _texts(agent):
        for name in names_in(text):
            if name in known or name in VARIABLES:
                continue
            guess = nearest(name, known)
            advice = (
                f"did you mean {guess!r}?" if guess else f"add it under `secrets:` as `{name}: env:VARIABLE`"
            )
            where = ".".join(map(str, path))
            yield agent.merged.blame(path).error(
                f"agents.{agent.name}.{where}: nothing says where secret {name!r} is; {advice}"
            )


def _texts(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    for name, trigger in agent.settings.triggers.items():
        if trigger.type == "webhook":
            yield ("triggers", name, "secret"), trigger.secret
        elif trigger.type == "github":
            yield ("triggers", name, "token"), trigger.token
    for moment, hooks in agent.settings.hooks.items():
        for index, hook in enumerate(hooks):
            if hook.type == "command":
                continue
            yield ("hooks", moment, index, "url"), hook.url
            yield ("hooks", moment, index, "secret"), hook.secret or ""
            for header, value in hook.headers.items():
                yield ("hooks", moment, index, "headers", header), value
