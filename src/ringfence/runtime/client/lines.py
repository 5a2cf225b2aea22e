"""Lines of a client's output as records: what is none is told, and nothing raises."""

from abc import abstractmethod

from ringfence.events import Event, Origin, TranscriptNoted
from ringfence.runtime.client.base import Stream
from ringfence.runtime.client.seen import ClientName
from ringfence.runtime.transcript.base import Translator
from ringfence.runtime.transcript.lines import Line
from ringfence.runtime.transcript.record import JSONObject, Record, parse

_SHOWN_BYTES = 2000


class RecordStream(Stream):
    """A client's output, of which each line is a JSON object.

    Args:
        client: Whose output it is.
        translator: Turns records into events.
    """

    def __init__(self, client: ClientName, translator: Translator) -> None:
        super().__init__()
        self._client = client
        self._translator = translator

    def take(self, line: Line) -> list[Event]:
        """The events of a line."""
        items = parse(line)
        records = [item for item in items if isinstance(item, Record)]
        for record in records:
            self.seen.take(self._client, record.value)
        if items and not records:
            self.seen.take(self._client, None)
            if line.data is not None and line.size <= _SHOWN_BYTES:
                return [*self._translator.flush(), self._strange(line.number, line.data)]
        events = [event for item in items for event in self._translator.translate(item)]
        for record in records:
            self._note(record.value)
        return events

    def flush(self) -> list[Event]:
        """A reply of which more may come."""
        return self._translator.flush()

    @abstractmethod
    def _note(self, value: JSONObject) -> None:
        """Note what a record says of the session and of the answer."""

    def _strange(self, number: int, data: bytes) -> Event:
        """What is no JSON, but short: mostly a warning for people."""
        origin = Origin(file=self._translator.file, line=number)
        return TranscriptNoted(
            origin=origin, kind="no_json", text=data.decode("utf-8", "replace"), record=None
        )
