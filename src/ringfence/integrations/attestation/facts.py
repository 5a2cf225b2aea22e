"""Builds the statement about a run from its verified, sealed record.

Everything in a statement comes from lines of the journal, from files whose SHA-256 the journal holds, and from the
checkpoint that the journal names. What a statement shows is chosen field by field, because it leaves the machine:
paths of the host, the text of the prompt and the agent's words are not in it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio.to_thread

from ringfence import __version__
from ringfence.config.paths import state_dir
from ringfence.errors import RecordError, UsageError
from ringfence.events import (
    CheckpointCreated,
    ClientStarted,
    CommandEnded,
    Event,
    FilesRecorded,
    JobCreated,
    JobEnded,
    JournalOpened,
    JournalSealed,
    ModelAsked,
    PolicyLoosened,
    SandboxCreated,
    VerificationEnded,
    WorkExported,
)
from ringfence.frozen import frozen
from ringfence.integrations.attestation.git_tree import hash_files, read_commit_tree
from ringfence.integrations.attestation.manifest import FileEntry, digest_files, encode_path
from ringfence.integrations.attestation.statement import (
    MANIFEST,
    PATCH,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    TREE,
    Agent,
    Changes,
    Check,
    Command,
    DigestSet,
    Manifest,
    Policy,
    Predicate,
    Prompt,
    Run,
    SandboxFacts,
    Source,
    Statement,
    Subject,
)
from ringfence.integrations.attestation.statement import Journal as JournalFacts
from ringfence.journal import Record, is_alive, verify_run
from ringfence.journal.layout import WORK_NAME
from ringfence.journal.reader import read_named
from ringfence.journal.record import encode_json, format_time
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.record import WorkRecord, load_record, open_store
from ringfence.sandbox.workspace.run_as import Actor

_NAMES = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        *(
            JournalOpened,
            JobCreated,
            PolicyLoosened,
            CheckpointCreated,
            SandboxCreated,
            ClientStarted,
            ModelAsked,
        ),
        *(CommandEnded, WorkExported, VerificationEnded, JobEnded, FilesRecorded, JournalSealed),
    )
)
_HOST_PATH = re.compile(r"'/[^']*'")


@dataclass
class RunFacts:
    """What a journal says about its run."""

    directory: Path
    records: dict[type[Event], list[Record]] = field(default_factory=dict)

    def last(self, kind: type[Any]) -> Any:
        """Return the last event of a kind; None without one."""
        found = self.records.get(kind)
        return found[-1].event if found else None

    def all(self, kind: type[Any]) -> list[Any]:
        """Return all events of a kind, in order."""
        return [record.event for record in self.records.get(kind, ())]

    def time_of(self, kind: type[Event]) -> datetime:
        """Return when the last event of a kind was recorded."""
        return self.records[kind][-1].time

    @property
    def files(self) -> Mapping[str, str]:
        """The SHA-256 of each other file of the record that the seal covers."""
        found: FilesRecorded | None = self.last(FilesRecorded)
        return found.files if found is not None else {}

    def checkpoint(self, *when: str) -> CheckpointCreated | None:
        """Return the last checkpoint of these kinds."""
        found = [each for each in self.all(CheckpointCreated) if each.when in when]
        return found[-1] if found else None


@frozen
class ResultTree:
    """The trees of a run, read from its checkpoints."""

    before: str
    """Git's id of the files before the run."""
    checked: str
    """Git's id of the files that the check saw."""
    after: str
    files: tuple[FileEntry, ...]
    uncovered: tuple[str, ...]


async def build_statement(run: Path, *, now: datetime, with_prompt: bool = False) -> Statement:
    """Verify the record of a run and return the statement about it.

    Args:
        run: The run's directory.
        now: The time of the statement.
        with_prompt: Whether the statement holds the text of the prompt, or the arguments of the command.

    Raises:
        UsageError: The run has not ended.
        RecordError: The record is not sealed and unchanged, names no resulting tree, or its checkpoint was removed.
        InfrastructureFault: Git failed.
    """
    facts = await anyio.to_thread.run_sync(read_facts, run)
    work = _sealed_work(facts)
    return make_statement(facts, work, await _read_trees(facts), now=now, with_prompt=with_prompt)


