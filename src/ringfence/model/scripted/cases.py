"""Chooses by how a conversation begins which case of a script answers it."""

from typing import Final

from ringfence.errors import ConfigurationError
from ringfence.model.scripted.asked import Asked
from ringfence.model.scripted.conversation import (
    ConversationProgress,
    FaultsDone,
    Place,
    digest,
    with_replies,
)
from ringfence.model.scripted.script import Script

_SHOWN: Final = 100


class Cases:
    """The cases of a script, each a script for all conversations that it fits.

    Args:
        script: With cases.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._scripts = tuple(script.of_case(index) for index in range(len(script.cases)))
        self._faults_done = FaultsDone()

    def find(self, asked: Asked, conversation: str) -> ConversationProgress:
        """The first case that fits, at its place.

        Args:
            asked: The request.
            conversation: What the client calls it; may be empty. Tells apart equal beginnings.

        Raises:
            ConfigurationError: None fits.
        """
        beginning, replies = _beginning(asked)
        for case, script in zip(self._script.cases, self._scripts, strict=True):
            if all(text in beginning for text in case.when):
                place = Place(conversation, digest(beginning), replies)
                return ConversationProgress(script, self._faults_done, place, replies_since=replies)
        start = beginning if len(beginning) <= _SHOWN else f"{beginning[:_SHOWN]}..."
        raise ConfigurationError(
            f"none of the {len(self._scripts)} cases fits a conversation that begins with {start!r}; "
            "add one, or a last one without 'when'",
            file=self._script.path,
        )


def _beginning(asked: Asked) -> tuple[str, int]:
    """What the user said before the model first spoke, and how often the model has spoken since.

    Not the first message alone: some clients put messages of their own before the prompt.
    """
    first: list[str] = []
    replies = 0
    for utterance, replies in with_replies(asked.said):
        if not replies:
            first.append(utterance.text)
    return "\n".join(first), replies
