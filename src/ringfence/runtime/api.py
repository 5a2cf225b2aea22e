"""Implements the built-in agent loop: sends the conversation, carries out tool calls, adds results, until it ends."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringfence.errors import InfrastructureFault
from ringfence.events import ConversationCompacted, Emit, JSONObject, MessageSent, ModelReplied
from ringfence.model.base import ContextExceeded, Model, ModelReply, ModelRequest
from ringfence.model.prices import Price
from ringfence.runtime.base import Runtime, RuntimeResult, Task
from ringfence.runtime.conversation import Conversation, text_of, tool_result
from ringfence.runtime.limits import Limits, Meter
from ringfence.sandbox import Sandbox
from ringfence.tool.base import ToolCall
from ringfence.tool.text import is_unicode, replace_surrogates
from ringfence.tool.toolset import Toolset

DEFAULT_MAX_TOKENS = 16_384
REQUEST_TOO_LONG = "the model refused the conversation as too long"
WINDOW_FULL = "the model's context window was full before its reply was complete"

_RAISED = 2
_MAX_COMPACTIONS = 10
_MAX_PAUSES = 20


class ApiRuntime(Runtime):
    """Runs a task with a `Model` and a `Toolset`.

    Args:
        model: The model.
        toolset: The agent's open toolset.
        limits: The limits, enforced before each request and each tool call.
        prices: Prices in addition to those of the table, or in place of them.
        max_tokens: The limit for one reply; doubled once after a reply was cut.
    """

    records_replies = True

    def __init__(
        self,
        *,
        model: Model,
        toolset: Toolset,
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ) -> None:
        self.meter: Meter | None = None
        """The usage of the run, from the start of `run`."""
        self.model = model
        self.toolset = toolset
        self.max_tokens = max_tokens
        self._limits = limits or Limits()
        self._prices = prices

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Work on `task` until the model is done.

        Raises:
            LimitReached: As in the contract; `meter` then has the usage, and the events hold the conversation
                (`Conversation.from_events`).
            PolicyRefused: There is a limit on cost, and the price of the model is unknown.
            AuthenticationFailed, InfrastructureFault, UsageError: The model raised it.
            SandboxDied: The sandbox is gone.
        """
        self.meter = Meter(self._limits, model=task.model, prices=self._prices)
        return await _Loop(self, self.meter, task, sandbox, emit).work()


class _Loop:
    """One run."""

    def __init__(self, runtime: ApiRuntime, meter: Meter, task: Task, sandbox: Sandbox, emit: Emit) -> None:
        self._runtime = runtime
        self._meter = meter
        self._task = task
        self._sandbox = sandbox
        self._emit = emit
        self._conversation = Conversation(task.conversation)
        self._is_raised = False
        self._compactions = 0
        self._pauses = 0

    async def work(self) -> RuntimeResult:
        await self._add_message(self._task.prompt)
        while True:
            try:
                reply = await self._request_reply()
            except ContextExceeded:
                if not await self._compact(REQUEST_TOO_LONG):
                    return self._end("context", ())
                continue
            ended_by = await self._follow_reply(reply)
            if ended_by is not None:
                return self._end(ended_by, reply.content)

    async def _follow_reply(self, reply: ModelReply) -> str | None:
        """Act on the reply's stop reason; return how the run ended, or None if it continues."""
        reason = reply.stop_reason
        if reason != "pause_turn":
            self._pauses = 0
        match reason:
            case "tool_use":
                self._is_raised = False
                await self._use_tools(reply)
            case "end_turn" | "stop_sequence":
                return "done"
            case "refusal":
                return "refused"
            case "max_tokens":
                return self._retry_cut_reply()
            case "pause_turn":
                self._count_pause()
            case "model_context_window_exceeded":
                return None if await self._compact(WINDOW_FULL) else "context"
            case _:
                raise InfrastructureFault(
                    f"the model stopped with the reason {reason!r}, which this version does not know; update ringfence"
                )
        return None

    async def _request_reply(self) -> ModelReply:
        request = self._request()
        started = time.monotonic()
        reply = await self._runtime.model.reply(request, self._emit)
        content = _readable(reply.content)
        spent = self._meter.record_reply(reply.usage)
        await self._emit(
            ModelReplied(
                model=reply.model,
                message_id=reply.message_id,
                content=list(content),
                stop_reason=reply.stop_reason,
                usage=reply.usage,
                cost_usd=spent,
                duration_ms=round((time.monotonic() - started) * 1000, 3),
                request_digest=request.digest(),
            )
        )
        self._conversation.add_reply(content, reply.stop_reason)
        return replace(reply, content=content)

    def _request(self) -> ModelRequest:
        wanted = self._runtime.max_tokens * (_RAISED if self._is_raised else 1)
        max_tokens = self._meter.admit_request(wanted)
        return ModelRequest(
            model=self._task.model,
            system=self._task.system,
            messages=self._conversation.messages,
            tools=self._runtime.toolset.definitions,
            max_tokens=max_tokens,
        )

    async def _use_tools(self, reply: ModelReply) -> None:
        calls = _calls(reply.content)
        granted = self._meter.grant_tool_calls(len(calls))
        results = await self._runtime.toolset.call_all(calls[:granted], self._sandbox, self._emit)
        if granted < len(calls):
            raise self._meter.tool_calls_reached()
        await self._add_message(
            [
                tool_result(call.id, result.content, is_error=result.is_error)
                for call, result in zip(calls, results, strict=True)
            ]
        )

    async def _add_message(self, content: Any) -> None:
        await self._emit(MessageSent(content=content))
        self._conversation.add_message(content)

    def _retry_cut_reply(self) -> str | None:
        """Request a reply that was cut once more, with a doubled limit; its tool calls were not carried out."""
        if self._is_raised:
            return "max_tokens"
        self._is_raised = True
        return None

    def _count_pause(self) -> None:
        self._pauses += 1
        if self._pauses > _MAX_PAUSES:
            raise InfrastructureFault(f"the model paused {self._pauses} times in a row; try again later")

    async def _compact(self, reason: str) -> bool:
        """Drop old tool results; return False if that was done too often, or none is left."""
        if self._compactions >= _MAX_COMPACTIONS:
            return False
        self._compactions += 1
        dropped = self._conversation.compact()
        if dropped:
            await self._emit(ConversationCompacted(dropped_results=dropped, reason=reason))
        return dropped > 0

    def _end(self, ended_by: str, content: Sequence[JSONObject]) -> RuntimeResult:
        return RuntimeResult(
            ended_by=ended_by,
            final_text=text_of(content),
            conversation=self._conversation.messages,
            usage=self._meter.usage,
            turns=self._meter.turns,
            cost_usd=self._meter.cost_usd,
        )


def _calls(content: Sequence[JSONObject]) -> list[ToolCall]:
    blocks = [block for block in content if block.get("type") == "tool_use"]
    if not blocks:
        raise InfrastructureFault(
            "the model stopped for tool_use but called no tool; try again, or use another model"
        )
    try:
        return [ToolCall(id=block["id"], name=block["name"], arguments=block["input"]) for block in blocks]
    except KeyError as error:
        raise InfrastructureFault(
            f"the model called a tool without {error}; try again, or use another model"
        ) from error


def _readable(content: tuple[JSONObject, ...]) -> tuple[JSONObject, ...]:
    return content if is_unicode(content) else tuple(replace_surrogates(block) for block in content)