def read_facts(run: Path) -> RunFacts:
    """Verify the record of a run and read the facts that a statement is made of.

    Raises:
        UsageError: The run has not ended.
        RecordError: The record is not sealed and unchanged, or is not that of a run.
    """
    found = verify_run(run)
    if found.status == "open" and is_alive(run):
        raise UsageError(f"run {run.name!r} is still running; attest it when it has ended")
    if not found.ok:
        reason = found.reason or "its end is not signed"
        raise RecordError(
            f"the record of run {run.name!r} is {found.status}: {reason}; only a sealed record can be attested, and"
            " the next `ringfence run` seals those of runs that were killed"
        )
    facts = RunFacts(run)
    for record in read_named(run, _NAMES):
        facts.records.setdefault(type(record.event), []).append(record)
    if not {JournalOpened, JobCreated, JobEnded, JournalSealed} <= facts.records.keys():
        raise RecordError(f"the record {run.name!r} is not that of a run of this version; attest another run")
    return facts


def _sealed_work(facts: RunFacts) -> WorkRecord | None:
    """Return the record of the run's work if the seal covers it."""
    return load_record(facts.directory) if WORK_NAME in facts.files else None


async def _read_trees(facts: RunFacts) -> ResultTree:
    """Read the files of the run's checkpoints from the store, by the ids in the journal."""
    before, after = facts.checkpoint("before"), facts.checkpoint("after", "checked")
    work = load_record(facts.directory) if before is not None else None
    if after is None and before is not None and work is not None and work.after == before.checkpoint:
        after = before  # its changes were discarded
    if work is None or before is None or after is None:
        raise RecordError(
            f"the record of run {facts.directory.name!r} names no resulting files: it is a loop or an"
            " imported session, or ended before its work was kept; attest a run, or the runs of the loop"
        )
    store = open_store(work, state_dir())
    memo = await store.memo(after.checkpoint)
    git = Git(store.directory, actor=Actor.current())
    result = await read_commit_tree(git, after.checkpoint)
    started = await read_commit_tree(git, before.checkpoint)
    checked = facts.checkpoint("after") or after
    seen = result if checked is after else await read_commit_tree(git, checked.checkpoint)
    files = tuple(await hash_files(git, result.files))
    uncovered = tuple(encode_path(path) for path in sorted(memo.skipped))
    return ResultTree(started.id, seen.id, result.id, files, uncovered)


def make_statement(
    facts: RunFacts, work: WorkRecord | None, trees: ResultTree, *, now: datetime, with_prompt: bool
) -> Statement:
    """Make the statement from facts that were read and verified.

    Args:
        facts: From `read_facts`.
        work: The record of the run's work if the seal covers it.
        trees: The trees of the run.
        now: The time of the statement.
        with_prompt: As in `build_statement`.
    """
    subjects = [
        Subject(name=TREE, digest=DigestSet(git_tree=trees.after)),
        Subject(name=MANIFEST, digest=DigestSet(sha256=digest_files(trees.files))),
    ]
    exported: WorkExported | None = facts.last(WorkExported)
    if exported is not None and exported.patch == PATCH and PATCH in facts.files:
        subjects.append(Subject(name=PATCH, digest=DigestSet(sha256=facts.files[PATCH])))
    created, hidden = facts.last(JobCreated), _Hidden(facts)
    predicate = Predicate(
        issued_at=now,
        version=__version__,
        run=_run(facts),
        source=_source(work, trees),
        changes=_changes(exported),
        manifest=Manifest(files=trees.files, uncovered=trees.uncovered),
        check=_check(facts, trees, hidden),
        command=_command(facts, hidden, with_prompt=with_prompt),
        agent=_agent(facts, hidden),
        prompt=Prompt(sha256=_digest(created.prompt.encode()), text=created.prompt if with_prompt else None),
        sandboxes=tuple(_sandbox(each, hidden) for each in facts.all(SandboxCreated)),
        policy=Policy(
            configuration_sha256=_digest(encode_json(created.configuration)),
            loosened=hidden.texts(_HOST_PATH.sub("'/...'", each.what) for each in facts.all(PolicyLoosened)),
        ),
        journal=_journal(facts),
        omitted=_omitted(facts, work),
    )
    return Statement(
        type=STATEMENT_TYPE, subject=tuple(subjects), predicate_type=PREDICATE_TYPE, predicate=predicate
    )


