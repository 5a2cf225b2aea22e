"""The tables, in SQLAlchemy's words, for SQLite and PostgreSQL alike. Moments are whole milliseconds since 1970."""

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
    "crew_jobs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("trigger_name", Text, nullable=False, server_default=""),
    Column("dedupe_key", Text, unique=True),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("workspace", Text, nullable=False, server_default=""),
    Column("created_ms", BigInteger, nullable=False),
    Column("not_before_ms", BigInteger, nullable=False, server_default="0"),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("admissions", Integer, nullable=False, server_default="0"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("worker", Text),
    Column("run_id", Text),
    Column("session_id", Text),
    Column("parent", Text),
    Column("reason", Text, nullable=False, server_default=""),
    Column("is_cancel_asked", Boolean, nullable=False, server_default=text("false")),
    Column("is_followed", Boolean, nullable=False, server_default=text("false")),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    Column("reserved_tokens", BigInteger),
    Column("reserved_usd", Float),
    Index("crew_jobs_in_order", "state", text("priority DESC"), "id"),
    Index("crew_jobs_by_agent", "agent", "id"),
    Index("crew_jobs_by_agent_and_state", "agent", "state"),
    Index("crew_jobs_by_agent_and_start", "agent", "started_ms"),
    Index("crew_jobs_by_end", "ended_ms"),
    Index("crew_jobs_to_follow", "is_followed", "ended_ms"),
)
"""One row each: small, since lists of 100,000 are read at once. What is large is in `BLOBS`."""

BLOBS = Table(
    "crew_blobs",
    METADATA,
    Column("job", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job", "kind"),
)
"""Prompt, payload, configuration and answer of a job."""

ATTEMPTS = Table(
    "crew_attempts",
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
    PrimaryKeyConstraint("job", "number"),
)
"""Each try at a job, with the run that holds its record."""

SCHEDULES = Table(
    "crew_schedules",
    METADATA,
    Column("agent", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("last_slot_ms", BigInteger),
    Column("is_paused", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("agent", "name"),
)
"""How far each schedule has come."""

AGENTS = Table(
    "crew_agents",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("session_run_id", Text),
    Column("session_host", Text),
    Column("session_used_ms", BigInteger),
)
"""What is to be remembered of each agent beside its configuration."""


TOTALS = Table(
    "crew_totals",
    METADATA,
    Column("agent", Text, nullable=False),
    Column("figure", Text, nullable=False),
    Column("value", Float, nullable=False),
    PrimaryKeyConstraint("agent", "figure"),
)
"""What jobs that were forgotten came to, so that totals never go down."""

CLAIMS = Table(
    "crew_claims",
    METADATA,
    Column("token", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("item", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)
"""Claims on work of others that are being made: noted before, gone once the job is there."""
