"""Handles the pages of jobs: the list, and a job's log, changes, attempts, record and task."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from ringfence.job.state import JobState
from ringfence.web.client import ApiClient, ApiError
from ringfence.web.formats import NONE, duration, tokens, usd
from ringfence.web.log import log_values
from ringfence.web.pages.changes import read_changes
from ringfence.web.renderer import NextPage, Page

_PAGE_SIZE = 50
FAILED = tuple(
    state.value
    for state in JobState
    if state.is_terminal and state not in ("succeeded", "unverified", "ended", "cancelled", "blocked")
)
"""The end states of failed jobs."""
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "active": ("queued", "starting", "running"),
    "succeeded": ("succeeded",),
    "unverified": ("unverified", "ended"),
    "failed": FAILED,
    "waiting": ("waiting",),
    "blocked": ("blocked",),
    "cancelled": ("cancelled",),
}
_TRIGGERS = ("manual", "schedule", "webhook", "files", "after", "source", "retry", "fork")
_LIMIT_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "tokens": tokens,
    "cost_usd": lambda amount: usd(amount or None),  # 0: nothing is known to have been spent
    "wall_clock_s": duration,
}
_CONFIRMATIONS = {
    "cancel": "The job is being cancelled.",
    "apply": "The changes are applied to the workspace.",
    "reject": "The changes are rejected; they stay in the record.",
}


async def list_jobs(request: Request, api: ApiClient) -> Page:
    """The table of jobs, with its filters."""
    query = request.query_params
    group = query.get("state", "all")
    found = await api.get(
        "jobs",
        agent=query.get("agent"),
        state=list(_GROUPS.get(group, (group,))),
        trigger=query.get("trigger"),
        text=query.get("text"),
        parent=query.get("parent"),
        since=query.get("since"),
        before=query.get("before"),
        limit=_PAGE_SIZE + 1,
    )
    given = {name: query.get(name, "") for name in ("agent", "state", "trigger", "text", "since", "parent")}
    return Page(
        "jobs",
        {
            "jobs": found[:_PAGE_SIZE],
            "older": found[_PAGE_SIZE - 1]["id"] if len(found) > _PAGE_SIZE else None,
            "given": given,
            "group": group,
            "groups": tuple(_GROUPS),
            "triggers": _TRIGGERS,
            "agents": [agent["name"] for agent in await api.get("agents")],
            "is_filtered": any(given.values()),
        },
    )


async def show_log(request: Request, api: ApiClient) -> Page:
    """A job with its log."""
    job, attempt = await _read_job(request, api), request.query_params.get("attempt") or None
    is_over = job["ended_at"] is not None
    values = await log_values(request, api, "jobs", job["id"], is_over=is_over, attempt=attempt)
    return _job_page("log", job, values)


async def show_changes(request: Request, api: ApiClient) -> Page:
    """A job with the changes that it made."""
    job = await _read_job(request, api)
    return _job_page(
        "changes",
        job,
        await read_changes(
            request, api, "jobs", job["id"], attempt=request.query_params.get("attempt") or None
        ),
    )


async def show_attempts(request: Request, api: ApiClient) -> Page:
    """A job with its attempts."""
    job = await _read_job(request, api)
    return _job_page("attempts", job, {})


async def show_record(request: Request, api: ApiClient) -> Page:
    """A job with the verification of its record."""
    job = await _read_job(request, api)
    return _job_page("record", job, {"record": await api.get("jobs", job["id"], "record")})


async def show_task(request: Request, api: ApiClient) -> Page:
    """A job with its prompt and its answer."""
    return _job_page("task", await _read_job(request, api), {})


async def act(request: Request, api: ApiClient, form: Mapping[str, str]) -> str | NextPage:
    """Cancel, retry, fork or remove a job, or apply or reject its changes."""
    job_id, action = request.path_params["id"], request.path_params["action"]
    if action == "remove":
        await api.delete("jobs", job_id)
        return NextPage("/jobs")
    if action in ("retry", "fork"):
        prompt = form.get("prompt", "").strip()
        created = await api.post("jobs", job_id, action, body={"prompt": prompt} if prompt else {})
        return NextPage(f"/jobs/{created['job']['id']}")
    if action not in _CONFIRMATIONS:
        raise ApiError(404, f"there is no action {action!r}")
    shown = {"run_id": form["run_id"]} if "run_id" in form else {}
    await api.post("jobs", job_id, action, body=shown)
    return _CONFIRMATIONS[action]


async def _read_job(request: Request, api: ApiClient) -> dict[str, Any]:
    return dict(await api.get("jobs", request.path_params["id"]))


def _job_page(tab: str, job: dict[str, Any], values: Mapping[str, Any]) -> Page:
    attempt = values.get("attempt")
    common = {
        "job": job,
        "tab": tab,
        "is_over": job.get("ended_at") is not None,
        "limits": _limits_of(job),
        "base": "jobs",
        "attempt": attempt,
        "is_last": attempt in (None, str(job["attempt"])),
    }
    return Page("job", {**common, **values})


def _limits_of(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The job's usage of each of its limits, as text and as numbers for a bar."""
    rows = []
    for limit in job["limits"]:
        name, used, allowed = limit["name"], limit["used"], limit["allowed"]
        shown = _LIMIT_FORMATS.get(name, _format_count)
        if used is not None or allowed is not None:
            rows.append(
                {
                    "name": name.removesuffix("_usd").removesuffix("_s").replace("_", " "),
                    "used": used,
                    "allowed": allowed,
                    "used_text": shown(used),
                    "allowed_text": "" if allowed is None else shown(allowed),
                }
            )
    return rows


def _format_count(count: Any) -> str:
    return NONE if count is None else f"{count:,.0f}"