class _Hidden:
    """Replaces the paths of the workspace, the state directory and the user's home in a text."""

    def __init__(self, facts: RunFacts) -> None:
        places = {facts.last(JobCreated).workspace: ".", str(state_dir()): "$STATE", str(Path.home()): "~"}
        self._places = {place: name for place, name in places.items() if len(place) > 1}

    def text(self, text: str) -> str:
        """Return the text without these paths."""
        for place, name in self._places.items():
            text = text.replace(place, name)
        return text

    def texts(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the different texts without these paths, in order."""
        return tuple(dict.fromkeys(self.text(each) for each in texts))


def _run(facts: RunFacts) -> Run:
    ended: JobEnded = facts.last(JobEnded)
    return Run(
        id=facts.last(JournalOpened).run_id,
        state=ended.state,
        exit_code=ended.exit_code,
        started_at=facts.records[JournalOpened][0].time,
        ended_at=facts.time_of(JobEnded),
        turns=ended.turns,
        tool_calls=ended.tool_calls,
    )


def _source(work: WorkRecord | None, trees: ResultTree) -> Source:
    commit = work.base_commit if work is not None else None
    return Source(
        repository=work.repository or None if work is not None else None,
        commit=DigestSet(git_commit=commit) if commit else None,
        tree=DigestSet(git_tree=trees.before),
    )


def _changes(exported: WorkExported | None) -> Changes | None:
    if exported is None:
        return None
    return Changes(files=exported.files_changed, insertions=exported.insertions, deletions=exported.deletions)


def _check(facts: RunFacts, trees: ResultTree, hidden: _Hidden) -> Check | None:
    ended: VerificationEnded | None = facts.last(VerificationEnded)
    if ended is None:
        return None
    return Check(
        command=hidden.text(ended.command),
        passed=ended.passed,
        exit_code=ended.exit_code,
        ended_by=ended.ended_by,
        runner=ended.runner,
        tests=ended.tests,
        canary=ended.canary,
        caveats=hidden.texts(ended.caveats),
        tree=DigestSet(git_tree=trees.checked),
    )


def _command(facts: RunFacts, hidden: _Hidden, *, with_prompt: bool) -> Command | None:
    inside = {each.sandbox_id for each in facts.all(SandboxCreated) if each.purpose in ("exec", "shell")}
    ended = [each for each in facts.all(CommandEnded) if each.sandbox_id in inside]
    if (
        not ended or facts.last(VerificationEnded) is not None
    ):  # the commands of a loop's checks are its check
        return None
    arguments = tuple(ended[-1].argv)
    return Command(
        sha256=_digest(b"".join(each.encode("utf-8", "replace") + b"\0" for each in arguments)),
        exit_code=ended[-1].exit_code,
        ended_by=ended[-1].ended_by,
        arguments=tuple(map(hidden.text, arguments)) if with_prompt else None,
    )


def _agent(facts: RunFacts, hidden: _Hidden) -> Agent:
    created: JobCreated = facts.last(JobCreated)
    started: ClientStarted | None = facts.last(ClientStarted)
    is_scripted = created.model.startswith("scripted:")
    return Agent(
        runtime=created.runtime,
        toolset=created.toolset,
        model="scripted" if is_scripted else hidden.text(created.model),
        models=hidden.texts(each.model for each in facts.all(ModelAsked) if each.allowed and each.model),
        client=f"{started.client} {started.version}".strip() if started is not None else None,
    )


def _sandbox(created: SandboxCreated, hidden: _Hidden) -> SandboxFacts:
    policy = created.policy
    limits = policy.get("limits")
    return SandboxFacts(
        purpose=created.purpose,
        backend=created.backend,
        image=None if created.image is None else hidden.text(created.image),
        engine=created.engine,
        network=str(policy.get("network", "not recorded")),
        egress=hidden.texts(map(str, policy.get("egress") or ())),
        forwards=len(policy.get("forward") or ()),
        mounts=len(policy.get("mounts") or ()),
        limits=_numbers(limits) if isinstance(limits, dict) else {},
        enforced=dict(created.enforced),
        policy_sha256=_digest(encode_json(policy)),
    )


def _numbers(limits: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: value for name, value in limits.items() if value is None or isinstance(value, int | float)}


def _journal(facts: RunFacts) -> JournalFacts:
    seal: JournalSealed = facts.last(JournalSealed)
    record = facts.records[JournalSealed][-1]
    return JournalFacts(
        format=facts.last(JournalOpened).format,
        lines=record.seq + 1,
        head=seal.head,
        sealed_at=format_time(record.time),
        public_key=seal.public_key,
        signature=seal.signature,
    )


def _omitted(facts: RunFacts, work: WorkRecord | None) -> tuple[str, ...]:
    """Say what a statement would hold if the record did."""
    missing = []
    if work is None:
        missing.append("repository and base commit: the seal of this record does not cover them")
    else:
        if not work.repository:
            missing.append(
                "the address of the repository: it had no remote 'origin', or the record is of version 0.1"
            )
        if work.base_commit is None:
            missing.append("the base commit: the workspace was not a git repository with a commit")
    if facts.last(VerificationEnded) is None:
        missing.append("a check: the run had none, or ended before it")
    return tuple(missing)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
