"""The tables, in a SQLite file of each loop. Moments are whole milliseconds since 1970."""

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, Table, Text

METADATA = MetaData()

LOOPS = Table(
    "loops",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("plan", Text, nullable=False),
    Column("configuration", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("round", Integer, nullable=False, server_default="1"),
    Column("is_cancel_asked", Boolean, nullable=False, default=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
)

STORIES = Table(
    "loop_stories",
    METADATA,
    Column("loop", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("generation", Integer, nullable=False, server_default="1"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("stage", Text, nullable=False, server_default=""),
    Column("slot", Integer),
    Column("base", Text),
    Column("tests", Text),
    Column("tip", Text),
    Column("merged", Text),
    Column("answer", Text, nullable=False, server_default=""),
)

STEPS = Table(
    "loop_steps",
    METADATA,
    Column("loop", Text, primary_key=True),
    Column("story", Text, primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False, server_default=""),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("model", Text, nullable=False, server_default=""),
    Column("run_id", Text),
    Column("outcome", Text),
    Column("result", Text),
    Column("tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("began_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
)

EVENTS = Table(
    "loop_events",
    METADATA,
    Column("loop", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("story", Text),
    Column("data", Text, nullable=False),
)
Index("loop_events_key", EVENTS.c.loop, EVENTS.c.key, unique=True)
