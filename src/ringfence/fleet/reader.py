"""Opens what commands read a fleet through: a server, this machine's daemon, or without a daemon the fleet's database.

The reader of the database is imported only where it is used: its import takes ten times as long as that of the client.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.config.paths import state_dir
from ringfence.fleet.client import FleetClient, open_client, socket_path

if TYPE_CHECKING:
    from ringfence.fleet.local_reader import LocalReader


def open_reader(state: Path | None = None, *, server: str | None = None) -> "FleetClient | LocalReader":
    """Return a client of a server, or of the daemon if it runs; else a reader of the fleet's database.

    Args:
        state: The state directory; None: the user's.
        server: The URL of a server.

    Raises:
        NoDaemon: There is neither a daemon nor a database.
        UsageError: The URL cannot be used, or there is no token for it.
    """
    if server is not None:
        return open_client(server)
    directory = state or state_dir()
    client = FleetClient(socket_path(directory))
    if client.is_up():
        return client
    from ringfence.fleet.local_reader import open_local_reader

    return open_local_reader(directory)
