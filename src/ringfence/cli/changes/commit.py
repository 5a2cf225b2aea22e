"""Applies a run's changes and commits them, for `ringfence apply --commit`."""

from collections.abc import Sequence
from pathlib import Path

from ringfence.cli.runs.reference import task_of
from ringfence.errors import RingfenceError
from ringfence.integrations.attestation.attestation_request import describe_difference, sign_statement
from ringfence.integrations.attestation.notes import attach_note, trailer_of
from ringfence.journal import run_dir
from ringfence.loop.repository.run_commit import CommitRefused, RunCommit, prepare_commit
from ringfence.sandbox.workspace.record import WorkRecord, apply_run
from ringfence.sandbox.workspace.restore import Restored

_SUBJECT_CHARS = 72


async def apply_and_commit(
    record: WorkRecord, state: Path, *, message: str | None, signers: Sequence[str] = ()
) -> tuple[Restored, RunCommit]:
    """Apply a run's changes to the workspace and commit them, or do neither.

    With signers, the commit names an attestation of the run, which is attached to it as a note.

    Args:
        record: The run.
        state: The state directory.
        message: The commit's message; None: the first line of the task.
        signers: Values of `--sign-with`; none: without an attestation.

    Raises:
        CommitRefused: The repository is in no state for it; nothing was written.
        WorkspaceConflict: Files that the run changed differ from those before it; nothing was written.
        RingfenceError: The changes are applied, and could not be committed.
    """
    text = f"{_message(record, message)}\n\nRingfence-Run: {record.run}\n"
    async with prepare_commit(record, state, text) as commit:
        envelope = await _attest(record, commit, text, signers) if signers else None
        restored = await apply_run(record, state)
        try:
            await commit.publish()
            if envelope is not None:
                await attach_note(commit.source, commit.view, commit.id, envelope)
        except RingfenceError as exc:
            raise RingfenceError(
                f"the changes are applied, and not committed: {exc}; commit them by hand, or take them back with "
                f"`ringfence undo {record.run[-8:]}`"
            ) from exc
    return restored, commit


async def _attest(record: WorkRecord, commit: RunCommit, message: str, signers: Sequence[str]) -> bytes:
    """Sign a statement about the run, and name it in the commit's message.

    Raises:
        CommitRefused: The commit does not hold the attested tree.
    """
    statement, envelope = await sign_statement(run_dir(record.run), signers)
    found = await describe_difference(commit.view.git, commit.id, commit.source.inside, statement)
    if found is not None:
        raise CommitRefused(
            f"nothing is committed: the run cannot be attested for this commit, as {found}; commit your own files first "
            "and run again, or leave out --attest"
        )
    await commit.write(f"{message}{trailer_of(envelope)}\n")
    return envelope


def _message(record: WorkRecord, given: str | None) -> str:
    """Return the message without a trailer; a task may come from anybody, so it gives one plain line at most."""
    if given is not None:
        return given.strip()
    first = task_of(run_dir(record.run)).strip().partition("\n")[0]
    plain = " ".join("".join(char if char.isprintable() else " " for char in first).split())
    short = plain if len(plain) <= _SUBJECT_CHARS else plain[: _SUBJECT_CHARS - 1] + "…"
    return short or f"Apply the changes of run {record.run}"
