"""Verifies all records of a state directory, and by its chain that none is missing."""

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
"""Statements about a state directory that its verification cannot prove."""

_REMOVED = ".removed-"


@frozen
class StateVerification:
    """The result of `verify_all`."""

    runs: tuple[Verification, ...]
    """The results for the runs, the newest first."""
    findings: tuple[Finding, ...]
    """Findings about the chain, missing runs, and runs that the chain does not list."""
    entries: int
    """The number of lines of the chain."""
    head: str
    """The hash of the chain's end. A copy elsewhere can prove later that no earlier entry was removed."""
    removed: Mapping[str, str]
    """The runs whose records were removed, and the command that removed each."""

    @property
    def ok(self) -> bool:
        """Whether there is no fault. Runs may be open-ended."""
        are_runs_ok = all(run.status in ("sealed", "open") for run in self.runs)
        return are_runs_ok and not any(finding.is_fault for finding in self.findings)


def verify_all(*, public_keys: Collection[str] | None = None, anchor: str | None = None) -> StateVerification:
    """Verify every record of the state directory, and by the chain that none is missing.

    The chain lists records that a command removed. `STATE_LIMITS` says what this function cannot prove.

    Args:
        public_keys: As for `verify_run`.
        anchor: A copy of an earlier head of the chain; it is a fault if the chain never had this head.

    Raises:
        RecordError: A key file is damaged.
        InfrastructureFault: The chain cannot be read.
    """
    trusted = trusted_ids(public_keys)
    chain = _CheckedChain(trusted, anchor)
    runs = tuple(verify_among(path, trusted, chain.heads_of) for path in run_dirs())
    findings = [*chain.findings, *chain.missing_runs(), *_unlisted_runs(runs, chain)]
    return StateVerification(runs, tuple(findings), chain.entries, chain.head, chain.removed)


class _CheckedChain:
    """The verified chain of the state directory."""

    def __init__(self, trusted: frozenset[str], anchor: str | None) -> None:
        self.entries = 0
        self.head = sha256().hexdigest()
        self.removed: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._heads: dict[str, dict[int, str]] = {}
        self._chained: set[str] = set()
        """Runs with a chained entry, which version 0.1 did not write."""
        self._path = state_dir() / "heads"
        is_anchored = anchor in (None, self.head)
        for link in read_chain():
            self._add(link, trusted)
            self.entries, self.head = link.number, link.head
            is_anchored = is_anchored or link.head == anchor
        if not is_anchored:
            self._add_finding(
                "broken", f"the chain never had the head {anchor!r}: entries were removed or replaced"
            )

    def heads_of(self, run_id: str) -> Mapping[int, str]:
        return self._heads.get(run_id, {})

    def missing_runs(self) -> Iterator[Finding]:
        """Yield the runs that are missing without a recorded removal.

        Version 0.1 recorded no removals, so a missing run of that version is not a fault.
        """
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
            self._add_finding("unreadable", f"line {link.number} of the chain cannot be read", is_fault=False)
            return
        if not link.is_in_order:
            self._add_finding(
                "broken",
                f"line {link.number} of the chain does not follow from the previous lines: entries were edited, "
                "dropped, inserted or reordered",
            )
        if not is_genuine(entry, trusted):
            self._add_finding("broken", f"line {link.number} of the chain has no signature of a trusted key")
        elif entry.removed_by:
            self.removed[entry.run_id] = entry.removed_by
        else:
            self._heads.setdefault(entry.run_id, {})[entry.seq] = entry.head
            if entry.prev is not None:
                self._chained.add(entry.run_id)

    def _add_finding(self, kind: Kind, message: str, *, is_fault: bool = True) -> None:
        self.findings.append(Finding(kind, self._path, message, is_fault=is_fault))


def _unlisted_runs(runs: tuple[Verification, ...], chain: _CheckedChain) -> Iterator[Finding]:
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
            yield Finding("unknown", path, f"{path.name!r} is not the record of a run", is_fault=False)
