"""`ringfence config secrets`: lists secrets and tests whether they resolve. Values are never shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, WorkspaceOption
from ringfence.cli.printing import print_answer
from ringfence.cli.saying import say
from ringfence.cli.settings import load_settings
from ringfence.errors import RingfenceError, UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.secret import KnownSecret


def list_secrets(*, workspace: WorkspaceOption = Path(), json: JsonOption = False) -> None:
    """List secrets by name, and which runs have them.

    No value is shown. Leases of runs that died are revoked.
    """
    import anyio

    document = anyio.run(_listed, load_settings(workspace))
    rows = [(one, one["problem"] or one["said_by"]) for one in document["secrets"]]
    rows += [(one, f"lent to {one['run'] or 'process ' + str(one['pid'])}") for one in document["leases"]]
    lines = [
        f"{one['name']:<24}  {one['source']:<32}  {one['expires_at'] or '-':<25}  {last}"
        for one, last in rows
    ]
    print_answer(document, lines, json=json)
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
    found = anyio.run(_tested, known[name])
    ends = f", ends {found['expires_at']}" if found["expires_at"] else ""
    print_answer(found, [f"{name} ({found['source']}): it can be had{ends}"], json=json)


async def _listed(effective: "Effective") -> dict[str, Any]:
    from ringfence.config.paths import state_dir
    from ringfence.secret import active_leases, known_secrets, revoke_abandoned

    await revoke_abandoned(state_dir(), say)
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
                "granted_at": written(one.granted_at),
                "expires_at": None if one.expires_at is None else written(one.expires_at),
            }
            for one in active_leases(state_dir())
        ],
    }


async def _row(secret: "KnownSecret", effective: "Effective") -> dict[str, Any]:
    """A secret at a glance: no program is run for it."""
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
        "expires_at": None if expires_at is None else written(expires_at),
        "said_by": str(origin) if origin is not None else "environment",
        "problem": problem,
    }


async def _tested(secret: "KnownSecret") -> dict[str, Any]:
    from ringfence.config.paths import state_dir
    from ringfence.secret import lease_secret

    async with lease_secret(secret, state=state_dir(), run="secret test") as lease:
        if secret.provider is not None:
            await lease.credential()
        for warning in lease.warnings:
            say(f"WARNING: {warning}")
        end = lease.expires_at
        problem = await lease.release()
    if problem is not None:
        say(problem)
    return {
        "name": secret.name,
        "source": lease.source,
        "expires_at": None if end is None else written(end.timestamp()),
        "problem": problem,
    }


def written(seconds: float) -> str:
    """A time in UTC, as everywhere in what programs read."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
