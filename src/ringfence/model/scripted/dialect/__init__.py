"""The APIs that a scripted model speaks."""

from typing import Final

from ringfence.model.scripted.dialect.base import Dialect, Refusal, Saying
from ringfence.model.scripted.dialect.chat import ChatDialect
from ringfence.model.scripted.dialect.messages import MessagesDialect
from ringfence.model.scripted.dialect.responses import ResponsesDialect

MESSAGES: Final = MessagesDialect()
RESPONSES: Final = ResponsesDialect()
CHAT: Final = ChatDialect()
DIALECTS: Final = (MESSAGES, RESPONSES, CHAT)

__all__ = ["CHAT", "DIALECTS", "MESSAGES", "RESPONSES", "Dialect", "Refusal", "Saying"]
