"""Attests the work of a loop: a statement about the run that checked its branch, attached to the branch's last commit.

The last commit of a loop's branch was checked as a whole, with every story in it, in a sandbox of its own. The statement
about that run names the same tree as the commit, which is compared before anything is attached.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.anchors import add_anchors, digest_envelope, parse_anchor
from ringfence.integrations.attestation.attestation_request import describe_difference, sign_statement
from ringfence.integrations.attestation.notes import ANCHOR_NOTES, NOTES, attach_note
from ringfence.journal import run_dir
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.pull_request import users_environment
from ringfence.loop.repository import LoopRepository
from ringfence.loop.repository.source import Source, find_source, open_source
from ringfence.loop.rows import base_key
from ringfence.loop.store import LoopStore
from ringfence.sandbox.workspace.git.command import USERS, run_git

_PUSH_S = 300.0


@frozen
class AttestedLoop:
    """An attestation that was attached to a loop's branch."""

    branch: str
    commit: str
    run: str
    digest: str
    """`sha256:` and the digest of the envelope."""


async def attest_loop(
    directory: LoopDirectory,
    store: LoopStore,
    *,
    signers: Sequence[str],
    anchors: Sequence[str] = (),
    certificates: Path | None = None,
) -> AttestedLoop:
    """Attach an attestation to the last commit of a loop's branch in the user's repository.

    Args:
        directory: The loop's directories.
        store: The loop's rows.
        signers: Values of `--sign-with`.
        anchors: Values of `--anchor`.
        certificates: The authorities of time-stamp servers.

    Raises:
        UsageError: The branch has no work of the loop, was not checked as a whole, or is not in the repository.
        RingfenceError: The run cannot be attested, or a signer or an anchor failed. Nothing is attached then.
    """
    for name in anchors:
        parse_anchor(name)
    if not any(row.is_merged for row in store.stories) or not directory.repository_dir.is_dir():
        raise UsageError(
            f"loop {directory.id} has no story that passed and is kept; there is nothing to attest"
        )
    repository = LoopRepository.open(directory.repository_dir)
    tip, branch = await repository.tip(), store.loop.branch
    step = store.step(base_key(tip))
    run = None if step is None else step.run_id or step.result.get("run")
    if not run:
        raise UsageError(
            f"the last commit {tip[:12]!r} of loop {directory.id} was not checked as a whole, as after a person's "
            "decision; attest a run of your own: `ringfence exec`, then `ringfence runs attest --attach`"
        )
    statement, envelope = await sign_statement(run_dir(str(run)), signers)
    source = find_source(repository.origin.source_path)
    async with open_source(source) as view:
        if view.refs.direct.get(f"refs/heads/{branch}") != tip:
            raise UsageError(
                f"the branch {branch!r} of {str(source.root)!r} is not at the loop's last commit {tip[:12]!r}; "
                f"`ringfence loop resume {directory.id[-6:]}` delivers it"
            )
        inside = os.fsencode(repository.inside)
        found = await describe_difference(view.git, tip, b"" if inside == b"." else inside, statement)
        if found is not None:
            raise UsageError(
                f"the branch {branch!r} is not the tree that run {run!r} checked: {found}; retry the loop"
            )
        kept = None
        if anchors:
            head = statement.predicate.journal.head
            kept = await add_anchors(anchors, envelope, journal=head, certificates=certificates)
        await attach_note(source, view, tip, envelope, kept)
    return AttestedLoop(branch, tip, str(run), f"sha256:{digest_envelope(envelope)}")


async def attest_proposal(directory: LoopDirectory, store: LoopStore) -> str:
    """Attest the branch of a loop by the local key, push the note to `origin`, and return the envelope's digest.

    Raises:
        RingfenceError: As `attest_loop` and `push_notes`.
    """
    made = await attest_loop(directory, store, signers=("journal",))
    source = find_source(Path(store.loop.source))
    await push_notes(source, "origin", users_environment(source.root))
    return made.digest


async def push_notes(source: Source, remote: str, env: dict[str, str]) -> None:
    """Push the notes to a remote of the user's repository, without force, as the user's own git does.

    Args:
        source: The repository.
        remote: The name of the remote.
        env: The environment of git.

    Raises:
        InfrastructureFault: Git failed.
    """
    async with open_source(source) as view:
        refs = [ref for ref in (NOTES, ANCHOR_NOTES) if ref in view.refs.direct]
    pushed = await run_git(
        ["push", "--quiet", "--end-of-options", remote, *(f"{ref}:{ref}" for ref in refs)],
        cwd=source.root,
        env=env,
        actor=source.actor,
        timeout_s=_PUSH_S,
        bounds=USERS,
    )
    if not pushed.ok:
        lines = pushed.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InfrastructureFault(
            f"the notes were not pushed to {remote!r}: {' / '.join(lines[-2:])[:300]!r}; if others pushed notes, fetch "
            "and merge them (`git notes --ref=ringfence merge`)"
        )
