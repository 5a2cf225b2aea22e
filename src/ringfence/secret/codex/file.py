"""Codex's `auth.json`: read as it may be, written whole or not at all."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen
from ringfence.secret.source.file import read_secret_file
from ringfence.secret.value import LIMIT_BYTES, SecretValue, jwt_expiry

DEADLINE_S = 30.0
"""Of each step of a login's renewal; all of it takes twice that at most."""
_UNKNOWN_LASTS = timedelta(days=8)
"""Codex itself renews a login of that age."""
_ROOM_BYTES = 16 * 1024


@frozen
class LoginFile:
    """What one reading of the file found."""

    path: Path
    document: Mapping[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def api_key(self) -> str | None:
        """The key of the platform that Codex was logged in with, instead of a login."""
        key = self.document.get("OPENAI_API_KEY")
        return key if isinstance(key, str) and key and not self.tokens.get("access_token") else None

    @property
    def tokens(self) -> Mapping[str, Any]:
        """The login's tokens; empty if there are none."""
        tokens = self.document.get("tokens")
        return tokens if isinstance(tokens, Mapping) else {}

    def token(self, name: str) -> str:
        """One of the tokens; empty if it is not there."""
        value = self.tokens.get(name)
        return value if isinstance(value, str) else ""

    def value(self, where: str) -> SecretValue:
        """The secret in it.

        Raises:
            AuthenticationFailed: There is none.
        """
        if self.api_key is not None:
            return SecretValue(self.api_key, is_key=True, warnings=self.warnings)
        access = self.token("access_token")
        if not access:
            raise AuthenticationFailed(f"{where}: {str(self.path)!r} holds no login; run `codex login`")
        beside = tuple(one for one in (self.token("refresh_token"), self.token("id_token")) if one)
        expires_at = jwt_expiry(access) or self._guessed_expiry()
        return SecretValue(access, expires_at, beside, self.token("account_id"), warnings=self.warnings)

    def renewed(self, answer: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        """The document with the tokens of a token endpoint's answer; all else is kept."""
        names = ("id_token", "access_token", "refresh_token")
        fresh = {name: answer[name] for name in names if isinstance(answer.get(name), str) and answer[name]}
        stamp = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return {**self.document, "tokens": {**self.tokens, **fresh}, "last_refresh": stamp}

    def lent(self) -> bytes:
        """A copy that can be used but not renewed, so that whoever has it cannot end the login."""
        document = {**self.document}
        if self.tokens:
            document["tokens"] = {**self.tokens, "refresh_token": ""}
        return json.dumps(document, indent=2).encode()

    def _guessed_expiry(self) -> datetime | None:
        last = self.document.get("last_refresh")
        try:
            when = datetime.fromisoformat(last) if isinstance(last, str) else None
            return None if when is None else when.astimezone(UTC) + _UNKNOWN_LASTS
        except (ValueError, OverflowError):
            return None


def read_login_file(path: Path, where: str) -> LoginFile:
    """Read the file.

    Raises:
        AuthenticationFailed: It is none, or holds no JSON object.
    """
    raw, warnings = read_secret_file(path, where)
    try:
        document = json.loads(raw) if len(raw) <= LIMIT_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise AuthenticationFailed(f"{where}: {str(path)!r} is not Codex's auth.json; run `codex login`")
    return LoginFile(path, document, warnings)


class RoomForFile:
    """The next content of a file: its room on the disk is taken before anything that cannot be taken back is done.

    Args:
        path: The file that will be replaced; a link is followed.

    Raises:
        OSError: There is no room, or no right to write beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._beside = self._path.with_name(f".{self._path.name}.ringfence-new")
        status = self._path.stat()
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._beside, flags, 0o600)
        try:
            os.fchmod(self._descriptor, 0o600)
            if os.geteuid() == 0:
                os.fchown(self._descriptor, status.st_uid, status.st_gid)
            os.posix_fallocate(self._descriptor, 0, status.st_size + _ROOM_BYTES)
        except OSError:
            self.close()
            raise

    def put(self, content: bytes) -> None:
        """Make `content` the file's, at once and for good."""
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))
        os.fsync(self._descriptor)
        self._beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Give up the room, if it was not used."""
        os.close(self._descriptor)
        with suppress(OSError):
            self._beside.unlink()
