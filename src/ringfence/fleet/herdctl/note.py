"""What a fleet says that does not come over as it stands."""

from dataclasses import dataclass, field
from typing import Literal

from ringfence.config.document import Origin
from ringfence.frozen import frozen

Kind = Literal["left_out", "changed", "no_effect"]
"""`left_out`: it is not done here. `changed`: it is done in another way. `no_effect`: nothing is lost, as herdctl does
not do it either, or as nothing needs to be done here."""

WORDS = {"left_out": "left out", "changed": "done otherwise", "no_effect": "nothing is lost"}


@frozen
class Note:
    """One key, and what became of it."""

    kind: Kind
    key: str
    """As it stands in herdctl's file, dotted."""
    origin: Origin
    reason: str

    @property
    def text(self) -> str:
        """What became of it, and why or what to do."""
        return f"{WORDS[self.kind]}: {self.reason}"

    def __str__(self) -> str:
        """One line."""
        return f"{self.origin}: {self.key}: {self.text}"


@dataclass
class Notes:
    """All notes of a fleet, each once, however many agents inherit the key."""

    items: list[Note] = field(default_factory=list)
    _seen: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, note: Note) -> None:
        """Keep one."""
        mark = (str(note.origin), note.key, note.reason)
        if mark not in self._seen:
            self._seen.add(mark)
            self.items.append(note)
