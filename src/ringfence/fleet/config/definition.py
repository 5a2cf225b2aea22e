"""A fleet as it is configured: its agents, and the files that say so."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ringfence.config.document import Document, Origin
from ringfence.config.effective import trust_command
from ringfence.config.layer import Merged
from ringfence.config.names import nearest
from ringfence.config.trust import is_trusted
from ringfence.errors import UsageError
from ringfence.fleet.config.model import AgentSettings, FleetSettings
from ringfence.fleet.herdctl.conversion import Note


@dataclass(frozen=True)
class Agent:
    """One agent as it is configured."""

    name: str
    """Qualified by the fleets it is in: `sub.reviewer`."""
    settings: AgentSettings
    merged: Merged
    """What it was made of, for who asks where a value comes from."""
    directory: Path
    """Of the file that names it."""

    @cached_property
    def configuration(self) -> str:
        """What is stored with each of its jobs: its settings as JSON."""
        return self.settings.model_dump_json(exclude_unset=True, by_alias=True)

    def origin(self, key: str) -> Origin:
        """Where the value of a dotted key was said."""
        return self.merged.origin(key.split("."))


@dataclass(frozen=True)
class Fleet:
    """A fleet as it is configured."""

    settings: FleetSettings
    agents: Mapping[str, Agent]
    """By qualified name, in the order of the files."""
    documents: tuple[Document, ...]
    """The files it was read from, the first one first; without the user's own."""
    merged: Merged
    """What `settings` was made of."""
    notes: tuple[Note, ...] = ()
    """What files of herdctl's say that does not come over as it stands."""
    led_from: Mapping[Path, Path] = field(default_factory=dict)
    """Files of herdctl's agents and fleets, and the fleet's file that led to each."""

    @property
    def file(self) -> Path:
        """The file that was asked for."""
        return self.documents[0].file

    def agent(self, name: str) -> Agent:
        """An agent by its name.

        Raises:
            UsageError: There is none.
        """
        found = self.agents.get(name)
        if found is None:
            guess = nearest(name, self.agents)
            hint = f"did you mean {guess!r}?" if guess else f"there are: {', '.join(self.agents) or 'none'}"
            raise UsageError(f"there is no agent {name!r}; {hint}")
        return found

    def trust_commands(self) -> list[str]:
        """What to type to trust all files that are not; one command for a whole fleet of herdctl's.

        Raises:
            ConfigurationError: As `untrusted`.
        """
        files = (self.led_from.get(file, file) for file in self.untrusted())
        return [trust_command(file) for file in dict.fromkeys(files)]

    def untrusted(self) -> list[Path]:
        """Files whose present content the user has not trusted.

        Raises:
            ConfigurationError: What says so could have been written by others.
        """
        return [each.file for each in self.documents if not is_trusted(each.file, each.content)]
