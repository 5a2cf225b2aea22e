"""Defines the tables of a fleet's database, in SQLite or PostgreSQL. Times are whole milliseconds since 1970, UTC."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

METADATA = MetaData()

JOBS = Table(
    "fleet_jobs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("trigger_name", Text, nullable=False, server_default=""),
    Column("title", Text, nullable=False, server_default=""),
    Column("dedupe_key", Text, unique=True),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("workspace", Text, nullable=False, server_default=""),
    Column("placement", Text, nullable=False, server_default=""),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False, server_default="0"),
    Column("not_before_ms", BigInteger, nullable=False, server_default="0"),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("admissions", Integer, nullable=False, server_default="0"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("worker", Text),
    Column("host", Text),
    Column("run_id", Text),
    Column("session_id", Text),
    Column("parent", Text),
    Column("reason", Text, nullable=False, server_default=""),
    Column("is_cancel_asked", Boolean, nullable=False, server_default=text("false")),
    Column("is_followed", Boolean, nullable=False, server_default=text("false")),
    Column("is_ready_to_apply", Boolean, nullable=False, server_default=text("false")),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    Column("reserved_tokens", BigInteger),
    Column("reserved_usd", Float),
    Index("fleet_jobs_in_order", "state", text("priority DESC"), "id"),
    Index("fleet_jobs_by_agent", "agent", "id"),
    Index("fleet_jobs_by_agent_and_state", "agent", "state", text("priority DESC"), "id"),
    Index("fleet_jobs_by_agent_and_start", "agent", "started_ms"),
    Index("fleet_jobs_by_change", "changed_ms"),
    Index("fleet_jobs_by_end", "ended_ms"),
    Index("fleet_jobs_by_parent", "parent"),
    Index("fleet_jobs_to_follow", "is_followed", "ended_ms"),
    Index("fleet_jobs_to_apply", "is_ready_to_apply", "id"),
)
"""One row per job. Rows are small, since lists are read from them; texts of any size are in `BLOBS`.

`title`: the first line of the prompt, at most 200 characters.
`placement`: the label that a worker must have.
`changed_ms`: the time of the last change that a reader of the job sees; not of `is_followed`.
`admissions`: how often the job was given a workflow; the last one's id is made of it.
`worker`: the worker of the last attempt. NULL in a job that has ended: it ended outside an attempt, and `Jobs.follow`
    starts the workflow that runs its follow-ups.
`host`: the machine of the last attempt.
`is_followed`: whether `Jobs.follow` has handled the job's end.
`is_ready_to_apply`: whether the job left changes in a private copy that were not applied or rejected through the fleet.
`reserved_tokens`, `reserved_usd`: what is reserved of the budgets for the current attempt; NULL if nothing is.
"""

BLOBS = Table(
    "fleet_blobs",
    METADATA,
    Column("job", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "kind"),
)
"""Prompt, payload, configuration, answer and granted rules of a job."""

ATTEMPTS = Table(
    "fleet_attempts",
    METADATA,
    Column("job", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("state", Text),
    Column("reason", Text, nullable=False, server_default=""),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    Column("record", Text),
    Column("is_counted", Boolean, nullable=False, server_default=text("true")),
    PrimaryKeyConstraint("job", "number"),
    Index("fleet_attempts_by_run", "run_id"),
    Index("fleet_attempts_to_store", "host", "record"),
)
"""One row per attempt at a job.

`record`: the name of the copy of the run's record in the fleet's record store; `-`: there is none; NULL: not stored.
`is_counted`: counts against `retry.attempts`; false if its worker was stopped or it asked a question.
"""

SPEND = Table(
    "fleet_spend",
    METADATA,
    Column("agent", Text, nullable=False),
    Column("quarter_ms", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    PrimaryKeyConstraint("agent", "quarter_ms"),
    Index("fleet_spend_by_time", "quarter_ms"),
)
"""What each agent spent in each quarter hour, which begins at `quarter_ms`.

In every time zone, days begin with a quarter hour, so a day's spend is the sum of at most 100 rows of an agent.
"""

SCHEDULES = Table(
    "fleet_schedules",
    METADATA,
    Column("agent", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("last_slot_ms", BigInteger),
    Column("is_paused", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("agent", "name"),
)
"""One row per schedule. `last_slot_ms` (its name in version 0.1) is the last due time that was handled."""

AGENTS = Table(
    "fleet_agents",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("session_run_id", Text),
    Column("session_host", Text),
    Column("session_used_ms", BigInteger),
)
"""The state of each agent that is not in its configuration."""

WORKERS = Table(
    "fleet_workers",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False, server_default=""),
    Column("labels", Text, nullable=False, server_default="[]"),
    Column("capacity", Integer, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("is_draining", Boolean, nullable=False, server_default=text("false")),
)
"""One row per worker, named as its executor. `labels` is a JSON array of strings."""

INBOX = Table(
    "fleet_inbox",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("text", Text, nullable=False, server_default=""),
    Column("created_ms", BigInteger, nullable=False),
    Column("deadline_ms", BigInteger),
    Column("answer", Text),
    Column("scope", Text),
    Column("reply", Text, nullable=False, server_default=""),
    Column("answered_by", Text),
    Column("answered_ms", BigInteger),
    Index("fleet_inbox_open", "answer", "created_ms"),
    Index("fleet_inbox_by_job", "job"),
)
"""One row per question to a person. `rule` is JSON made from structured fields; `text` is the agent's own text."""

GRANTS = Table(
    "fleet_grants",
    METADATA,
    Column("agent", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("granted_by", Text, nullable=False),
    Column("granted_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("agent", "rule"),
)
"""Rules that a person granted to an agent for all its jobs."""

TOKENS = Table(
    "fleet_tokens",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("scope", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("used_ms", BigInteger),
)
"""Tokens of the HTTP API: only their SHA-256 digests, in hexadecimal."""

TOTALS = Table(
    "fleet_totals",
    METADATA,
    Column("agent", Text, nullable=False),
    Column("figure", Text, nullable=False),
    Column("value", Float, nullable=False),
    PrimaryKeyConstraint("agent", "figure"),
)
"""Metrics of jobs that retention removed, so that totals never decrease. `figure` is the name of a metric."""

CLAIMS = Table(
    "fleet_claims",
    METADATA,
    Column("token", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("item", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
"""Claims on items of a source: stored before they are made, removed once the job exists, or the item is gone."""

DELIVERIES = Table(
    "fleet_deliveries",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("received_ms", BigInteger, nullable=False),
    Index("fleet_deliveries_by_time", "received_ms"),
)
"""Webhook deliveries that created jobs: kept longer than the jobs, so that an old request cannot be replayed."""

FORMER_NAMES = {
    table: table.replace("fleet_", "crew_", 1)
    for table in (
        "fleet_jobs",
        "fleet_blobs",
        "fleet_attempts",
        "fleet_schedules",
        "fleet_agents",
        "fleet_totals",
        "fleet_claims",
    )
}
"""Names that tables had in version 0.1. They are renamed when a daemon or worker of this version first opens them."""
