"""`ringfence runs attest` and `ringfence attest`: make, verify and show attestations of runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import (
    AllOption,
    AnchorOption,
    CertificateOption,
    JsonOption,
    RunArgument,
    SignWithOption,
)
from ringfence.cli.output import note, print_answer
from ringfence.cli.settings import check_file
from ringfence.errors import UsageError
from ringfence.escape import safe_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.integrations.attestation.verification import Report

_LINE_CHARS = 1000
"""Longer lines of a report are cut; `--json` has all of them."""
FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="An attestation, as `ringfence runs attest` writes it.")
]


def attest(
    run: RunArgument = "last",
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write; default: stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    with_prompt: Annotated[
        bool, typer.Option("--with-prompt", help="State the text of the prompt, not only its SHA-256.")
    ] = False,
    sign_with: SignWithOption = None,
    anchor: AnchorOption = None,
    tsa_certificate: CertificateOption = None,
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach", metavar="REV", help="Attach it to this commit of the run's repository, as a note."
        ),
    ] = None,
    everywhere: AllOption = False,
) -> None:
    """Sign a statement about a run that others can verify.

    It states what the sealed record holds: repository, base commit, resulting files, check, sandbox, agent, policy. The
    key of this machine's records signs it, or what --sign-with names. Texts of the agent and paths of this machine are
    left out. Anchors are kept in FILE.anchors beside it.
    """
    from ringfence.cli.runs.reference import chosen_run
    from ringfence.integrations.attestation.anchors import anchors_file, write_anchors
    from ringfence.integrations.attestation.attestation_request import AttestationRequest, issue_attestation

    file = None if output is None or str(output) == "-" else output
    if force and file is None:
        raise UsageError("--force overwrites the file of --output; name one, or leave out --force")
    if file is not None and not force and os.path.lexists(file):
        raise UsageError(f"{str(file)!r} exists already; overwrite it with --force, or name another file")
    if anchor and file is None and attach is None:
        raise UsageError("anchors are kept beside the attestation; add --output FILE or --attach REV")
    import anyio

    path = chosen_run(run, everywhere=everywhere)
    request = AttestationRequest(
        path, tuple(sign_with or ("journal",)), tuple(anchor or ()), tsa_certificate, attach, with_prompt
    )
    data, anchors = anyio.run(issue_attestation, request)
    if any(each.startswith("command:") for each in request.signers):
        note("the signature of the command was not checked; `attest verify --key KEY.pem` does that")
    if attach is not None:
        note(f"attached to {attach!r}; push it with `git push REMOTE 'refs/notes/ringfence*'`")
    if file is None:
        if attach is None:
            typer.echo(data.decode(), nl=False)
        return
    _write(file, data)
    if anchors is not None:
        write_anchors(anchors_file(file), anchors)
    note(f"wrote {str(file)!r}; verify it with `ringfence attest verify {file} --key KEY.pub --tree DIR`")


def verify(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="An attestation; without it, the note of --commit."),
    ] = None,
    *,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="Trust this public key (PEM or OpenSSH), or the keys of an allowed_signers file; repeatable.",
        ),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option("--tree", metavar="DIR", help="Compare the files in this directory with the statement."),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(
            "--commit", metavar="REV", help="With --tree: compare this commit there, not the files on disk."
        ),
    ] = None,
    all_files: Annotated[
        bool, typer.Option("--all-files", help="With --tree: refuse files that git does not track, too.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="COMMAND", help="Require that the check was exactly this command."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="DIR",
            help="Verify this copy of the run's record, and that it is the stated one.",
        ),
    ] = None,
    any_state: Annotated[
        bool, typer.Option("--any-state", help="Accept a run whose work no check has passed.")
    ] = False,
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            "--anchor", metavar="ANCHOR", help="Require it in the chain of git:REMOTE[#REF], or of a bundle."
        ),
    ] = None,
    tsa_certificate: CertificateOption = None,
    json: JsonOption = False,
) -> None:
    """Verify an attestation, and compare a tree with it.

    Works offline and without a state directory, unless --anchor names a remote. Keys may not come from the tree. Exit
    code 0: signed by a key of --key, a check passed, and the tree, if --tree names one, is the attested one; 3: the
    tree differs, or the check failed; 9: no check, or no --key; 77: an unknown or expired key; 1: it was changed, or
    an anchor is missing; 78: it is no attestation.
    """
    from datetime import UTC, datetime

    import anyio

    from ringfence.integrations.attestation.signers import read_verifiers
    from ringfence.integrations.attestation.trusted_keys import check_outside
    from ringfence.integrations.attestation.verification import Requirements, TreeChoice
    from ringfence.integrations.attestation.verification_request import VerificationRequest, run_verification

    if tree is None and (commit is not None or all_files):
        raise UsageError(
            f"{'--commit' if commit is not None else '--all-files'} is about a tree; add --tree DIR"
        )
    if commit is not None and all_files:
        raise UsageError("--all-files compares files on disk, and --commit a commit; leave out one of them")
    if file is None and (tree is None or commit is None):
        raise UsageError(
            "name an attestation, or the commit to which one is attached: --tree DIR --commit REV"
        )
    if record is not None and not record.is_dir():
        raise UsageError(f"--record {str(record)!r} is no directory; name a copy of a run's directory")
    if tree is not None:
        check_outside(tree, [*(key or ()), *([tsa_certificate] if tsa_certificate is not None else [])])
    request = VerificationRequest(
        file=check_file(file) if file is not None else None,
        verifiers=tuple(read_verifiers([check_file(each, "--key") for each in key or ()])),
        now=datetime.now(UTC),
        tree=TreeChoice(tree, commit, all_files) if tree is not None else None,
        record=record,
        requirements=Requirements(any_state, check),
        anchors=tuple(anchor or ()),
        certificates=tsa_certificate,
    )
    found = anyio.run(run_verification, request)
    print_answer(_document(found), _lines(found, is_compared=tree is not None), json=json)
    if found.fault:
        note(f"ringfence: {found.fault}")
    raise typer.Exit(found.exit_code)


def show(file: FileArgument) -> None:
    """Print the statement of an attestation, unverified.

    It is JSON in the format in-toto Statement v1. Nothing in it is verified; `ringfence attest verify` does that.
    """
    import msgspec

    from ringfence.integrations.attestation.envelope import parse_envelope
    from ringfence.integrations.attestation.statement import parse_statement

    envelope = parse_envelope(_read(file), name=str(file))
    parse_statement(envelope.payload_bytes, name=str(file))
    typer.echo(safe_json(msgspec.json.decode(envelope.payload_bytes), indent=2))


def _read(file: Path) -> bytes:
    from ringfence.integrations.attestation.envelope import MAX_ENVELOPE_BYTES

    with check_file(file).open("rb") as opened:
        return opened.read(MAX_ENVELOPE_BYTES + 1)


def _write(file: Path, data: bytes) -> None:
    from ringfence.errors import InfrastructureFault, next_step
    from ringfence.filesystem import replace_file

    try:
        replace_file(file, data, mode=0o644)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc)}") from exc


def _document(found: "Report") -> dict[str, Any]:
    import msgspec

    return {
        "verdict": found.verdict,
        "fault": found.fault or None,
        "exit_code": int(found.exit_code),
        "first_difference": found.difference,
        "signatures": [
            {"keyid": each.signature.keyid, "signer": each.signer, "fault": each.fault or None}
            for each in found.signatures
        ],
        "proved": list(found.proved),
        "claimed": list(found.claimed),
        "not_covered": list(found.uncovered),
        "statement": msgspec.to_builtins(found.statement),
    }


def _lines(found: "Report", *, is_compared: bool) -> "Iterator[str]":
    parts = (
        ("PROVED", found.proved),
        ("CLAIMED BY THE SIGNER", found.claimed),
        ("NOT COVERED", found.uncovered),
    )
    for title, lines in parts:
        yield title
        yield from (f"  {line if len(line) <= _LINE_CHARS else line[:_LINE_CHARS] + '...'}" for line in lines)
    if found.verdict != "verified":
        yield "NOT VERIFIED"
    else:
        yield "verified" if is_compared else "verified, but no tree was compared: add --tree DIR"
