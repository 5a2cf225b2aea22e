"""What comes from inside is anything at all: no reader breaks on it, and none takes it for green."""

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.check.red_reason import Project, broken_because, cause_in
from ringfence.check.report_stream import MAX_BYTES, ReportBuilder, ReportConnection
from ringfence.check.runner.cargo import read_cargo
from ringfence.check.runner.go import read_go
from ringfence.check.runner.maven import UnsafeXml, parse_surefire, read_maven

OUTCOMES = ("passed", "failed", "error", "skipped")
BEGIN = {"kind": "begin", "runner": "pytest"}
END = {"kind": "end", "exit": 0}
NAMES = st.sampled_from(["a", "b", "c"])
RESULTS = st.lists(st.tuples(NAMES, st.sampled_from(OUTCOMES)), max_size=12)
LINES = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from(
            [
                "     Running tests/a.rs (target/x)",
                "   Doc-tests calc",
                "running 1 test",
                "test a ... ok",
                "test a ... FAILED",
                "---- a stdout ----",
                "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured",
                "error[E0425]: cannot find",
                "error: no",
                " --> tests/a.rs:1:2",
                "FAIL\tx [build failed]",
                "./a_test.go:1:2: undefined: X",
                "[ERROR] /a/B.java:[1,2] cannot find symbol",
                "[INFO] Tests run: 999999999999, Failures: 0, Errors: 0, Skipped: 0",
                '{"Action":"pass","Package":"p","Test":"T"}',
                '{"Action":"output","Package":"p","Test":"T","Output":"x\\n"}',
                '{"Action":"run","Package":"p","Test":"T"}',
                '{"Action":"fail","Package":"p"}',
                '{"Action":7}',
                "[" * 3000,
            ]
        ),
    ),
    max_size=25,
)


def line(message: dict[str, Any]) -> bytes:
    """One message."""
    return json.dumps(message).encode() + b"\n"


def told(name: str, outcome: str) -> dict[str, Any]:
    """A result."""
    return {"kind": "result", "id": name, "outcome": outcome, "file": None, "detail": "", "cause": None}


def heard(data: bytes, *cuts: int) -> ReportBuilder:
    """What is taken of one connection's bytes, cut into pieces anywhere."""
    gathered = ReportBuilder()
    session = ReportConnection(gathered)
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    for start, end in itertools.pairwise(places):
        session.feed(data[start:end])
    session.close()
    return gathered


def test_all_that_was_altered_is_kept_by_its_full_name() -> None:
    """A name that was cut off or left out would be hidden by those that are altered on the base as well."""
    names = [f"{'x' * 400}.{number}" for number in range(100)]
    gathered = heard(line(BEGIN) + line({"kind": "altered", "names": names}) + line(END))
    assert (gathered.altered, gathered.problems) == ({*names}, [])


def test_too_much_that_was_altered_is_a_problem() -> None:
    """A process cannot fill the report with names."""
    messages = [
        line({"kind": "altered", "names": [f"{part}.{number}" for number in range(6000)]}) for part in "ab"
    ]
    gathered = heard(line(BEGIN) + b"".join(messages) + line(END))
    assert (len(gathered.altered), gathered.problems) == (
        10_000,
        ["more than 10000 altered functions were reported"],
    )


@settings(max_examples=examples(200))
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    """Whatever is sent, it is taken or refused; without a proper end it is a problem."""
    gathered = heard(data)
    assert gathered.problems
    assert not gathered.results


@settings(max_examples=examples(200))
@given(RESULTS, st.lists(st.integers(0, 10_000), max_size=5))
def test_the_worst_holds(results: list[tuple[str, str]], cuts: list[int]) -> None:
    """However the bytes are cut, the worst that was told of a test is what holds."""
    data = b"".join(line(message) for message in (BEGIN, *(told(*each) for each in results), END))
    gathered = heard(data, *cuts)
    ranks = {outcome: rank for rank, outcome in enumerate(("passed", "skipped", "failed", "error"))}
    expected = {
        name: max((each for who, each in results if who == name), key=ranks.__getitem__)
        for name, _ in results
    }
    assert {name: each.outcome for name, each in gathered.results.items()} == expected
    assert gathered.problems == []


