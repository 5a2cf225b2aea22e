"""The one exchange of a refresh token, as a process of its own: `python -m ringfence.secret.codex.renewal`.

It holds the lock that it inherits until it has written the answer down. Killing who started it changes nothing.
"""

import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringfence.errors import AuthenticationFailed
from ringfence.secret.codex.file import DEADLINE_S, LoginFile, RoomForFile, read_login_file

_CLIENT_ID = "app_EMoamEEZ73f0CkXaXp7hrann"
"""Of the Codex CLI, whose login it is."""
_SCOPE = "openid profile email"
_ANSWER_BYTES = 256 * 1024


def main() -> None:
    """Renew the login in a file (first argument) at a URL (second); print what came of it."""
    path, url = Path(sys.argv[1]), sys.argv[2]
    signal.alarm(int(2 * DEADLINE_S))  # a server that drips must not hold the lock for ever
    try:
        ended = renew(path, url)
    except OSError as exc:
        ended = {"ended": "unwritten", "reason": exc.strerror or str(exc)}
    except AuthenticationFailed as exc:
        ended = {"ended": "refused", "reason": str(exc)}
    sys.stdout.write(json.dumps(ended))


def renew(path: Path, url: str) -> dict[str, str]:
    """Exchange the refresh token in `path` and write the answer there.

    Returns:
        `ended`: `renewed`; `overtaken`, when somebody else wrote the file meanwhile; `refused` by the server;
        `unreachable`. And the `reason`, which holds no token.

    Raises:
        OSError: The file cannot be written; then nothing was exchanged.
        AuthenticationFailed: The file holds no login.
    """
    before = read_login_file(path, "the login")
    spent = before.token("refresh_token")
    if not spent:
        return {"ended": "refused", "reason": "the file holds no refresh token"}
    room = RoomForFile(path)
    try:
        answer = _exchange(url, spent)
        signal.alarm(0)
        if "ended" in answer:
            return answer
        if not isinstance(answer.get("access_token"), str) or not answer["access_token"]:
            return {"ended": "refused", "reason": "the answer holds no access token"}
        if _was_replaced(path, spent):
            return {"ended": "overtaken", "reason": ""}
        room.put(json.dumps(before.renewed(answer, datetime.now(UTC)), indent=2).encode())
    finally:
        room.close()
    return {"ended": "renewed", "reason": ""}


def _was_replaced(path: Path, spent: str) -> bool:
    """Whether the file is of another login by now: one that was made in the meantime is newer than our answer."""
    now: LoginFile = read_login_file(path, "the login")
    return now.token("refresh_token") != spent


def _exchange(url: str, refresh_token: str) -> dict[str, Any]:
    import httpx2

    body = {
        "client_id": _CLIENT_ID,
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "scope": _SCOPE,
    }
    try:
        with (
            httpx2.Client(timeout=DEADLINE_S, follow_redirects=False) as client,
            client.stream("POST", url, json=body) as response,
        ):
            raw = bytearray()
            for chunk in response.iter_bytes():
                raw += chunk
                if len(raw) > _ANSWER_BYTES:
                    break
            status = response.status_code
    except httpx2.HTTPError as exc:
        return {"ended": "unreachable", "reason": type(exc).__name__}
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    if status in (400, 401, 403):
        return {"ended": "refused", "reason": f"{status} {_code(answer)}".strip()}
    return {"ended": "unreachable", "reason": f"status {status}"}


def _code(answer: Any) -> str:
    """The error's code by its name; texts of a server may repeat what was sent."""
    error = answer.get("error") if isinstance(answer, dict) else None
    code = error.get("code") or error.get("type") if isinstance(error, dict) else error
    is_word = isinstance(code, str) and code.isascii() and code.replace("_", "").isalnum() and len(code) <= 60
    return code if isinstance(code, str) and is_word else ""


if __name__ == "__main__":
    main()
