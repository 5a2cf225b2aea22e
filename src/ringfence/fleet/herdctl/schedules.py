"""Converts schedules, sessions and work sources of herdctl's agents."""

import re

from ringfence.config.document import KeyPath
from ringfence.fleet.herdctl.conversion import valid_name
from ringfence.fleet.herdctl.reader import Reader, has_variable
from ringfence.fleet.herdctl.secret import secret_reference

_INTERVAL = re.compile(r"\s*([1-9]\d{0,8})\s*([smhd])\s*", re.IGNORECASE)
_WEEKS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)w")
_DAYS_PER_WEEK = 7
SESSION_DEFAULT = (
    "it is not set, so herdctl resumes the last session for jobs started by hand within 24 hours; here each job starts "
    "a new session; write `session: {policy: resume}` to resume it"
)


def convert_schedules(reader: Reader) -> None:
    """Convert `schedules`."""
    taken: set[str] = set()
    for key in reader.keys("schedules"):
        path: KeyPath = ("schedules", key)
        name = valid_name(key, taken)
        taken.add(name)
        with reader.collected():
            if not reader.is_mapping(*path):
                raise reader.error(path, "write a mapping with a `type`")
            if not name:
                raise reader.error(path, "its name has no letter or digit")
            if name != key:
                reader.changed(path, f"it is called {name!r} here")
            _convert_schedule(reader, path, ("schedules", name))


def _convert_schedule(reader: Reader, path: KeyPath, to: KeyPath) -> None:
    kind = reader.choice((*path, "type"), ("interval", "cron", "webhook", "chat"))
    reader.no_effect((*path, "work_source"), "herdctl's fleets never read it; see `triggers`")
    if kind in ("webhook", "chat"):
        reader.no_effect(path, f"herdctl never fires schedules of type {kind}; a webhook is a trigger here")
        return
    if kind is None:
        raise reader.error(path, "`type` is missing or depends on a variable; write interval or cron")
    if kind == "interval":
        reader.put((*to, "every"), _interval(reader, (*path, "interval")), *path, "interval")
        reader.changed(
            (*path, "interval"),
            "herdctl fires it at the start, and counts from the last start of a job; here due times are multiples of "
            "the interval",
        )
        for key in ("cron", "expression"):
            reader.no_effect((*path, key), "its type is interval")
    else:
        key = "cron" if reader.has(*path, "cron") else "expression"
        if not reader.text(*path, key):
            raise reader.error(path, "`cron` is missing")
        reader.copy_text((*to, "cron"), *path, key)
        reader.no_effect((*path, "interval"), "its type is cron")
        if key == "cron":
            reader.no_effect((*path, "expression"), "`cron` is set as well")
    reader.copy_text((*to, "prompt"), *path, "prompt")
    reader.copy((*to, "enabled"), *path, "enabled")
    if reader.flag(*path, "outputToFile"):
        reader.no_effect(
            (*path, "outputToFile"), "the job's record contains everything; `ringfence job logs` prints it"
        )
    if reader.flag(*path, "resume_session"):
        reader.no_effect(
            (*path, "resume_session"), "herdctl's schedules always start a new session; see `session.policy`"
        )


def _interval(reader: Reader, path: KeyPath) -> str:
    text = reader.text(*path) or ""
    if has_variable(text):
        return text
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise reader.error(path, f"{text[:80]!r} is not an interval; write a whole number and s, m, h or d")
    return f"{int(match[1])}{match[2].lower()}"


def convert_session(reader: Reader) -> None:
    """Convert `session` and the limit of turns."""
    reader.keys("session")
    timeout = reader.scalar("session", "timeout")
    if timeout is not None and reader.is_concurrent:
        reader.left_out(
            ("session", "timeout"),
            "jobs that run at the same time cannot resume one session; each starts a new one",
        )
    elif timeout is not None:
        weeks = _WEEKS.fullmatch(timeout) if isinstance(timeout, str) else None
        within = f"{float(weeks[1]) * _DAYS_PER_WEEK:g}d" if weeks else timeout
        reader.put(("session", "policy"), "resume", "session", "timeout")
        reader.put(("session", "within"), within, "session", "timeout")
        reader.changed(
            ("session", "timeout"),
            "herdctl resumes a session only for jobs started by hand; here every job resumes it, scheduled ones as well",
        )
    reader.no_effect(("session", "model"), "herdctl never reads it; `model` applies")
    if reader.has("max_turns"):
        reader.copy(("limits", "turns"), "max_turns")
        reader.no_effect(("session", "max_turns"), "`max_turns` overrides it")
    else:
        reader.copy(("limits", "turns"), "session", "max_turns")


def convert_work_source(reader: Reader) -> None:
    """Convert `work_source` to a trigger."""
    path: KeyPath = ("work_source",)
    if not reader.keys(*path):
        return
    kind, repository = reader.text(*path, "type"), reader.text(*path, "repo")
    if kind != "github" or not repository:
        reader.left_out(path, "work comes from GitHub, with a `repo`, or from a directory; see `triggers`")
        return
    variable = reader.expanded(*path, "auth", "token_env") or "GITHUB_TOKEN"
    token = secret_reference(reader, variable, *path, "auth", "token_env")
    to: KeyPath = ("triggers", "github")
    for key, value in (("type", "github"), ("repository", repository), ("token", token)):
        reader.put((*to, key), value, *path)
    reader.put((*to, "label"), reader.text(*path, "labels", "ready"), *path)
    reader.put((*to, "claimed_label"), reader.text(*path, "labels", "in_progress"), *path)
    reader.changed(
        (*path, "repo"), "herdctl's fleets never fetch issues; here those with the label become jobs"
    )
    for excluded in ((*path, "exclude_labels"), (*path, "labels", "exclude_labels")):
        reader.left_out(excluded, "an issue with the label becomes a job, whatever other labels it has")
    if reader.flag(*path, "cleanup_on_failure") is False:
        reader.left_out((*path, "cleanup_on_failure"), "a failed issue is always marked as failed")
