"""What the daemon and its workers say, as it comes to their stderr."""

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.cli.fleet.log import Log
from ringfence.fleet.config.model import LogFormat
from ringfence.secret.redact import register_secrets

SECRET = "hunter2-of-this-test"


@pytest.mark.parametrize("form", ["text", "json"])
def test_text_of_agents_makes_no_line_of_its_own(form: LogFormat, capsys: pytest.CaptureFixture[str]):
    """Escapes, newlines and direction overrides are spelled out, in fields as in lines."""
    bad = "a\x1b[31m\nringfence: all is well\u202e\x7f\ud800"
    Log(form)(bad, event="hook.failed", job="j1", reason=bad)
    said = capsys.readouterr().err
    assert said.isascii()
    assert said[:-1].isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_taken_out(form: LogFormat, capsys: pytest.CaptureFixture[str]):
    """A secret that this process has had is in no line and in no field."""
    register_secrets([SECRET])
    Log(form, bound=SECRET)(f"it says {SECRET}", event="hook.failed", reason=f"<{SECRET}>", many=[SECRET])
    said = capsys.readouterr().err
    assert (SECRET in said, "[redacted]" in said) == (False, True)


def test_programs_get_an_event_with_its_fields(capsys: pytest.CaptureFixture[str]):
    """One JSON object a line: time, level, event, the line for people, and what it is about."""
    Log("json", fleet="c")("a worker ended", event="worker.ended", code=-9, pause_s=0.5)
    Log("json")("it is up", event="fleet.ready", level="info")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "event": "worker.ended",
        "message": "a worker ended",
        "fleet": "c",
        "code": -9,
        "pause_s": 0.5,
    }
    assert (second["level"], second["event"]) == ("info", "fleet.ready")


def test_people_get_a_line_that_says_which_job(capsys: pytest.CaptureFixture[str]):
    """Time, who speaks, which job, and what: fields are for programs."""
    Log("text")("hook on_limit: refused", event="hook.failed", job="j1", hook="on_limit")
    said = capsys.readouterr().err
    assert said.partition(" ")[2] == "ringfence: job j1: hook on_limit: refused\n"


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200), st.integers() | st.floats())
def test_whatever_is_said_is_one_object(text: str, number: float):
    """No text and no number breaks a line: each can be read again."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        Log("json")(text, event="run.noted", reason=text, number=number)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line, parse_constant=int)["message"] == text


def test_long_words_are_cut(capsys: pytest.CaptureFixture[str]):
    """Nobody fills the log with one line."""
    Log("json")("x" * 1_000_000, event="run.noted", reason="y" * 1_000_000)
    assert len(capsys.readouterr().err) < 10_000