@settings(max_examples=examples(200))
@given(RESULTS, st.data())
def test_what_is_damaged_is_a_problem(results: list[tuple[str, str]], data: st.DataObject) -> None:
    """A report of which a line is missing at the end, or is doubled or cut where it begins, is a problem."""
    lines = [line(BEGIN), *(line(told(*each)) for each in results), line(END)]
    way = data.draw(
        st.sampled_from(["no end", "two ends", "after the end", "no begin", "two begins", "half a line"])
    )
    damaged = {
        "no end": lines[:-1],
        "two ends": [*lines, line(END)],
        "after the end": [*lines, line(told("x", "passed"))],
        "no begin": lines[1:],
        "two begins": [lines[0], *lines],
        "half a line": [*lines[:-1], lines[-1][:-3]],
    }[way]
    assert heard(b"".join(damaged)).problems


def test_too_much_is_refused() -> None:
    """A line without an end, and more bytes than one report may have, are refused and no longer kept."""
    gathered = ReportBuilder()
    session = ReportConnection(gathered)
    session.feed(line(BEGIN))
    session.feed(b"x" * 70_000)
    assert session.is_refused
    for _ in range(MAX_BYTES // 60_000 + 1):
        other = ReportConnection(gathered)
        other.feed(b"x" * 60_000)
    assert other.is_refused
    assert len(gathered.problems) <= 20


@settings(max_examples=examples(200))
@given(LINES)
def test_any_output_of_a_compiled_runner(lines: list[str]) -> None:
    """Whatever go, cargo or Maven seem to print, their readers come to an end with results that are bounded."""
    text = "\n".join(lines)
    go, cargo, maven = ReportBuilder(), ReportBuilder(), ReportBuilder()
    read_go(text, go, tests={}, module="m")
    read_cargo(text, cargo)
    read_maven(text, maven, "/w")
    for gathered in (go, cargo, maven):
        assert all(len(each.detail) < 4100 and len(name) <= 900 for name, each in gathered.results.items())


CASES = st.lists(
    st.tuples(
        NAMES, st.sampled_from([None, "failure", "error", "skipped"]), st.text(alphabet="a<&>é", max_size=9)
    ),
    max_size=6,
)


@settings(max_examples=examples(200))
@given(CASES)
def test_surefire(cases: list[tuple[str, str | None, str]]) -> None:
    """Each case of a report is read with its outcome, whatever its text."""
    from xml.sax.saxutils import escape, quoteattr

    body = "".join(
        f"<testcase classname={quoteattr(text)} name={quoteattr(name)}>"
        + (f"<{kind} type='t'>{escape(text)}</{kind}>" if kind else "")
        + "</testcase>"
        for name, kind, text in cases
    )
    found, count = parse_surefire(f'<testsuite tests="{len(cases)}">{body}</testsuite>'.encode())
    words = {None: "passed", "failure": "failed", "error": "error", "skipped": "skipped"}
    assert [(each[0], each[1], each[2]) for each in found] == [
        (text, name, words[kind]) for name, kind, text in cases
    ]
    assert count == len(cases)


@settings(max_examples=examples(200))
@given(st.binary(max_size=200) | st.text(alphabet="<>/testsuicae&;![]\"'= ", max_size=80).map(str.encode))
def test_any_xml(data: bytes) -> None:
    """What is no report is refused by name, or holds no test."""
    try:
        cases, _ = parse_surefire(data)
    except UnsafeXml:
        return
    assert cases == []


@settings(max_examples=examples(200))
@given(
    st.text(max_size=200) | st.from_regex(r"(E   )?\w+(Error|Exception)( \[\w+\])?(: .*)?", fullmatch=True)
)
def test_any_traceback(detail: str) -> None:
    """Whatever a failure's text is, it is judged."""
    from ringfence.check import TestResult

    cause = cause_in(detail)
    why = broken_because(TestResult("a", "error", "a", detail, cause), Project())
    assert why is None or why
