"""The engine on DBOS: its public interface, behind ours. Nobody else imports `dbos`, which takes a second."""

from ringfence.engine.dbos.engine import DbosEngine

__all__ = ["DbosEngine"]
