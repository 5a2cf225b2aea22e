"""Which database a loop lies in: files of its own, or one that several loops share.

A loop remembers it in its directory, as it was written: its password stands there no more than in the configuration.
A second note beside the directory outlives it: who removes that by hand leaves rows behind, and this tells where.
"""

import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from ringfence.config.durable import DurableSettings
from ringfence.config.references import expanded
from ringfence.database import shown
from ringfence.errors import ConfigurationError, RecordError, UsageError
from ringfence.frozen import frozen
from ringfence.secret.redact import remember

_FILE, _BESIDE = "database.json", "shared-"
_PASSWORDS = ("password", "sslpassword")
_PORT = 5432


@frozen
class Shared:
    """A database that several loops share."""

    written: str
    """Its address, with references to variables."""
    shown: str
    """Without its password."""
    source: str
    """The repository of the loop."""

    def url(self, environ: Mapping[str, str], *, loop: str) -> str:
        """Its address with its password, which no record and no message of this process shows from now on.

        Raises:
            ConfigurationError: A variable that it names is not set.
            UsageError: The variables lead to another database than the loop lies in.
        """
        url = _address(self.written, environ, what=f"the database of loop {loop}")
        if _place(url) != _place(make_url(self.shown)):
            raise UsageError(
                f"loop {loop} lies in {self.shown!r}, and the variables of its address lead to {shown(url)!r} now: set "
                "them as they were when it was started"
            )
        return url.render_as_string(hide_password=False)


def shared_by(engine: DurableSettings, environ: Mapping[str, str], source: Path) -> Shared | None:
    """What loops share by a setting; None: each has files of its own.

    Raises:
        ConfigurationError: A variable is not set, or it is no address of a Postgres.
    """
    if engine.url is None:
        return None
    url = _address(engine.url, environ, what="loop.engine.url")
    return Shared(engine.url, shown(url), str(source))


def see_reachable(engine: DurableSettings) -> None:
    """See that the database of loops to come can be used.

    Raises:
        ConfigurationError: Its address is none.
        InfrastructureFault: It is away.
    """
    from ringfence.loop.store.loops import open_database

    if engine.url is not None:
        url = _address(engine.url, os.environ, what="loop.engine.url")
        with closing(open_database(url.render_as_string(hide_password=False))):
            pass


def refuse_other(found: Shared | None, engine: DurableSettings, *, loop: str) -> None:
    """See that a setting is about the database that a loop lies in.

    Raises:
        ConfigurationError: As `shared_by`.
        UsageError: It is about another.
    """
    said = shared_by(engine, os.environ, Path())
    if (found is None) == (said is None) and (
        found is None or said is None or _place(make_url(found.shown)) == _place(make_url(said.shown))
    ):
        return
    names = ["files of its own" if each is None else repr(each.shown) for each in (found, said)]
    raise UsageError(
        f"loop {loop} was started in {names[0]}, and loop.engine says {names[1]} now: a loop stays where it is; set "
        "loop.engine back as long as you go on with it, or start another"
    )


def announce(directory: Path, found: Shared) -> None:
    """Remember beside a loop's directory where its rows will lie, before there are any."""
    _write(_beside(directory), found)


def note(directory: Path, found: Shared) -> None:
    """Remember in a loop's directory where it lies."""
    _write(directory / _FILE, found)


def _beside(directory: Path) -> Path:
    return directory.with_name(f"{_BESIDE}{directory.name}.json")


def _write(file: Path, found: Shared) -> None:
    text = json.dumps(
        {"schema_version": 1, "url": found.written, "shown": found.shown, "source": found.source}
    )
    new = file.with_name(f"{file.name}.new")
    new.touch(mode=0o600)
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def unnote(directory: Path) -> None:
    """Forget it."""
    (directory / _FILE).unlink(missing_ok=True)
    _beside(directory).unlink(missing_ok=True)


def announced(folder: Path) -> list[str]:
    """Names of loops of a directory that share a database, those whose own directory is gone among them."""
    names = (path.name for path in folder.glob(f"{_BESIDE}*.json"))
    return sorted(name.removeprefix(_BESIDE).removesuffix(".json") for name in names)


def announced_at(directory: Path) -> Shared | None:
    """Where the rows of a loop lie whose directory may be gone; as `noted`."""
    return _read(_beside(directory))


def noted(directory: Path) -> Shared | None:
    """Where a loop lies; None: in files of its own.

    Raises:
        RecordError: What was noted cannot be read.
    """
    return _read(directory / _FILE)


def _read(file: Path) -> Shared | None:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        said = json.loads(text)
        found = Shared(str(said["url"]), str(said["shown"]), str(said["source"]))
        make_url(found.shown)
    except (ValueError, KeyError, TypeError, ArgumentError) as exc:
        raise RecordError(
            f"{str(file)!r} does not tell where the loop lies; another version wrote it, or it is damaged"
        ) from exc
    return found


def _address(written: str, environ: Mapping[str, str], *, what: str) -> URL:
    try:
        said = expanded(written, environ)
    except ValueError as exc:
        raise ConfigurationError(f"{what}: {exc}") from None
    try:
        url = make_url(said)
    except (ArgumentError, ValueError):  # whose texts may hold parts of it
        url = None
    if url is None or url.get_backend_name() != "postgresql" or not url.database:
        raise ConfigurationError(f"{what} is no address of a Postgres; write postgresql://USER@HOST/NAME")
    secrets = [url.password, *(url.query.get(name) for name in _PASSWORDS)]
    remember([each for each in secrets if isinstance(each, str) and each])
    return url


def _place(url: URL) -> tuple[object, ...]:
    """What makes it the same database, whoever asks for it."""
    host, port = url.host or url.query.get("host"), url.port or url.query.get("port")
    return host, int(str(port)) if port else _PORT, url.database
