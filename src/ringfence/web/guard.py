"""Checks every request before a page handles it, and adds security headers to every response."""

from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence.web.renderer import render_problem
from ringfence.web.session import Sessions

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PUBLIC = ("/static/", "/login")
_READING = ("GET", "HEAD")
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Rejects requests for other hosts, from other origins, or without a session.

    An action also needs the header `X-Ringfence: page`, which no form and no link of another site can send.

    Args:
        app: Handles accepted requests.
        sessions: The sessions of signed-in browsers.
        hosts: The values of `Host` under which the dashboard is reached.
        origins: The values of `Origin` of its own pages.
        cookie: The name of the session cookie.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: Sessions,
        hosts: Collection[str],
        origins: Collection[str],
        cookie: str,
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._hosts = hosts
        self._origins = origins
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        handler: ASGIApp = self._refuse(scope) or self._app
        await handler(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return render_problem(
                400,
                "Another address is served here",
                f"The dashboard does not answer for the host {headers.get('host', '')!r}. Open it under the address "
                "that `ringfence serve` prints; name further hosts with --allow-remote.",
            )
        if "origin" in headers and headers["origin"] not in self._origins:
            return render_problem(
                403,
                "Request of another site",
                f"This request comes from {headers['origin']!r}, which is not the dashboard. Nothing was done.",
            )
        if scope["method"] not in _READING and headers.get("x-ringfence") != "page":
            return render_problem(
                403, "Not a request of a page", "The header X-Ringfence is missing. Nothing was done."
            )
        if scope["path"].startswith(PUBLIC) or self._sessions.is_valid(self._session_of(headers)):
            return None
        return render_problem(
            401,
            "You are not signed in",
            "Press Enter in the terminal in which `ringfence serve` runs, and open the link that it prints. Each link "
            "works once, in one browser, for ten minutes. A session ends after 12 hours without a request.",
        )

    def _session_of(self, headers: Headers) -> str:
        cookies = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return ""
        found = cookies.get(self._cookie)
        return found.value if found else ""
