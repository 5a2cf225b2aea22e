"""The commands `ringfence fleet token`: access tokens of the fleet's HTTP API."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ringfence.cli.options import JsonOption
from ringfence.cli.output import note, print_answer
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.fleet.store.tokens import Tokens

_T = TypeVar("_T")
_Name = Annotated[str, typer.Argument(metavar="NAME")]


def create(
    name: _Name,
    *,
    scope: Annotated[
        str, typer.Option("--scope", metavar="SCOPE", help="What it may do: read, act or admin.")
    ] = "read",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Until then, as 30d; default: no end.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create a token for the API, and print it once.

    `read` sees everything, `act` also starts, cancels and answers jobs and applies their changes, `admin` also changes
    the fleet. The token is in no file: keep it, for example in RINGFENCE_TOKEN of the machine that uses it.
    """
    from datetime import UTC, datetime, timedelta

    from ringfence.config.units import parse_duration
    from ringfence.fleet.store.tokens import SCOPES

    wanted = next((known for known in SCOPES if known == scope), None)
    if wanted is None:
        raise UsageError(f"--scope: there is no scope {scope!r}; choose {', '.join(SCOPES)}")
    expires_at = None
    if expires is not None:
        try:
            expires_at = datetime.now(UTC) + timedelta(seconds=parse_duration(expires))
        except (ValueError, OverflowError) as exc:
            raise UsageError(f"--expires: {exc}") from exc
    token = _with_tokens(lambda tokens: tokens.create(name, wanted, expires_at=expires_at))
    print_answer({"name": name, "scope": scope, "token": token}, [token], json=json)
    if not json:
        note(f"this is the only time that token {name!r} is shown")


def ls(*, json: JsonOption = False) -> None:
    """List the tokens of the API."""
    from ringfence.cli.render.console import print_list

    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "scope": each.scope,
            "created_at": each.created_at.isoformat(),
            "expires_at": None if each.expires_at is None else each.expires_at.isoformat(),
            "used_at": None if each.used_at is None else each.used_at.isoformat(),
            "is_expired": each.is_expired,
        }
        for each in _with_tokens(lambda tokens: tokens.all())
    ]
    cells = [
        (
            each["name"],
            each["scope"],
            "expired" if each["is_expired"] else _day(each["expires_at"]) or "no end",
            _day(each["used_at"]) or "never used",
        )
        for each in rows
    ]
    print_list({"tokens": rows}, ("token", "scope", "expires", "last used"), cells, json=json)


def rm(name: _Name, *, json: JsonOption = False) -> None:
    """Remove a token; from then on it is refused."""
    _with_tokens(lambda tokens: tokens.remove(name))
    print_answer({"removed": name}, [name], json=json)


def _day(moment: str | None) -> str:
    return "" if moment is None else moment[:16].replace("T", " ")


def _with_tokens(act: "Callable[[Tokens], Awaitable[_T]]") -> _T:
    """Call a function with the tokens in the database of this machine's fleet; no daemon is needed."""
    import os

    import anyio

    from ringfence.config.paths import state_dir
    from ringfence.fleet.local_reader import find_fleet
    from ringfence.fleet.store.database import Database
    from ringfence.fleet.store.tokens import Tokens

    found = find_fleet(state_dir(), os.environ)
    if found is None:
        raise UsageError(
            "there is no fleet yet; `ringfence fleet up` starts one, and then it can have tokens"
        )

    async def run() -> _T:
        database = Database(found.url)
        try:
            database.create_tables()
            return await act(Tokens(database))
        finally:
            database.close()

    return anyio.run(run)
