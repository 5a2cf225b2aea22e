"""Defines a configured fleet: its agents, and the files that configure it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ringfence.config.document import Document, KeyPath, Origin
from ringfence.config.layer import Merged
from ringfence.config.names import nearest
from ringfence.config.trust import is_trusted
from ringfence.errors import NotFound, RingfenceError
from ringfence.fleet.config.model import AgentSettings, FleetSettings
from ringfence.fleet.herdctl.conversion import Note


@dataclass(frozen=True)
class Agent:
    """A configured agent."""

    name: str
    """The name, qualified by the fleets that contain the agent, such as `sub.reviewer`."""
    settings: AgentSettings
    merged: Merged
    """The raw values of the settings with their origins."""
    directory: Path
    """The directory of the file that names the agent."""

    @cached_property
    def configuration(self) -> str:
        """The settings as JSON, in the form that is stored with each job."""
        return self.settings.model_dump_json(exclude_unset=True, by_alias=True)

    def origin(self, key: str) -> Origin:
        """Return the origin of the value of a dotted key."""
        return self.merged.origin(key.split("."))

    def error(self, path: KeyPath, message: str) -> RingfenceError:
        """Return an error about the value at a path."""
        key = ".".join(map(str, path))
        return self.merged.blame(path).error(f"agents.{self.name}.{key}: {message}")


@dataclass(frozen=True)
class Fleet:
    """A configured fleet."""

    settings: FleetSettings
    agents: Mapping[str, Agent]
    """The agents by qualified name, in the order of the files."""
    documents: tuple[Document, ...]
    """The files of the fleet, outermost first, without the user's own file."""
    merged: Merged
    """The raw values of `settings` with their origins."""
    notes: tuple[Note, ...] = ()
    """Keys of herdctl's files that are not converted unchanged."""

    @property
    def file(self) -> Path:
        """The outermost file."""
        return self.documents[0].file

    def agent(self, name: str) -> Agent:
        """Return an agent.

        Raises:
            NotFound: There is no agent of this name.
        """
        found = self.agents.get(name)
        if found is None:
            guess = nearest(name, self.agents)
            hint = f"did you mean {guess!r}?" if guess else f"there are: {', '.join(self.agents) or 'none'}"
            raise NotFound(f"there is no agent {name!r}; {hint}")
        return found

    def untrusted(self) -> list[Path]:
        """Return the files whose current content the user has not trusted.

        Raises:
            ConfigurationError: Other users can write the records of trust.
        """
        return [each.file for each in self.documents if not is_trusted(each.file, each.content)]
