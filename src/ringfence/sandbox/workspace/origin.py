"""Which earlier run left what keeps the next one from starting, so that a refusal can name it."""

from ringfence.errors import PolicyRefused, RecordError
from ringfence.sandbox.workspace.memo import Memo
from ringfence.sandbox.workspace.scan import NO_FILE
from ringfence.sandbox.workspace.store import CheckpointStore
from ringfence.sandbox.workspace.survey import BEYOND, TOO_DEEP

_KINDS = ("too-many-sockets", "too-many-repositories", "workspace-unseen")
_LOOKED_AT = 50
"""Runs, the latest first."""


async def with_origin(refusal: PolicyRefused, store: CheckpointStore, run: str) -> PolicyRefused:
    """The refusal of `run`, and what to do about the run whose doing it is, where that is known."""
    if refusal.rule not in _KINDS:
        return refusal
    found = _marked(await store.memo_of(f"{run}/before"), refusal.rule)
    for label in await store.labels("after", limit=_LOOKED_AT):
        try:
            after = await store.memo_of(label)
            before = await store.memo(after.base) if after.base else Memo("")
        except RecordError:
            continue
        left = _marked(after, refusal.rule) - _marked(before, refusal.rule)
        if left & found or (left and refusal.rule == "workspace-unseen"):
            return PolicyRefused(
                f"{refusal}; {_step(label.partition('/')[0], refusal.rule)}", rule=refusal.rule
            )
    return refusal


def _marked(memo: Memo, rule: str) -> set[bytes]:
    if rule == "too-many-repositories":
        return set(memo.git_entries)
    whys = (NO_FILE,) if rule == "too-many-sockets" else (BEYOND, TOO_DEEP)
    return {path for path, why in memo.skipped.items() if why in whys}


def _step(run: str, rule: str) -> str:
    short = run[-8:]
    if rule == "too-many-sockets":
        return f"run {run!r} left some of them: `ringfence undo {short}` removes those"
    if rule == "too-many-repositories":
        made = f"run {run!r} made some of them, which no undo removes"
        return f"{made}: `ringfence diff {short} --flagged` names them"
    return (
        f"run {run!r} left it so: `ringfence undo {short}` takes back what was kept, remove the rest by hand"
    )
