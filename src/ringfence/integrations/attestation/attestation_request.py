"""Makes an attestation as a user requested it: builds the statement, has it signed, anchors it and attaches it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.anchors import Anchors, add_anchors, parse_anchor
from ringfence.integrations.attestation.comparison import compare_commit, compare_git_tree
from ringfence.integrations.attestation.envelope import make_envelope
from ringfence.integrations.attestation.facts import build_statement
from ringfence.integrations.attestation.git_tree import read_commit_tree
from ringfence.integrations.attestation.notes import attach_note
from ringfence.integrations.attestation.signers import parse_signer
from ringfence.integrations.attestation.statement import Statement, encode_statement
from ringfence.loop.repository.source import find_source, open_source
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.record import load_record


@frozen
class AttestationRequest:
    """The attestation that a user requests."""

    run: Path
    """The directory of the run."""
    signers: tuple[str, ...]
    """Values of `--sign-with`."""
    anchors: tuple[str, ...] = ()
    """Values of `--anchor`."""
    certificates: Path | None = None
    """The authorities of time-stamp servers."""
    attach: str | None = None
    """The commit to which the attestation is attached; None: none."""
    with_prompt: bool = False
    """Whether the statement holds the text of the prompt, or the arguments of the command."""


async def issue_attestation(request: AttestationRequest) -> tuple[bytes, Anchors | None]:
    """Make an attestation; return its envelope and anchors.

    Raises:
        RingfenceError: The run cannot be attested, a signer or an anchor failed, or the commit is not of the attested
            tree. Nothing is attached then.
    """
    for name in request.anchors:
        parse_anchor(name)
    statement, envelope = await sign_statement(request.run, request.signers, with_prompt=request.with_prompt)
    workspace = Path(load_record(request.run).workspace)
    if request.attach is not None:
        await check_commit(statement, workspace, request.attach)
    anchors = None
    if request.anchors:
        head = statement.predicate.journal.head
        anchors = await add_anchors(
            request.anchors, envelope, journal=head, certificates=request.certificates
        )
    if request.attach is not None:
        source = find_source(workspace)
        async with open_source(source) as view:
            commit = await view.commit(request.attach)
            if commit is None:
                raise UsageError(
                    f"--attach {request.attach!r} is no commit of {str(source.root)!r}; name one"
                )
            await attach_note(source, view, commit, envelope, anchors)
    return envelope, anchors


async def sign_statement(
    run: Path, signers: Sequence[str], *, with_prompt: bool = False
) -> tuple[Statement, bytes]:
    """Build the statement of a run, and return it with its signed envelope.

    Args:
        run: The directory of the run.
        signers: Values of `--sign-with`.
        with_prompt: Whether the text of the task is in it.

    Raises:
        RingfenceError: The run cannot be attested, or a signer failed.
    """
    chosen = [parse_signer(name) for name in signers]
    statement = await build_statement(run, now=datetime.now(UTC), with_prompt=with_prompt)
    return statement, await make_envelope(encode_statement(statement), chosen)


async def check_commit(statement: Statement, workspace: Path, rev: str) -> None:
    """Check that a commit holds exactly the attested files.

    Raises:
        UsageError: It does not.
    """
    manifest = statement.predicate.manifest
    found = await compare_commit(workspace, rev, manifest.files, manifest.uncovered)
    if found.difference is not None:
        raise UsageError(
            f"nothing is attached to {rev!r}: it is not the attested tree, as {found.difference}; commit "
            "the files of the run, and no others"
        )


async def describe_difference(git: Git, commit: str, inside: bytes, statement: Statement) -> str | None:
    """Return how a commit differs from the attested tree, in words; None if it does not.

    Args:
        git: A git directory of ringfence's own that has the commit.
        commit: Its id.
        inside: The directory of the workspace in the repository; empty for its top.
        statement: The statement.
    """
    prefix = inside + b"/" if inside else b""
    manifest = statement.predicate.manifest
    found = await compare_git_tree(
        git, await read_commit_tree(git, commit), prefix, manifest.files, manifest.uncovered
    )
    return None if found.difference is None else str(found.difference)
