"""`ringfence config`, `ringfence config trust`, `ringfence init`: shows, trusts and creates configuration files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption
from ringfence.cli.output import confirm, counted, note, print_answer, replace_file
from ringfence.errors import ExitCode, UsageError
from ringfence.escape import safe_json, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.config import Effective
    from ringfence.config.document import Document, Origin
    from ringfence.model.prices import Price

_PER_TOKEN = ("input", "cache_write", "cache_write_1h", "cache_read", "output")


def show(
    *,
    workspace: Annotated[
        Path, typer.Option("--workspace", "-C", metavar="DIR", help="The directory a run would work on.")
    ] = Path(),
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the effective configuration of a run."""
    from ringfence.config import load

    effective = load(_directory(workspace))
    rows = [(f"{key}: {value}", f"  # {source}") for key, value, source in _rows(effective)]
    width = min(60, max(len(said) for said, _ in rows))
    lines = (said.ljust(width) + source if origin else said for said, source in rows)
    print_answer(_document(effective), lines, json=json)


def schema() -> None:
    """Print the JSON Schema of ringfence.yaml for editors."""
    from ringfence.fleet.config.schema import fleet_schema

    typer.echo(safe_json(fleet_schema(), indent=2))


def prices(
    *,
    workspace: Annotated[
        Path, typer.Option("--workspace", "-C", metavar="DIR", help="The directory a run would work on.")
    ] = Path(),
    json: JsonOption = False,
) -> None:
    """Show the prices of models, with source and date.

    US dollars per million tokens. `*`: from your configuration.
    """
    from ringfence.config import load

    rows = list(_price_rows(load(_directory(workspace))))
    titles = ("model", "input", "write", "read", "output", "checked on", "source")
    cells = [titles, *(_price_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles) - 1)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]])
        for line in cells
    )
    print_answer({"unit": "USD per million tokens", "prices": rows}, lines, json=json)


def _price_rows(effective: "Effective") -> "Iterator[dict[str, Any]]":
    """Each model with its effective price; those of the configuration first."""
    from ringfence.job.resolution import prices_of
    from ringfence.model.prices import LISTED

    own = prices_of(effective.settings)
    for name, price in own.items():
        origin = str(effective.origins[f"prices.{name}"])
        yield {
            **_price_row(name, price),
            "configured": True,
            "source": origin,
            "checked_on": None,
            "note": "",
        }
    for name, listed in LISTED.items():
        if name not in own:
            source = listed.source
            yield {
                **_price_row(name, listed.price),
                "configured": False,
                "source": source.place,
                "checked_on": source.checked_on,
                "note": listed.note,
            }


def _price_row(name: str, price: "Price") -> dict[str, Any]:
    long = price.long_prompt
    return {
        "model": name,
        "input": price.input,
        "cache_write": price.cache_write_price,
        "cache_write_1h": price.cache_write_1h_price,
        "cache_read": price.cache_read_price,
        "output": price.output,
        "long_prompt_above": price.long_prompt_above if long is not None else None,
        "long_prompt": {key: value for key, value in _price_row(name, long).items() if key in _PER_TOKEN}
        if long is not None
        else None,
    }


