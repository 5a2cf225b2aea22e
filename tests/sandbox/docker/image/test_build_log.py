"""What a build writes is cut into lines, whoever wrote it and however it arrives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.docker.image.build import BuildLog

BUILT = [
    {"stream": "Step 1/3 : FROM debian:1 AS base\n"},
    {"stream": " ---> aaaaaaaaaaaa\n"},
    {"stream": 'Step 2/3 : RUN ["true"]\n'},
    {"stream": " ---> Using cache\n"},
    {"stream": " ---> bbbbbbbbbbbb\n"},
    {"stream": 'Step 3/3 : RUN ["make"]\n'},
    {"stream": " ---> Running in cccccccccccc\n"},
    {"stream": "\u001b[91mmaking\u001b[0m\n"},
    {"stream": "Removing intermediate container cccccccccccc\n"},
    {"stream": " ---> dddddddddddd\n"},
    {"aux": {"ID": "sha256:dddd"}},
]
"""Captured from Docker 20.10.24, shortened."""


@pytest.fixture
def told() -> list[str]:
    """The lines that somebody who watches gets."""
    return []


@pytest.fixture
def transcript(told: list[str]) -> BuildLog:
    """A transcript that tells."""
    return BuildLog(told.append)


def test_what_was_made_is_known(transcript):
    """Images of this build are told from those that were there."""
    for message in BUILT:
        transcript.take(message)
    assert transcript.made == ["dddddddddddd"]
    assert transcript.step == 'RUN ["make"]'


def test_podman_says_it_its_way(transcript):
    """Podman's words (4.3.1) are understood too."""
    for line in ("STEP 1/2: FROM debian:1", 'STEP 2/2: RUN ["make"]', "--> 3d1a9f7c21e"):
        transcript.take({"stream": f"{line}\n"})
    assert (transcript.step, transcript.made) == ('RUN ["make"]', ["3d1a9f7c21e"])


def test_colours_and_redrawn_lines_are_taken_off(transcript, told):
    """Of a progress bar the last state is left."""
    transcript.write("\u001b[91mone\u001b[0m\n 10%\r 50%\r100%\n")
    assert told == ["one", "100%"]


def test_pulling_is_told(transcript, told):
    """States of a pull are lines; its progress bars are not."""
    transcript.take({"status": "Pulling from library/debian", "id": "1"})
    transcript.take({"status": "Downloading", "progressDetail": {"current": 1}, "progress": "[>]", "id": "2"})
    assert told == ["1: Pulling from library/debian"]


def test_what_has_no_end_is_bounded(transcript, told):
    """A line without end takes no memory, and is told short."""
    for _ in range(100):
        transcript.write("x" * 10_000)
    transcript.write("\n")
    assert [len(line) for line in told] == [500]
    assert len(transcript.last_lines) == 500


@given(st.text(alphabet="ab \n\r->0", max_size=200), st.data())
def test_how_it_is_cut_does_not_matter(text, data):
    """The same text gives the same lines, in one piece or in many."""
    whole: list[str] = []
    parts: list[str] = []
    BuildLog(whole.append).write(text)
    pieces, rest = BuildLog(parts.append), text
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        pieces.write(rest[:count])
        rest = rest[count:]
    assert parts == whole
