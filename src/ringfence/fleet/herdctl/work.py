"""When herdctl's agents work: schedules, sessions, sources of work."""

import re

from ringfence.config.document import KeyPath
from ringfence.fleet.herdctl.document import PreparedJob, name_of
from ringfence.fleet.herdctl.reader import Reader, holds_variable
from ringfence.fleet.herdctl.secret import refer

_INTERVAL = re.compile(r"\s*([1-9]\d{0,8})\s*([smhd])\s*", re.IGNORECASE)
_WEEKS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)w")
_DAYS_OF_WEEK = 7


def convert_schedules(reader: Reader, made: PreparedJob) -> None:
    """Say when the agent works by itself."""
    taken: set[str] = set()
    for said in reader.keys("schedules"):
        path: KeyPath = ("schedules", said)
        if not reader.is_mapping(*path):
            raise reader.wrong(path, "write a mapping with a `type`")
        name = name_of(said, taken)
        if not name:
            raise reader.wrong(path, "its name has no letter or digit")
        if name != said:
            reader.changed(path, f"it is called {name!r} here")
        taken.add(name)
        _schedule(reader, made, path, name)


def _schedule(reader: Reader, made: PreparedJob, path: KeyPath, name: str) -> None:
    kind = reader.word((*path, "type"), ("interval", "cron", "webhook", "chat"))
    reader.no_effect((*path, "work_source"), "herdctl's fleets never read it; see `triggers`")
    if kind in ("webhook", "chat"):
        reader.no_effect(path, f"herdctl never fires schedules of type {kind}; a webhook is a trigger here")
        return
    if kind is None:
        raise reader.wrong(path, "`type` is missing, or not known yet; write interval or cron")
    place = ("schedules", name)
    if kind == "interval":
        made.put((*place, "every"), _interval(reader, (*path, "interval")), reader.origin(*path, "interval"))
        for key in ("cron", "expression"):
            reader.no_effect((*path, key), "its type is interval")
    else:
        key = "cron" if reader.value(*path, "cron") is not None else "expression"
        cron = reader.text(*path, key)
        if not cron:
            raise reader.wrong(path, "`cron` is missing")
        made.put((*place, "cron"), cron, reader.origin(*path, key))
        reader.no_effect((*path, "interval"), "its type is cron")
        if key == "cron":
            reader.no_effect((*path, "expression"), "`cron` is said as well")
    made.put((*place, "prompt"), reader.text(*path, "prompt") or None, reader.origin(*path, "prompt"))
    made.put((*place, "enabled"), reader.scalar(*path, "enabled"), reader.origin(*path, "enabled"))
    if reader.flag(*path, "outputToFile"):
        reader.no_effect(
            (*path, "outputToFile"), "everything is in the job's record; `ringfence job logs` prints it"
        )
    if reader.flag(*path, "resume_session"):
        reader.no_effect(
            (*path, "resume_session"), "herdctl's schedules always begin anew; see `session.policy`"
        )


def _interval(reader: Reader, path: KeyPath) -> str:
    said = reader.text(*path)
    if said is not None and holds_variable(said):
        return said
    match = _INTERVAL.fullmatch(said or "")
    if match is None:
        raise reader.wrong(
            path, f"{(said or '')[:80]!r} is no interval; write a whole number and s, m, h or d"
        )
    return f"{int(match[1])}{match[2].lower()}"


def convert_session(reader: Reader, made: PreparedJob) -> None:
    """Say whether jobs go on with the last session, and how many turns they have."""
    reader.keys("session")
    within = reader.scalar("session", "timeout")
    if within is not None:
        weeks = _WEEKS.fullmatch(within) if isinstance(within, str) else None
        text = f"{float(weeks[1]) * _DAYS_OF_WEEK:g}d" if weeks else within
        made.put(("session", "policy"), "resume", reader.origin("session", "timeout"))
        made.put(("session", "within"), text, reader.origin("session", "timeout"))
        reader.changed(
            ("session", "timeout"),
            "herdctl goes on with a session for jobs by hand only; here every job does, also those of schedules",
        )
    reader.no_effect(("session", "model"), "herdctl never reads it; `model` counts")
    turns, fallback = reader.scalar("max_turns"), reader.scalar("session", "max_turns")
    if turns is not None:
        made.put(("limits", "turns"), turns, reader.origin("max_turns"))
        reader.no_effect(("session", "max_turns"), "`max_turns` is stronger")
    else:
        made.put(("limits", "turns"), fallback, reader.origin("session", "max_turns"))


def convert_work_source(reader: Reader, made: PreparedJob) -> None:
    """Say where else work comes from."""
    path: KeyPath = ("work_source",)
    if not reader.keys(*path):
        return
    kind, repository = reader.text(*path, "type"), reader.text(*path, "repo")
    if kind != "github" or not repository:
        reader.left_out(path, "work comes from GitHub, with a `repo`, or from a directory; see `triggers`")
        return
    token = reader.value(*path, "auth", "token_env") or "GITHUB_TOKEN"
    if not isinstance(token, str):
        raise reader.wrong((*path, "auth", "token_env"), "write the name of a variable")
    origin = reader.origin(*path)
    place = ("triggers", "github")
    reference = refer(made, token, reader.origin(*path, "auth", "token_env"))
    for key, value in (("type", "github"), ("repository", repository), ("token", reference)):
        made.put((*place, key), value, origin)
    made.put((*place, "label"), reader.text(*path, "labels", "ready"), origin)
    made.put((*place, "claimed_label"), reader.text(*path, "labels", "in_progress"), origin)
    reader.changed(
        (*path, "repo"), "herdctl's fleets never fetch it; here issues with the label are worked on"
    )
    for excluded in ((*path, "exclude_labels"), (*path, "labels", "exclude_labels")):
        reader.left_out(excluded, "an issue with the label is taken, whatever other labels it has")
    if reader.flag(*path, "cleanup_on_failure") is False:
        reader.left_out((*path, "cleanup_on_failure"), "an issue is always given back when its job fails")