def _price_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Format one line of the table; a second price is for long prompts."""
    long = row["long_prompt"]

    def money(key: str) -> str:
        return f"{row[key]:g}" if long is None else f"{row[key]:g} ({long[key]:g})"

    above = f"; in parentheses: prompts above {row['long_prompt_above']:,} tokens" if long is not None else ""
    note = f"; {row['note']}" if row["note"] else ""
    return (
        f"{row['model']}{' *' if row['configured'] else ''}",
        *(money(key) for key in ("input", "cache_write", "cache_read", "output")),
        row["checked_on"] or "-",
        f"{row['source']}{above}{note}",
    )


def trust(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A ringfence.yaml or its directory; default: the nearest one."),
    ] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List what is trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the trust in PATH.")] = False,
    json: Annotated[bool, typer.Option("--json", help="With --list: print JSON for programs.")] = False,
) -> None:
    """Trust the present content of a project's ringfence.yaml.

    A trusted file may loosen the sandbox; any change of it ends the trust. The files that a fleet includes are trusted
    with it.
    """
    if list_ and (revoke or path is not None):
        raise UsageError("--list takes neither PATH nor --revoke; leave one of them out")
    if json and not list_:
        raise UsageError("--json goes with --list only; leave it out")
    if list_:
        _list_trust(json=json)
    elif revoke:
        _revoke(_config_file(path, must_exist=False))
    else:
        _trust(_config_file(path), yes=yes)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The project.")] = Path(),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")] = False,
    claude_code: Annotated[
        bool, typer.Option("--claude-code", help="Instead: deny claude its own tools, in favour of `mcp`.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="With --claude-code: remove what it wrote.")
    ] = False,
) -> None:
    """Write a ringfence.yaml that explains every key.

    Also writes its schema, for editors. With --claude-code: instead adds to the project's .mcp.json and
    to its settings in .claude what makes claude, started in DIR, work in sandboxes only.
    """
    if remove and (force or not claude_code):
        raise UsageError("--remove goes with --claude-code only, and without --force; correct the options")
    if claude_code:
        from ringfence.cli.config.claude_code import configure, unconfigure

        unconfigure(_directory(directory)) if remove else configure(_directory(directory), force=force)
        return
    from ringfence.config.document import PROJECT_FILE_NAME
    from ringfence.config.template import SCHEMA_FILE_NAME, commented_file
    from ringfence.fleet.config.schema import fleet_schema

    home = _directory(directory)
    texts = {
        home / PROJECT_FILE_NAME: commented_file(),
        home / SCHEMA_FILE_NAME: safe_json(fleet_schema(), indent=2) + "\n",
    }
    present = [file for file in texts if os.path.lexists(file)]
    if present and not force:
        raise UsageError(f"{str(present[0])!r} exists already; overwrite it with --force")
    for file, text in texts.items():
        replace_file(file, text)
        note(f"wrote {file}")


def _rows(effective: "Effective") -> list[tuple[str, str, "Origin"]]:
    """Key, value and origin of all settings, in the order of the models, without secrets."""
    from ringfence.config.fields import all_fields

    fields = all_fields()
    rows = []
    for key, origin in effective.origins.items():
        field = fields.get(key)
        if field is not None:
            value = field.of(effective.settings)
        else:
            field = next(known for known in fields.values() if key.startswith(f"{known.key}."))
            value = field.of(effective.settings)[key.removeprefix(f"{field.key}.")]
        text = field.written(_without_secrets(key, value))
        rows.append((key, text, origin))
    return rows


def _without_secrets(key: str, value: Any) -> Any:
    from ringfence.secret import Redactor, environment_secrets, looks_secret
    from ringfence.secret.redact import REPLACEMENT

    if key.startswith("sandbox.env.") and looks_secret(key.removeprefix("sandbox.env.")):
        return REPLACEMENT
    return Redactor(environment_secrets()).redact(value)


def _document(effective: "Effective") -> dict[str, Any]:
    from ringfence.config.trust import digest_of

    values = effective.settings.model_dump(mode="json")
    values["sandbox"]["env"] = {
        name: _without_secrets(f"sandbox.env.{name}", value)
        for name, value in values["sandbox"]["env"].items()
    }
    return {
        "settings": _without_secrets("", values),
        "origins": {key: origin.data() for key, origin in effective.origins.items()},
        "files": [
            {
                "kind": file.kind,
                "file": str(file.document.file),
                "sha256": digest_of(file.document.content),
                "needs_trust": file.needs_trust,
                "trusted": file.trusted,
            }
            for file in effective.files
        ],
    }


def _trust(file: Path, *, yes: bool) -> None:
    from ringfence.config.effective import loosened_by
    from ringfence.config.trust import digest_of, is_trusted, trust_content

    documents = _fleet_documents(file)
    for document, is_herdctl in documents:
        typer.echo(f"file    {visible(str(document.file), one_line=True)}")
        typer.echo(f"sha256  {digest_of(document.content)}")
        if is_herdctl:
            continue
        items = loosened_by(document, document.file.parent)
        places = [(document.place(item.path), item) for item in items]
        for place, item in sorted(places, key=lambda each: (each[0].line, each[0].column)):
            typer.echo(f"loosens {place.line}:{place.column} {visible(item.describe(), one_line=True)}")
        if not items:
            typer.echo("loosens nothing")
    if len(documents) > 1:
        typer.echo("`ringfence fleet show --file FILE` prints what each agent may do")
    if all(is_trusted(document.file, document.content) for document, _ in documents):
        note("this content is trusted already")
        return
    if not yes and not confirm("Trust this content?" if len(documents) == 1 else "Trust these files?"):
        note("not trusted")
        raise typer.Exit(ExitCode.FAILED)
    for document, _ in documents:
        trust_content(document.file, document.content)
    note(
        "trusted; any change of the file ends that"
        if len(documents) == 1
        else f"trusted: {counted(len(documents), 'file')}; a change of one ends its trust"
    )


def _fleet_documents(file: Path) -> "list[tuple[Document, bool]]":
    """Return a file, and every file that it includes as a fleet; the flag marks those of herdctl."""
    from ringfence.config.yaml import read_document
    from ringfence.fleet.config.include import walk_files
    from ringfence.fleet.herdctl.importer import is_herdctl

    document = read_document(file)
    if "include" not in document.values and not is_herdctl(document):
        return [(document, False)]
    found: dict[Path, tuple[Document, bool]] = {}
    for each in walk_files(file, (), os.environ):
        if each.converted is None:
            found[each.document.file] = each.document, False
        found |= {other.file: (other, True) for other in each.documents}
    return list(found.values())


def _revoke(file: Path) -> None:
    from ringfence.config.trust import revoke_trust

    count = revoke_trust(file)
    if count == 0:
        raise UsageError(f"{str(file)!r} is not trusted; `ringfence config trust --list` says what is")
    note(f"no content of {file} is trusted any more")


def _list_trust(*, json: bool) -> None:
    from ringfence.cli.render.console import print_list
    from ringfence.config.trust import trusted_files

    records = trusted_files()
    if not records and not json:
        note("no file is trusted; `ringfence config trust PATH` trusts one")
    rows: list[dict[str, Any]] = [
        {
            "file": str(record.file),
            "sha256": record.digest,
            "trusted_at": record.trusted_at,
            "holds": record.holds,
        }
        for record in records
    ]
    cells = [
        ("holds" if row["holds"] else "changed", row["trusted_at"], row["sha256"][:12], row["file"])
        for row in rows
    ]
    print_list({"trusted": rows}, ("content", "trusted at", "sha256", "file"), cells, json=json)


def _config_file(path: Path | None, *, must_exist: bool = True) -> Path:
    from ringfence.config.document import PROJECT_FILE_NAME, find_project_file

    if path is None:
        found = find_project_file(Path.cwd())
        if found is None:
            raise UsageError(
                f"there is no {PROJECT_FILE_NAME} here or above; name one, or write one with `ringfence init`"
            )
        return found
    file = path / PROJECT_FILE_NAME if path.is_dir() else path
    if must_exist and not os.path.lexists(file):
        raise UsageError(f"there is no {str(file)!r}; name a {PROJECT_FILE_NAME} or its directory")
    return file.parent.resolve() / file.name


def _directory(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"{str(path)!r} is not a directory; name one")
    return path.resolve()
