"""Lines of a client's output as records: what is none is told, and nothing raises."""

from hashlib import sha256

from ringfence.events import Event, Origin, TranscriptNoted
from ringfence.runtime.client.seen import ClientName, Seen
from ringfence.runtime.transcript.base import Translator
from ringfence.runtime.transcript.lines import MAX_LINE_BYTES, Line
from ringfence.runtime.transcript.record import Record, parse

_SHOWN_BYTES = 2000


class LineReader:
    """Numbers the lines of an output and has them translated.

    Args:
        client: Whose output it is.
        seen: Is told of each line.
        translator: Turns records into events.
    """

    def __init__(self, client: ClientName, seen: Seen, translator: Translator) -> None:
        self._client = client
        self._seen = seen
        self._translator = translator
        self._number = 0
        self._offset = 0

    def take(self, data: bytes) -> tuple[list[Record], list[Event]]:
        """The records of a line, and all its events."""
        self._number += 1
        line = _line(self._number, self._offset, data)
        self._offset += len(data) + 1
        items = parse(line)
        records = [item for item in items if isinstance(item, Record)]
        for record in records:
            self._seen.take(self._client, record.value)
        if records:
            return records, [event for item in items for event in self._translator.translate(item)]
        if not items:
            return [], []
        self._seen.take(self._client, None)
        if len(data) > _SHOWN_BYTES:
            return [], [event for item in items for event in self._translator.translate(item)]
        return [], [*self._translator.flush(), self._strange(data)]

    def _strange(self, data: bytes) -> Event:
        origin = Origin(file=self._translator.file, line=self._number)
        return TranscriptNoted(
            origin=origin, kind="no_json", text=data.decode("utf-8", "replace"), record=None
        )


def _line(number: int, offset: int, data: bytes) -> Line:
    if len(data) > MAX_LINE_BYTES:
        return Line(number, offset, len(data), None, sha256(data).hexdigest())
    return Line(number, offset, len(data), data)
