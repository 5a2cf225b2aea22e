"""Lines of a client's output as records: what is none is told, and nothing raises."""

from ringfence.events import Event, Origin, TranscriptNoted
from ringfence.runtime.client.seen import ClientName, Seen
from ringfence.runtime.transcript.base import Translator
from ringfence.runtime.transcript.lines import Line
from ringfence.runtime.transcript.record import Record, parse

_SHOWN_BYTES = 2000


class LineReader:
    """Has the lines of an output translated.

    Args:
        client: Whose output it is.
        seen: Is told of each line.
        translator: Turns records into events.
    """

    def __init__(self, client: ClientName, seen: Seen, translator: Translator) -> None:
        self._client = client
        self._seen = seen
        self._translator = translator

    def take(self, line: Line) -> tuple[list[Record], list[Event]]:
        """The records of a line, and all its events."""
        items = parse(line)
        records = [item for item in items if isinstance(item, Record)]
        for record in records:
            self._seen.take(self._client, record.value)
        if items and not records:
            self._seen.take(self._client, None)
            if line.data is not None and line.size <= _SHOWN_BYTES:
                return [], [*self._translator.flush(), self._strange(line.number, line.data)]
        return records, [event for item in items for event in self._translator.translate(item)]

    def _strange(self, number: int, data: bytes) -> Event:
        """What is no JSON, but short: mostly a warning for people."""
        origin = Origin(file=self._translator.file, line=number)
        return TranscriptNoted(
            origin=origin, kind="no_json", text=data.decode("utf-8", "replace"), record=None
        )
