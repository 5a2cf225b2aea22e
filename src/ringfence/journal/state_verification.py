"""Verifies the records of a state directory together: each of them, and that none is missing from its chain."""

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256

from ringfence.config.paths import state_dir
from ringfence.frozen import frozen
from ringfence.journal.chain import Link, is_genuine, read_chain
from ringfence.journal.layout import run_dirs, runs_dir
from ringfence.journal.verification import (
    RECORD_LIMITS,
    Finding,
    Kind,
    Verification,
    trusted_ids,
    verify_among,
)

STATE_LIMITS = (
    *RECORD_LIMITS,
    "The last entries of the chain can be cut off together with the records that they name.",
    "A whole state directory can be replaced: only a head of its chain that was kept elsewhere shows it.",
    "A run that was killed, and whose record was removed before a later command closed it, is in no entry.",
)
"""What the verification of a state directory cannot show."""

_REMOVED = ".removed-"


@frozen
class StateVerification:
    """What `verify_all` found."""

    runs: tuple[Verification, ...]
    """The newest first."""
    findings: tuple[Finding, ...]
    """About the chain, and about runs that are missing or that it does not list."""
    entries: int
    """Lines of the chain."""
    head: str
    """The hash of the chain's end. Kept elsewhere, it shows later that nothing up to here was removed."""
    removed: Mapping[str, str]
    """The runs whose records were removed, and the command that removed each."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Runs may be open-ended."""
        is_whole = all(run.status in ("sealed", "open") for run in self.runs)
        return is_whole and not any(one.is_fault for one in self.findings)


def verify_all(*, public_keys: Collection[str] | None = None, anchor: str | None = None) -> StateVerification:
    """Check every record of the state directory, and by the chain that none is missing.

    A record that a command removed is in the chain as removed. What cannot be shown is in `STATE_LIMITS`.

    Args:
        public_keys: As for `verify_run`.
        anchor: A head of the chain that was kept elsewhere; the chain must have had it.

    Raises:
        RecordError: A file of keys is damaged.
        InfrastructureFault: The chain cannot be read.
    """
    trusted = trusted_ids(public_keys)
    chain = _CheckedChain(trusted, anchor)
    runs = tuple(verify_among(path, trusted, chain.heads_of) for path in run_dirs())
    findings = [*chain.findings, *chain.missing(), *_unlisted(runs, chain)]
    return StateVerification(runs, tuple(findings), chain.entries, chain.head, chain.removed)


class _CheckedChain:
    """The chain of the state directory, checked."""

    def __init__(self, trusted: frozenset[str], anchor: str | None) -> None:
        self.entries = 0
        self.head = sha256().hexdigest()
        self.removed: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._heads: dict[str, dict[int, str]] = {}
        self._chained: set[str] = set()
        """Runs with an entry of this version."""
        self._path = state_dir() / "heads"
        is_anchored = anchor in (None, self.head)
        for link in read_chain():
            self._add(link, trusted)
            self.entries, self.head = link.number, link.head
            is_anchored = is_anchored or link.head == anchor
        if not is_anchored:
            self._found(
                "broken", f"the chain never had the head {anchor!r}: entries were removed or replaced"
            )

    def heads_of(self, run_id: str) -> Mapping[int, str]:
        return self._heads.get(run_id, {})

    def missing(self) -> Iterator[Finding]:
        """The runs that are gone without a removal; of one that only version 0.1 closed, none would be recorded."""
        for run_id, heads in self._heads.items():
            path = runs_dir() / run_id
            if run_id in self.removed or path.is_dir():
                continue
            is_known = run_id in self._chained
            why = "no removal" if is_known else "version 0.1, which wrote it, recorded no removals"
            message = (
                f"run {run_id!r} is missing: the chain lists {max(heads) + 1} lines of its journal; {why}"
            )
            yield Finding("missing", path, message, is_fault=is_known)

    def _add(self, link: Link, trusted: frozenset[str]) -> None:
        entry = link.entry
        if entry is None:
            self._found("unreadable", f"line {link.number} of the chain cannot be read", is_fault=False)
            return
        if not link.is_in_order:
            self._found(
                "broken",
                f"line {link.number} of the chain does not follow from what is before it: entries were edited, "
                "dropped, inserted or reordered",
            )
        if not is_genuine(entry, trusted):
            self._found("broken", f"line {link.number} of the chain has no signature of a trusted key")
        elif entry.removed_by:
            self.removed[entry.run_id] = entry.removed_by
        else:
            self._heads.setdefault(entry.run_id, {})[entry.seq] = entry.head
            if entry.prev is not None:
                self._chained.add(entry.run_id)

    def _found(self, kind: Kind, message: str, *, is_fault: bool = True) -> None:
        self.findings.append(Finding(kind, self._path, message, is_fault=is_fault))


def _unlisted(runs: tuple[Verification, ...], chain: _CheckedChain) -> Iterator[Finding]:
    for run in runs:
        if run.status == "sealed" and run.events - 1 not in chain.heads_of(run.run_id or ""):
            message = (
                f"the chain does not list the seal of run {run.run_id!r}: its last entries were cut off, or the run's "
                "process was killed before it could write one"
            )
            yield Finding("unlisted", run.path.parent, message)
    for path in sorted(runs_dir().iterdir()) if runs_dir().is_dir() else []:
        is_run = path in {run.path.parent for run in runs}
        if not is_run and not path.name.startswith(_REMOVED):
            yield Finding("unknown", path, f"{path.name!r} is no record of a run", is_fault=False)
