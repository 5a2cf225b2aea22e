"""What the agents' own command line programs do, read from outside."""

from ringfence.runtime.client.ending import Ending, Exit, ending_of, error_of
from ringfence.runtime.client.seen import ClientName, Seen, seen_in

__all__ = ["ClientName", "Ending", "Exit", "Seen", "ending_of", "error_of", "seen_in"]
