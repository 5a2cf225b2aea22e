"""Describes, in sentences for the user, what the signer of an attestation claims and what it does not cover."""

import os
from collections.abc import Iterator

from ringfence.integrations.attestation.comparison import Comparison
from ringfence.integrations.attestation.statement import (
    PATCH,
    Check,
    DigestSet,
    Predicate,
    SandboxFacts,
    Statement,
)

LIMITS = (
    "Whoever has the signing key can sign any statement; that the machine was honest is not proved.",
    "All times are those of the signer's clock.",
)
"""What no attestation proves by itself."""
_SHOWN = 5


def list_claims(statement: Statement) -> Iterator[str]:
    """Yield what the signer states about the run, a sentence each."""
    predicate, run = statement.predicate, statement.predicate.run
    yield f"run {run.id} ended as {run.state!r} (exit code {run.exit_code}) at {run.ended_at:%Y-%m-%d %H:%M:%S} UTC"
    yield _start_claim(predicate)
    if predicate.changes is not None:
        patch = statement.digest_of(PATCH)
        named = f", as the patch with SHA-256 {patch.sha256}" if patch is not None else ""
        changes = predicate.changes
        yield f"it changed {_counted(changes.files, 'file')}, +{changes.insertions} -{changes.deletions}{named}"
    yield from _check_claims(predicate.check)
    if predicate.command is not None:
        command = predicate.command
        shown = f" {command.arguments!r}" if command.arguments is not None else ""
        yield f"the command{shown} (SHA-256 {command.sha256}) ended with {command.exit_code}"
    yield _agent_claim(predicate)
    yield from (_sandbox_claim(each) for each in predicate.sandboxes)
    yield from (f"loosened: {each}" for each in predicate.policy.loosened)
    yield f"the effective configuration has the SHA-256 {predicate.policy.configuration_sha256}"
    yield f"ringfence {predicate.version} made the statement at {predicate.issued_at:%Y-%m-%d %H:%M:%S} UTC"


def list_gaps(statement: Statement, found: Comparison | None, *, is_compared: bool) -> Iterator[str]:
    """Yield what neither the statement nor the comparison covers, a sentence each."""
    predicate = statement.predicate
    if not is_compared:
        yield "no tree was compared; --tree DIR compares one"
    if found is not None and found.untracked_count:
        names = ", ".join(repr(os.fsdecode(path)) for path in found.untracked)
        more = found.untracked_count - len(found.untracked)
        rest = f" and {more} more" if more else ""
        count = _counted(found.untracked_count, "file")
        yield f"{count} that git does not track: {names}{rest}; --all-files refuses such files"
    yield from (
        f"the directory {os.fsdecode(path) or '.'!r} could not be read"
        for path in (found.unread if found is not None else ())
    )
    yield from (f"{os.fsdecode(path)!r} was not read" for path in (found.nested if found is not None else ()))
    yield from (
        f"the submodule {os.fsdecode(path)!r} is not checked out, and its commit is not compared"
        for path in (found.absent if found is not None else ())
    )
    for path in predicate.manifest.uncovered[:_SHOWN]:
        yield f"{path!r}, of which the run took no snapshot"
    if (more := len(predicate.manifest.uncovered) - _SHOWN) > 0:
        yield f"{more} more such paths"
    yield from (f"the record does not hold {each}" for each in predicate.omitted)
    yield from LIMITS


def _start_claim(predicate: Predicate) -> str:
    source = predicate.source
    place = f" of {source.repository}" if source.repository else ""
    commit = f"commit {source.commit.git_commit}{place}, " if source.commit is not None else ""
    return f"it began from {commit}{_git(source.tree)}"


def _check_claims(check: Check | None) -> Iterator[str]:
    if check is None:
        yield "no check was run"
        return
    counts = ", ".join(f"{count} {name}" for name, count in check.tests.items())
    how = f": {counts}" if counts else ""
    canary = ", and a test that had to fail did" if check.canary else ""
    ended = "passed" if check.passed else f"did not pass ({check.ended_by}, exit code {check.exit_code})"
    yield f"the check {check.command!r} {ended}{how}{canary}"
    yield from (f"caveat of the check: {each}" for each in check.caveats)


def _agent_claim(predicate: Predicate) -> str:
    agent, prompt = predicate.agent, predicate.prompt
    client = f" ({agent.client})" if agent.client else ""
    models = ", ".join(agent.models) or agent.model or "none"
    if predicate.command is not None:  # its digest is stated with the command
        return f"agent {agent.runtime!r}{client}, models: {models}, no prompt"
    task = repr(prompt.text) if prompt.text is not None else f"with SHA-256 {prompt.sha256}"
    return f"agent {agent.runtime!r}{client}, models: {models}, prompt {task}"


def _sandbox_claim(sandbox: SandboxFacts) -> str:
    parts = [f"sandbox for {sandbox.purpose}: {sandbox.backend}"]
    parts[0] += f" ({sandbox.engine})" if sandbox.engine else ""
    if sandbox.image:
        parts.append(f"image {sandbox.image!r}")
    parts.append(f"network {sandbox.network}")
    if sandbox.egress:
        parts.append(
            f"{_counted(len(sandbox.egress), 'rule')} for the web: {'; '.join(sandbox.egress[:_SHOWN])}"
        )
    weak = [name for name, how in sandbox.enforced.items() if how != "kernel"]
    parts.append(f"limits by the kernel except {', '.join(weak)}" if weak else "limits by the kernel")
    if sandbox.forwards or sandbox.mounts:
        parts.append(f"{_counted(sandbox.forwards, 'forward')}, {_counted(sandbox.mounts, 'mount')}")
    return ", ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _git(digest: DigestSet) -> str:
    return f"git tree {digest.git_tree}"
