"""Handles the page of the inbox: questions and jobs that wait for a person."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.pages.jobs import FAILED
from ringfence.web.renderer import Page

_RECENT = 20
_SHOWN = 50
"""The number of questions on the page; the others are counted."""
_MOST = 1000
_GROUPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Blocked", {"state": ["blocked"]}),
    ("Failed", {"state": list(FAILED)}),
    ("Ready to apply", {"ready": "true"}),
)
_ANSWERED = {"allow": "Allowed. The job resumes in a new attempt.", "deny": "Denied."}


async def show_inbox(_request: Request, api: ApiClient) -> Page:
    """The questions of agents, and jobs that failed or whose changes wait to be applied."""
    questions = sorted(await api.get("inbox", open="true", limit=_MOST), key=_urgency)
    answered = await api.get("inbox", open="false", limit=_RECENT)
    groups = [
        {"label": label, "jobs": await api.get("jobs", limit=_RECENT, **filters)}
        for label, filters in _GROUPS
    ]
    return Page(
        "inbox",
        {
            "questions": [{**each, "shown_rule": json.dumps(each["rule"])} for each in questions[:_SHOWN]],
            "more_questions": max(0, len(questions) - _SHOWN),
            "groups": [group for group in groups if group["jobs"]],
            "answered": answered,
            "requests": await _read_requests(api),
        },
    )


async def _read_requests(api: ApiClient) -> list[dict[str, Any]]:
    """Requests to apply the changes of runs of the machine; none for a token that may not see its runs."""
    try:
        return list(await api.get("apply-requests"))
    except ApiError as exc:
        if exc.status != HTTPStatus.FORBIDDEN:
            raise
        return []


def _urgency(question: Mapping[str, Any]) -> tuple[bool, str, str, str]:
    """Sort the questions by deadline, then by age, so that a new question seldom moves the others."""
    deadline = question["deadline"]
    return deadline is None, deadline or "", question["created_at"], question["id"]


async def answer(request: Request, api: ApiClient, form: Mapping[str, str]) -> str:
    """Answer a question."""
    chosen = form.get("answer", "")
    if chosen not in _ANSWERED:
        raise ApiError(400, "an answer is `allow` or `deny`")
    body: dict[str, Any] = {
        "answer": chosen,
        "scope": form.get("scope", "run"),
        "reply": form.get("reply", ""),
    }
    if "rule" in form:
        body["rule"] = _rule_of(form["rule"])
    await api.post("inbox", request.path_params["id"], "answer", body=body)
    return _ANSWERED[chosen]


def _rule_of(text: str) -> dict[str, Any]:
    """The rule that the page showed.

    Raises:
        ApiError: The text is not that of a rule.
    """
    try:
        rule = json.loads(text)
    except ValueError:
        rule = None
    if not isinstance(rule, dict):
        raise ApiError(400, "`rule` is not a rule")
    return rule


async def revoke(request: Request, api: ApiClient, _form: Mapping[str, str]) -> str:
    """Take a granted rule away from an agent."""
    await api.delete("grants", request.path_params["id"])
    return "The rule is revoked. Attempts that have begun keep it."
