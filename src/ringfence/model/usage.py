"""The usage in replies of the Messages API, which the agent CLI claude copies into its transcripts."""

from typing import Annotated

import msgspec

from ringfence.events import Usage

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)] | None


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: _Count = None


class _ServerToolUse(msgspec.Struct):
    web_search_requests: _Count = None


class MessagesUsage(msgspec.Struct):
    """The object `usage` of a message. Counts that it leaves out are None."""

    input_tokens: _Count = None
    output_tokens: _Count = None
    cache_creation_input_tokens: _Count = None
    cache_read_input_tokens: _Count = None
    cache_creation: _CacheCreation | None = None
    server_tool_use: _ServerToolUse | None = None

    def update(self, usage: Usage) -> Usage:
        """Return `usage` with the counts that this object has in place of its own."""
        created, tools = self.cache_creation or _CacheCreation(), self.server_tool_use or _ServerToolUse()
        counts = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation_1h_input_tokens": created.ephemeral_1h_input_tokens,
            "web_search_requests": tools.web_search_requests,
        }
        given = {name: count for name, count in counts.items() if count is not None}
        return msgspec.structs.replace(usage, **given)
