"""A ChatGPT login as Codex keeps it."""

import base64
import json
import time
from pathlib import Path


def access_token(number: int, lasts_s: float) -> str:
    """An unsigned web token that ends."""
    claims = {"exp": int(time.time() + lasts_s), "n": number}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{body}.sig{number}"


def write_login(file: Path, *, number: int = 0, lasts_s: float = -60) -> None:
    """An `auth.json` as Codex writes it."""
    tokens = {
        "id_token": f"id-{number}",
        "access_token": access_token(number, lasts_s),
        "refresh_token": f"refresh-{number}",
        "account_id": "account-1",
    }
    document = {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": tokens,
        "last_refresh": "2026-01-01T00:00:00Z",
    }
    file.write_text(json.dumps(document))
    file.chmod(0o600)
