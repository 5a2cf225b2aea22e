"""Handles the page of the inbox: questions and jobs that wait for a person."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.pages.jobs import FAILED
from ringfence.web.rendering import Page

_RECENT = 20
_GROUPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Blocked", {"state": ["blocked"]}),
    ("Failed", {"state": list(FAILED)}),
    ("Ready to apply", {"ready": "true"}),
)
_ANSWERED = {"allow": "Allowed. The job resumes in a new attempt.", "deny": "Denied."}


async def show_inbox(_request: Request, api: ApiClient) -> Page:
    """The questions of agents, and jobs that failed or whose changes wait to be applied."""
    questions = await api.get("inbox", open="true")
    answered = await api.get("inbox", open="false", limit=_RECENT)
    groups = [
        {"label": label, "jobs": await api.get("jobs", limit=_RECENT, **filters)}
        for label, filters in _GROUPS
    ]
    return Page(
        "inbox",
        {
            "questions": questions,
            "groups": [group for group in groups if group["jobs"]],
            "answered": answered,
        },
    )


async def answer(request: Request, api: ApiClient, form: Mapping[str, str]) -> str:
    """Answer a question."""
    chosen = form.get("answer", "")
    if chosen not in _ANSWERED:
        raise ApiError(400, "an answer is `allow` or `deny`")
    body = {"answer": chosen, "scope": form.get("scope", "run"), "reply": form.get("reply", "")}
    await api.post("inbox", request.path_params["id"], "answer", body=body)
    return _ANSWERED[chosen]


async def revoke(request: Request, api: ApiClient, _form: Mapping[str, str]) -> str:
    """Take a granted rule away from an agent."""
    await api.delete("grants", request.path_params["id"])
    return "The rule is revoked. Attempts that have begun keep it."
