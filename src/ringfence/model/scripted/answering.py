"""Decides what a request is answered: by the script in its prompt, or by the server's own."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

import anyio
from starlette.responses import Response

from ringfence.errors import ConfigurationError
from ringfence.model.scripted.asked import Asked, unmet
from ringfence.model.scripted.blocks import SHELLS, content_blocks, encode, shell_of
from ringfence.model.scripted.carried import CarriedScripts
from ringfence.model.scripted.conversation import (
    ConversationProgress,
    Due,
    FaultsDone,
    LineProgress,
    Place,
    Progress,
    digest,
    with_replies,
)
from ringfence.model.scripted.delivery import ScriptedResponse, stream_plan, whole_plan
from ringfence.model.scripted.dialect import Dialect, Refusal, Saying
from ringfence.model.scripted.script import ErrorAnswer, JSONObject, Script

_NO_SCRIPT = (
    "the prompt carries no script and the server has none of its own; "
    "put one between <scripted-model> and </scripted-model>"
)


class Answering:
    """Answers requests.

    Args:
        script: For those that carry none; None: they are refused.
        named: Scripts that a prompt may name.
    """

    def __init__(self, script: Script | None, named: Mapping[str, Script]) -> None:
        self._line = LineProgress(script) if script is not None and script.turns else None
        self._cases = Cases(script) if script is not None and script.cases else None
        self._carried = CarriedScripts(named)
        self._one_at_a_time = anyio.Lock()
        self._count = 0

    @property
    def turns_done(self) -> int:
        """How many turns of the server's own script are over; 0 if it has cases."""
        return self._line.turn_index if self._line is not None else 0

    @contextlib.asynccontextmanager
    async def answer(
        self, dialect: Dialect, body: JSONObject, asked: Asked, conversation: str
    ) -> AsyncIterator[Response]:
        """What is due; sent while the context is open.

        The turns of the server's own script are one line, whoever asks: the context waits for the request before
        it. Scripts in prompts are each a line of their own, and so is a case for each conversation.
        """
        try:
            progress = self._of_conversation(asked, conversation)
        except ConfigurationError as exc:
            yield self.error(dialect, Refusal(400, str(exc)))
            return
        if progress is not None:
            yield self._due(dialect, body, asked, progress)
        elif self._line is not None:
            async with self._one_at_a_time:
                yield self._due(dialect, body, asked, self._line)
        else:
            yield self.error(dialect, Refusal(400, _NO_SCRIPT))

    def _of_conversation(self, asked: Asked, conversation: str) -> Progress | None:
        carried = self._carried.find(asked, conversation)
        if carried is None and self._cases is not None:
            return self._cases.find(asked, conversation)
        return carried

    def _due(self, dialect: Dialect, body: JSONObject, asked: Asked, progress: Progress) -> Response:
        script, due = progress.script, progress.due()
        if due is None:
            return self.error(dialect, Refusal(400, _exhausted(script)))
        problem = _problem(due, asked)
        if problem:
            return self.error(dialect, Refusal(400, f"{script.place(due.turn_index)}: {problem}"))
        if due.fault is not None:
            progress.fault_happened(due)
        if isinstance(due.fault, ErrorAnswer):
            return self._scripted_error(dialect, due.fault)
        blocks = content_blocks(due.turn, due.stem, asked.tools, call_prefix=dialect.call_prefix)
        saying = Saying(due.turn, blocks, due.stem, body, asked)
        reply = dialect.whole(saying)
        if body.get("stream"):
            plan = stream_plan(dialect, reply, saying, due.fault)
        else:
            plan = whole_plan(reply, due.fault, slow=due.turn.slow)
        headers = {dialect.request_id_header: self.request_id()}
        return ScriptedResponse(plan, on_sent=progress.reply_sent, headers=headers)

    def _scripted_error(self, dialect: Dialect, error: ErrorAnswer) -> Response:
        response = self.error(dialect, Refusal(error.status, error.message, error.type))
        if error.retry_after is not None:
            response.headers["retry-after"] = f"{error.retry_after}"
        if error.retry_after_ms is not None:
            response.headers["retry-after-ms"] = f"{error.retry_after_ms:g}"
        response.headers.update(error.headers)
        return response

    def error(self, dialect: Dialect, refusal: Refusal) -> Response:
        """An error in the form of the API."""
        request_id = self.request_id()
        body = encode(dialect.error_body(refusal, request_id))
        headers = {dialect.request_id_header: request_id}
        return Response(body, refusal.status, headers, media_type="application/json")

    def request_id(self) -> str:
        """The next one."""
        self._count += 1
        return f"req_scripted_{self._count:04d}"


def _exhausted(script: Script) -> str:
    case = f" (its case in line {script.case_lines[0]})" if script.case_lines else ""
    return f"the script {str(script.path)!r}{case} is exhausted after turn {len(script.turns)}"


def _problem(due: Due, asked: Asked) -> str | None:
    problem = unmet(due.turn.expect, asked) if due.turn.expect else None
    if problem is None and any(call.run for call in due.turn.tools) and shell_of(asked.tools) is None:
        return f"run needs one of the tools {', '.join(SHELLS)}, and the request offers {list(asked.tools)!r}"
    return problem


_SHOWN: Final = 100


class Cases:
    """The cases of a script, each for the conversations that begin as it says.

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
