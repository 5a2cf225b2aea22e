"""Selects the headers that are forwarded in each direction; neither credentials from inside nor cookies are."""

import re
from collections.abc import Iterable
from functools import lru_cache

from ringfence.egress.gateway.policy import ModelPolicy, betas
from ringfence.secret import Credential, Redactor

_REQUEST = re.compile(
    r"accept|user-agent|anthropic-version|x-app|x-stainless-[a-z-]+|x-claude-code-[a-z-]+|x-client-[a-z-]+|"
    r"openai-beta|originator|version|session[-_]id|thread-id|conversation_id|x-codex-[a-z-]+|idempotency-key"
)
_RESPONSE = re.compile(
    r"content-type|request-id|x-request-id|retry-after|retry-after-ms|x-should-retry|anthropic-ratelimit-[a-z0-9-]+|"
    r"anthropic-priority-[a-z0-9-]+|x-ratelimit-[a-z0-9-]+|ratelimit-[a-z0-9-]+|openai-model|openai-version|"
    r"openai-processing-ms|x-codex-[a-z0-9-]+|x-reasoning-included|x-models-etag"
)
_LIMIT_CHARS = 8192

Headers = tuple[tuple[str, str], ...]


def request_headers(received: Headers, credential: Credential, policy: ModelPolicy) -> dict[str, str]:
    """Return the headers of the forwarded request: the client's allowed headers, and the real credential."""
    sent = {name: value for name, value in received if _is_forwarded(_REQUEST, name) and _is_plain(value)}
    wanted = betas(
        ",".join(value for name, value in received if name == "anthropic-beta" and _is_plain(value)), policy
    )
    sent |= {"content-type": "application/json", "accept-encoding": "identity"}
    own = {name.lower(): value for name, value in credential.headers().items()}
    every = [*([wanted] if wanted else []), *([own.pop("anthropic-beta")] if "anthropic-beta" in own else [])]
    return sent | ({"anthropic-beta": ",".join(every)} if every else {}) | own


def response_headers(received: Iterable[tuple[str, str]], redactor: Redactor) -> dict[str, str]:
    """Return the headers of the response: the API's allowed headers, with the credential redacted.

    A header whose name contains the credential is left out.
    """
    return {
        name: redactor.redact(value)
        for name, value in ((key.lower(), value) for key, value in received)
        if _is_forwarded(_RESPONSE, name) and _is_plain(value) and not redactor.is_in_name(name.encode())
    }


@lru_cache(maxsize=512)  # the same few names come with every request
def _is_forwarded(allowed: re.Pattern[str], name: str) -> bool:
    return allowed.fullmatch(name) is not None


def _is_plain(value: str) -> bool:
    return len(value) <= _LIMIT_CHARS and value.isascii() and (not value or value.isprintable())
