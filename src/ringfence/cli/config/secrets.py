"""`ringfence config secrets`, and the credential checks of `ringfence doctor`. Values are never printed."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, WorkspaceOption
from ringfence.cli.output import notify, print_answer
from ringfence.cli.settings import load_settings
from ringfence.errors import AuthenticationFailed, ExitCode, InfrastructureFault, RingfenceError, UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.secret import KnownSecret


def list_secrets(*, workspace: WorkspaceOption = Path(), json: JsonOption = False) -> None:
    """List secrets by name, and which runs have them.

    No value is shown. Leases of runs that died are revoked.
    """
    import anyio

    from ringfence.cli.render.console import print_list

    document = anyio.run(_list_document, load_settings(workspace))
    rows = [(one, one["problem"] or one["said_by"]) for one in document["secrets"]]
    rows += [(one, f"leased to {one['run'] or 'process ' + str(one['pid'])}") for one in document["leases"]]
    cells = [(one["name"], one["source"], one["expires_at"] or "-", last) for one, last in rows]
    print_list(document, ("secret", "source", "expires", "from"), cells, json=json)
    if not json and not document["secrets"]:
        typer.echo("no secret is named; `secrets:` in ringfence.yaml names them", err=True)


def try_secret(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `ringfence config secrets ls` lists it.")],
    *,
    workspace: WorkspaceOption = Path(),
    json: JsonOption = False,
) -> None:
    """Test whether a secret can be resolved.

    Asks its source. Exit 77 if it cannot be resolved, 75 if the source cannot be reached.
    """
    import anyio

    from ringfence.secret import known_secrets

    known = known_secrets(load_settings(workspace).settings.secrets)
    if name not in known:
        raise UsageError(f"there is no secret {name!r}; known: {', '.join(known) or 'none'}")
    found = anyio.run(_test_secret, known[name])
    ends = f", expires {found['expires_at']}" if found["expires_at"] else ""
    print_answer(found, [f"{name} ({found['source']}): it can be resolved{ends}"], json=json)


async def _list_document(effective: "Effective") -> dict[str, Any]:
    from ringfence.config.paths import state_dir
    from ringfence.secret import active_leases, known_secrets, revoke_abandoned

    await revoke_abandoned(state_dir(), notify)
    known = known_secrets(effective.settings.secrets)
    return {
        "secrets": [await _row(secret, effective) for secret in known.values()],
        "leases": [
            {
                "id": one.id,
                "name": one.name,
                "source": one.source,
                "run": one.run,
                "pid": one.pid,
                "granted_at": format_utc(one.granted_at),
                "expires_at": None if one.expires_at is None else format_utc(one.expires_at),
            }
            for one in active_leases(state_dir())
        ],
    }


async def _row(secret: "KnownSecret", effective: "Effective") -> dict[str, Any]:
    """Build the row of a secret in the list, without running a program for it."""
    from ringfence.secret import read_cheaply

    problem = expires_at = None
    try:
        value = await read_cheaply(secret)
        expires_at = value.expires_at.timestamp() if value and value.expires_at else None
    except RingfenceError as exc:
        problem = str(exc)
    origin = effective.origins.get(f"secrets.{secret.name}") if secret.is_configured else None
    return {
        "name": secret.name,
        "source": str(secret.reference),
        "provider": secret.provider,
        "expires_at": None if expires_at is None else format_utc(expires_at),
        "said_by": str(origin) if origin is not None else "environment",
        "problem": problem,
    }


async def _test_secret(secret: "KnownSecret") -> dict[str, Any]:
    from ringfence.config.paths import state_dir
    from ringfence.secret import lease_secret

    async with lease_secret(secret, state=state_dir(), run="secret test") as lease:
        if secret.provider is not None:
            await lease.credential()
        for warning in lease.warnings:
            notify(f"WARNING: {warning}")
        end = lease.expires_at
        problem = await lease.release()
    if problem is not None:
        notify(problem)
    return {
        "name": secret.name,
        "source": lease.source,
        "expires_at": None if end is None else format_utc(end.timestamp()),
        "problem": problem,
    }


def format_utc(seconds: float) -> str:
    """Format a time in UTC, as in all output for programs."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


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
    """Test each credential with its API, print the results and return the exit code of the worst one.

    `ok` 0, `refused` or `unusable` or none at all 77, `unreachable` or `unclear` 75.
    """
    import anyio

    from ringfence.secret import known_secrets

    known = known_secrets(effective.settings.secrets)
    credentials = [secret for secret in known.values() if secret.provider is not None]
    if not credentials:
        raise AuthenticationFailed(_NONE)
    rows = [anyio.run(_check_credential, secret, effective.settings.run.model) for secret in credentials]
    print_answer({"credentials": rows}, map(_check_line, rows), json=json)
    verdicts = {row["verdict"] for row in rows}
    if verdicts & {"refused", "unusable"}:
        return ExitCode.AUTHENTICATION
    return ExitCode.INFRASTRUCTURE if verdicts & {"unreachable", "unclear"} else ExitCode.OK


def _check_line(row: dict[str, Any]) -> str:
    where = f" at {row['where']}" if row["where"] else ""
    ends = f"; expires {row['expires_at']}" if row["expires_at"] else ""
    return f"{_MARKS[row['verdict']]}{row['name']} ({row['source']}){where}: {row['detail']}{ends}"


async def _check_credential(secret: "KnownSecret", model: str) -> dict[str, Any]:
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
                notify(f"WARNING: {warning}")
            credential = await lease.credential()
            if credential.expires_at is not None:
                row["expires_at"] = format_utc(credential.expires_at.timestamp())
            found = await probe(credential, model=model)
    except AuthenticationFailed as exc:
        return {**row, "verdict": "unusable", "detail": str(exc)}
    except InfrastructureFault as exc:
        return {**row, "verdict": "unreachable", "detail": str(exc)}
    return {**row, "verdict": found.verdict, "where": found.where, "detail": found.detail}


async def ending_credentials(effective: "Effective") -> list[dict[str, Any]]:
    """List credentials whose expiry is known without a request, and whether it is soon or past."""
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
        except RingfenceError:  # `ringfence config secrets ls` reports it
            continue
        if value is not None and value.expires_at is not None:
            found[secret.name, value.expires_at.timestamp()] = str(secret.reference)
    now = time.time()
    return [
        {
            "name": name,
            "source": source,
            "expires_at": format_utc(end),
            "is_over": end <= now,
            "is_soon": end <= now + _SOON_S,
        }
        for (name, end), source in sorted(found.items())
    ]


def credential_line(one: dict[str, Any]) -> str:
    """Format an expiring credential for people."""
    how = "HAS EXPIRED" if one["is_over"] else "EXPIRES SOON" if one["is_soon"] else "expires"
    return f"secret:  {one['name']} ({one['source']}) {how}: {one['expires_at']}"
