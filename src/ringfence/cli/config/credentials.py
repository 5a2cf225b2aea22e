"""What `ringfence doctor` says of credentials: whether they end soon, and with --auth whether they are good."""

import time
from typing import TYPE_CHECKING, Any

from ringfence.cli.printing import print_answer
from ringfence.cli.saying import say
from ringfence.errors import AuthenticationFailed, ExitCode, InfrastructureFault, RingfenceError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.secret import KnownSecret

_SOON_S = 24 * 3600.0
_NONE = (
    "there is no credential of a model; set ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN or CLAUDE_CODE_OAUTH_TOKEN for "
    "claude, OPENAI_API_KEY or CODEX_API_KEY for codex (or log in by `codex login`), each also as NAME_FILE=PATH or "
    "under `secrets:` in your configuration"
)
_MARKS = {
    "ok": "ok          ",
    "refused": "REFUSED     ",
    "unusable": "UNUSABLE    ",
    "unreachable": "unreachable ",
    "unclear": "unclear     ",
}


def check_credentials(effective: "Effective", *, json: bool) -> ExitCode:
    """Ask each credential's API whether it is good, and print the answers; the exit code says the worst.

    `ok` 0, `refused` or `unusable` or none at all 77, `unreachable` or `unclear` 75.
    """
    import anyio

    from ringfence.secret import known_secrets

    known = known_secrets(effective.settings.secrets)
    credentials = [secret for secret in known.values() if secret.provider is not None]
    if not credentials:
        raise AuthenticationFailed(_NONE)
    rows = [anyio.run(_checked, secret, effective.settings.run.model) for secret in credentials]
    print_answer({"credentials": rows}, map(_checked_line, rows), json=json)
    verdicts = {row["verdict"] for row in rows}
    if verdicts & {"refused", "unusable"}:
        return ExitCode.AUTHENTICATION
    return ExitCode.INFRASTRUCTURE if verdicts & {"unreachable", "unclear"} else ExitCode.OK


def _checked_line(row: dict[str, Any]) -> str:
    where = f" at {row['where']}" if row["where"] else ""
    ends = f"; ends {row['expires_at']}" if row["expires_at"] else ""
    return f"{_MARKS[row['verdict']]}{row['name']} ({row['source']}){where}: {row['detail']}{ends}"


async def _checked(secret: "KnownSecret", model: str) -> dict[str, Any]:
    from ringfence.cli.config.secrets import written
    from ringfence.config.paths import state_dir
    from ringfence.model.probe import probe
    from ringfence.secret import lease_secret

    row: dict[str, Any] = {
        "name": secret.name,
        "source": str(secret.reference),
        "provider": secret.provider,
        "where": None,
        "expires_at": None,
    }
    try:
        async with lease_secret(secret, state=state_dir(), run="doctor") as lease:
            for warning in lease.warnings:
                say(f"WARNING: {warning}")
            credential = await lease.credential()
            if credential.expires_at is not None:
                row["expires_at"] = written(credential.expires_at.timestamp())
            found = await probe(credential, model=model)
    except AuthenticationFailed as exc:
        return {**row, "verdict": "unusable", "detail": str(exc)}
    except InfrastructureFault as exc:
        return {**row, "verdict": "unreachable", "detail": str(exc)}
    return {**row, "verdict": found.verdict, "where": found.where, "detail": found.detail}


async def ending_credentials(effective: "Effective") -> list[dict[str, Any]]:
    """Credentials whose end is known without asking anybody: their names, ends and whether that is soon."""
    from ringfence.cli.config.secrets import written
    from ringfence.config.paths import state_dir
    from ringfence.secret import active_leases, known_secrets, read_cheaply

    found: dict[tuple[str, float], str] = {
        (one.name, one.expires_at): one.source
        for one in active_leases(state_dir())
        if one.expires_at is not None
    }
    for secret in known_secrets(effective.settings.secrets).values():
        try:
            value = await read_cheaply(secret)
        except RingfenceError:  # `ringfence config secrets ls` tells
            continue
        if value is not None and value.expires_at is not None:
            found[secret.name, value.expires_at.timestamp()] = str(secret.reference)
    now = time.time()
    return [
        {
            "name": name,
            "source": source,
            "expires_at": written(end),
            "is_over": end <= now,
            "is_soon": end <= now + _SOON_S,
        }
        for (name, end), source in sorted(found.items())
    ]


def credential_line(one: dict[str, Any]) -> str:
    """One of them, for people."""
    how = "HAS ENDED" if one["is_over"] else "ENDS SOON" if one["is_soon"] else "ends"
    return f"secret:  {one['name']} ({one['source']}) {how}: {one['expires_at']}"
