"""The inbox: what waits for a person."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.rendering import Page

_RECENT = 20
_ANSWERED = {"allow": "Allowed. The job resumes in a new attempt.", "deny": "Denied."}


async def show_inbox(_request: Request, api: ApiClient) -> Page:
    """Questions of agents, and jobs that failed or whose changes wait to be applied."""
    entries: list[dict[str, Any]] = await api.get("inbox", open="true")
    questions = [entry for entry in entries if entry.get("rule") is not None]
    others = [entry for entry in entries if entry.get("rule") is None]
    answered = [entry for entry in await api.get("inbox", open="false") if entry.get("answer")][:_RECENT]
    return Page("inbox", {"questions": questions, "others": others, "answered": answered})


async def answer(request: Request, api: ApiClient, form: Mapping[str, str]) -> str:
    """Answer a question."""
    chosen = form.get("answer", "")
    if chosen not in _ANSWERED:
        raise ApiError(400, "an answer is `allow` or `deny`")
    body = {"answer": chosen, "scope": form.get("scope", "run"), "reply": form.get("reply", "")}
    await api.post("inbox", request.path_params["id"], "answer", body=body)
    return _ANSWERED[chosen]
