"""What every event goes through."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.events import Event, JobStarted, TextStreamed, ThinkingStreamed
from ringfence.job.recorder import Recorder
from ringfence.journal import Journal, new_run_id, read
from ringfence.secret import Redactor

pytestmark = pytest.mark.anyio
SECRET = "s3cr3t-value"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal."""
    run_id = new_run_id()
    with Journal.create(tmp_path / run_id, run_id) as made:
        yield made


class Seen:
    """A view that keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def show(self, event: Event) -> None:
        self.events.append(event)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextStreamed))


@given(
    words=st.lists(st.sampled_from([SECRET, SECRET[:5], "s3", "hello ", "s"]), max_size=12),
    cuts=st.lists(st.integers(1, 6), max_size=60),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
async def test_a_secret_in_pieces_is_not_shown(journal: Journal, words: list[str], cuts: list[int]):
    """However a stream is cut, no secret is shown, and nothing else is lost."""
    seen, text = Seen(), "".join(words)
    recorder = Recorder(journal, Redactor([SECRET]), seen.show)
    rest = text
    for cut in [*cuts, len(text) + 1]:
        piece, rest = rest[:cut], rest[cut:]
        await recorder.emit(TextStreamed(text=piece))
    await recorder.emit(JobStarted())
    assert seen.text == Redactor([SECRET]).redact(text)


async def test_text_is_shown_before_what_follows_it(journal: Journal):
    """What was held back comes before the next event, and before another kind of text."""
    seen = Seen()
    recorder = Recorder(journal, Redactor([SECRET]), seen.show)
    await recorder.emit(ThinkingStreamed(text="maybe s3"))
    await recorder.emit(TextStreamed(text="well s"))
    await recorder.emit(JobStarted())
    assert [type(event).__name__ for event in seen.events] == [
        *("ThinkingStreamed", "ThinkingStreamed", "TextStreamed", "TextStreamed", "JobStarted")
    ]


async def test_it_is_written_before_it_is_shown(journal: Journal):
    """A view that looks into the journal finds the event there."""
    found: list[bool] = []

    async def look(event: Event) -> None:
        found.append(any(record.event == event for record in read(journal.run_dir)))

    await Recorder(journal, Redactor(), look).emit(JobStarted())
    assert found == [True]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokenPipeError(), "stopped: nobody reads the output any more"),
        (KeyError("a"), "stopped: on_event raised KeyError('a')"),
    ],
)
async def test_a_view_that_raises_is_reported_once_and_the_record_goes_on(
    journal: Journal, error: Exception, reason: str
):
    """What a view raises is reported once with a reason; the journal is written all the same."""
    reasons: list[str] = []

    async def broken(event: Event) -> None:
        raise error

    recorder = Recorder(journal, Redactor(), broken, on_view_error=reasons.append)
    await recorder.emit(JobStarted())
    await recorder.emit(JobStarted())
    written = [record for record in read(journal.run_dir) if isinstance(record.event, JobStarted)]
    assert (reasons, len(written), recorder.view_error) == ([reason], 2, error)
