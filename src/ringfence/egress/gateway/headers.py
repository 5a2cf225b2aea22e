"""Which headers pass, each way; no other does: neither a credential from inside nor a cookie from outside."""

import re
from collections.abc import Iterable
from functools import lru_cache

from ringfence.egress.gateway.policy import ModelPolicy, betas
from ringfence.secret import Credential, Redactor

_ASKING = re.compile(
    r"accept|user-agent|anthropic-version|x-app|x-stainless-[a-z-]+|x-claude-code-[a-z-]+|x-client-[a-z-]+|"
    r"openai-beta|originator|version|session[-_]id|thread-id|conversation_id|x-codex-[a-z-]+|idempotency-key"
)
_ANSWERING = re.compile(
    r"content-type|request-id|x-request-id|retry-after|retry-after-ms|x-should-retry|anthropic-ratelimit-[a-z0-9-]+|"
    r"anthropic-priority-[a-z0-9-]+|x-ratelimit-[a-z0-9-]+|ratelimit-[a-z0-9-]+|openai-model|openai-version|"
    r"openai-processing-ms|x-codex-[a-z0-9-]+|x-reasoning-included|x-models-etag"
)
_LONGEST = 8192

Headers = tuple[tuple[str, str], ...]


def asking(came: Headers, credential: Credential, policy: ModelPolicy) -> dict[str, str]:
    """The headers of our request: those of the client that pass, and the real credential."""
    sent = {name: value for name, value in came if _is_asking(name) and _is_plain(value)}
    wanted = betas(
        ",".join(value for name, value in came if name == "anthropic-beta" and _is_plain(value)), policy
    )
    sent |= {"content-type": "application/json", "accept-encoding": "identity"}
    own = {name.lower(): value for name, value in credential.headers().items()}
    every = [*([wanted] if wanted else []), *([own.pop("anthropic-beta")] if "anthropic-beta" in own else [])]
    return sent | ({"anthropic-beta": ",".join(every)} if every else {}) | own


def answering(came: Iterable[tuple[str, str]], redactor: Redactor) -> dict[str, str]:
    """The headers of our answer: those of the API that pass, without the credential."""
    return {
        name: redactor.redact(value)
        for name, value in ((each.lower(), value) for each, value in came)
        if _is_answering(name) and _is_plain(value)
    }


# The same few names come with every request.


@lru_cache(maxsize=256)
def _is_asking(name: str) -> bool:
    return _ASKING.fullmatch(name) is not None


@lru_cache(maxsize=256)
def _is_answering(name: str) -> bool:
    return _ANSWERING.fullmatch(name) is not None


def _is_plain(value: str) -> bool:
    return len(value) <= _LONGEST and value.isascii() and (not value or value.isprintable())
