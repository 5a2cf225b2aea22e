"""The output of a build is split into lines, for each engine and for any size of chunks."""

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
    """The lines that are reported to a watching user."""
    return []


@pytest.fixture
def transcript(told: list[str]) -> BuildLog:
    """A transcript that reports its lines."""
    return BuildLog(told.append)


def test_images_of_the_build_are_listed(transcript):
    """Images that this build made are distinguished from older ones."""
    for message in BUILT:
        transcript.take(message)
    assert transcript.made == ["dddddddddddd"]
    assert transcript.step == 'RUN ["make"]'


def test_podman_output_is_understood(transcript):
    """The output of Podman (4.3.1) is understood too."""
    for line in ("STEP 1/2: FROM debian:1", 'STEP 2/2: RUN ["make"]', "--> 3d1a9f7c21e"):
        transcript.take({"stream": f"{line}\n"})
    assert (transcript.step, transcript.made) == ('RUN ["make"]', ["3d1a9f7c21e"])


def test_colours_and_redrawn_lines_are_removed(transcript, told):
    """Only the last state of a progress bar is kept."""
    transcript.write("\u001b[91mone\u001b[0m\n 10%\r 50%\r100%\n")
    assert told == ["one", "100%"]


def test_states_of_a_pull_are_reported(transcript, told):
    """The states of a pull are reported as lines, its progress bars are not."""
    transcript.take({"status": "Pulling from library/debian", "id": "1"})
    transcript.take({"status": "Downloading", "progressDetail": {"current": 1}, "progress": "[>]", "id": "2"})
    assert told == ["1: Pulling from library/debian"]


def test_endless_line_is_bounded(transcript, told):
    """A line without an end takes bounded memory, and is shortened."""
    for _ in range(100):
        transcript.write("x" * 10_000)
    transcript.write("\n")
    assert [len(line) for line in told] == [500]
    assert len(transcript.last_lines) == 500


@given(st.text(alphabet="ab \n\r->0", max_size=200), st.data())
def test_lines_do_not_depend_on_chunks(text, data):
    """The same text gives the same lines, in one chunk or in many."""
    whole: list[str] = []
    parts: list[str] = []
    BuildLog(whole.append).write(text)
    pieces, rest = BuildLog(parts.append), text
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        pieces.write(rest[:count])
        rest = rest[count:]
    assert parts == whole
