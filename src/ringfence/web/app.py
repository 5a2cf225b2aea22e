"""Creates the dashboard's application: its routes, sign-in, and the handling of errors around every page."""

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ringfence.errors import RingfenceError
from ringfence.web import stream
from ringfence.web.chrome import FLEET_PATHS, load_chrome
from ringfence.web.client import ApiClient, ApiError
from ringfence.web.guard import Guard
from ringfence.web.pages import agents, inbox, jobs, loops, machine, runs, schedules, spend
from ringfence.web.renderer import NextPage, Page, render, render_notice, render_problem
from ringfence.web.session import Sessions

PageHandler = Callable[[Request, ApiClient], Awaitable[Page]]
ActionHandler = Callable[[Request, ApiClient, dict[str, str]], Awaitable[str | NextPage]]
"""Executes the action of a button; returns a sentence about the result, or the page to show next."""

_BODY_BYTES = 1024 * 1024
_TITLES = {
    400: "This cannot be shown",
    401: "The fleet's server refuses the token",
    403: "The token does not allow this",
    404: "Not found",
    409: "This cannot be shown here",
    503: "Not available now",
}

_SIGNED_IN = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Ringfence</title>'
_NO_FLEET = (
    "Describe agents in a ringfence.yaml and start them with `ringfence fleet up`; this page then shows them. Runs and "
    "loops of this machine are shown without a fleet."
)
_PAGES: dict[str, PageHandler] = {
    "/inbox": inbox.show_inbox,
    "/jobs": jobs.list_jobs,
    "/jobs/{id}": jobs.show_log,
    "/jobs/{id}/changes": jobs.show_changes,
    "/jobs/{id}/attempts": jobs.show_attempts,
    "/jobs/{id}/record": jobs.show_record,
    "/jobs/{id}/task": jobs.show_task,
    "/agents": agents.list_agents,
    "/agents/{name}": agents.show_agent,
    "/schedules": schedules.list_schedules,
    "/loops": loops.list_loops,
    "/loops/{id}": loops.show_loop,
    "/spend": spend.show_spend,
    "/workers": machine.list_workers,
    "/doctor": machine.show_doctor,
    "/runs": runs.list_runs,
    "/runs/{id}": runs.show_log,
    "/runs/{id}/changes": runs.show_changes,
    "/runs/{id}/record": runs.show_record,
}
_ACTIONS: dict[str, ActionHandler] = {
    "/jobs/{id}/{action:str}": jobs.act,
    "/runs/{id}/{action:str}": runs.act,
    "/agents/{name}/{action:str}": agents.act,
    "/schedules/{agent}/{name}/{action:str}": schedules.act,
    "/workers/{id}/{action:str}": machine.act,
    "/inbox/{id}/answer": inbox.answer,
    "/grants/{id}/revoke": inbox.revoke,
}


def create_dashboard(
    api: ApiClient, sessions: Sessions, *, hosts: Collection[str], origins: Collection[str], cookie: str
) -> ASGIApp:
    """Create the application.

    Args:
        api: The client of the API, which every page and action uses.
        sessions: The sessions of signed-in browsers.
        hosts: The accepted values of `Host`.
        origins: The accepted values of `Origin`.
        cookie: The name of the session cookie; it differs between dashboards of one host, which share cookies.
    """
    routes = [
        Route("/", _go_home),
        Route("/login", _sign_in),
        Route("/stream", stream.stream_changes),
        Route("/jobs/{id}/follow", stream.follow_log),
        Route("/runs/{id}/follow", stream.follow_log),
        *(Route(path, _page(handler)) for path, handler in _PAGES.items()),
        *(Route(path, _action(handler), methods=["POST"]) for path, handler in _ACTIONS.items()),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown, Exception: _broken})
    app.state.api, app.state.sessions, app.state.cookie = api, sessions, cookie
    app.state.is_secure = any(origin.startswith("https:") for origin in origins)
    # The guard is outside the application, so that the application's own error responses have the headers, too.
    return Guard(app, sessions=sessions, hosts=hosts, origins=origins, cookie=cookie)


async def _go_home(request: Request) -> Response:
    chrome = await load_chrome(request.app.state.api)
    return RedirectResponse("/inbox" if chrome["fleet"] else "/runs", status_code=303)


async def _sign_in(request: Request) -> Response:
    """Exchange the token of a link for a session cookie."""
    if request.method == "HEAD":  # of a preview or a scanner of links, which must not use up the link
        return Response()
    state = request.app.state
    session = state.sessions.redeem(request.query_params.get("token", ""))
    if session is None:
        return render_problem(
            403,
            "This link does not work",
            "It was used before, is older than ten minutes, or is not complete. Each link signs in one browser. Press "
            "Enter in the terminal in which `ringfence serve` runs, or send it SIGUSR1, and it prints the next link.",
        )
    # Not a redirect: browsers would follow one without the cookie if the link was opened by a file or another site.
    response = HTMLResponse(_SIGNED_IN)
    response.set_cookie(
        state.cookie, session, httponly=True, samesite="strict", path="/", secure=state.is_secure
    )
    return response


def _page(handler: PageHandler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        api = request.app.state.api
        chrome = await load_chrome(api)
        try:
            return render(request, await handler(request, api), chrome=chrome)
        except ApiError as exc:
            if chrome["status"] is None and not chrome["banner"] and request.url.path.startswith(FLEET_PATHS):
                return render_problem(404, "There is no fleet here", _NO_FLEET, chrome, request.url.path)
            title = _TITLES.get(exc.status, "This did not work")
            return render_problem(exc.status, title, str(exc), chrome, request.url.path)

    return endpoint


def _action(handler: ActionHandler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            result = await handler(request, request.app.state.api, await _form(request))
        except ApiError as exc:
            return render_notice(str(exc), is_good=False, status=exc.status)
        if isinstance(result, NextPage):
            return Response(status_code=204, headers={"HX-Redirect": result.path})
        return render_notice(result, is_good=True)

    return endpoint


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise ApiError(413, f"the text is longer than {_BODY_BYTES:,} bytes")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


async def _unknown(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    message = f"Nothing is at {request.url.path!r}."
    return render_problem(exc.status_code, "There is no such page", message, back="/")


async def _broken(_request: Request, exc: Exception) -> Response:
    reason = str(exc) if isinstance(exc, RingfenceError) else type(exc).__name__
    return render_problem(500, "The dashboard failed", f"{reason}. Please report it with the steps before.")
