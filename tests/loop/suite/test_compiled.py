"""Go, Rust and Java: what their runners printed once, read again; and the real ones where they are there."""

import shutil
from pathlib import Path

import pytest
from tests.loop.suite.conftest import Run

from ringfence.check import Report, TestResult, red_for_the_right_reason
from ringfence.check.red_reason import Project, may_hold_tests
from ringfence.check.report_stream import ReportBuilder
from ringfence.check.runner.cargo import read_cargo
from ringfence.check.runner.go import read_go
from ringfence.check.runner.maven import UnsafeXml, parse_surefire, read_maven, read_surefire

RECORDED = Path(__file__).parent / "recorded"
GO = "example.com/calc"
SOURCES = {"calc.CalcTest": "src/test/java/calc/CalcTest.java"}


def recorded(name: str) -> str:
    """What a runner printed."""
    return (RECORDED / name).read_text()


def outcomes(gathered: ReportBuilder) -> dict[str, str]:
    """Id to outcome."""
    return {name: each.outcome for name, each in gathered.results.items()}


def complaints(gathered: ReportBuilder, file: str, *files: str) -> list[str]:
    """Why a file's tests are not red for the right reason."""
    report = Report(gathered.results, is_complete=True, exit_code=1, ended_by="exit")
    return red_for_the_right_reason(report, [file], None, project=Project(files=[file, *files]))


def test_go() -> None:
    """Of `go test -json` each test's outcome and file are known, and of a package that was not built, why."""
    gathered = ReportBuilder()
    tests = {
        ":TestRight": "calc_test.go",
        ":TestWrong": "calc_test.go",
        "panics:TestFirst": "panics/a_test.go",
    }
    read_go(recorded("go.txt"), gathered, tests=tests, module=GO)
    assert outcomes(gathered) == {
        f"{GO}.TestRight": "passed",
        f"{GO}.TestWrong/one": "passed",
        f"{GO}.TestWrong/two": "failed",
        f"{GO}.TestWrong": "failed",
        f"{GO}.TestLeftOut": "skipped",
        f"{GO}/panics.TestFirst": "failed",
        **{f"{name}/a_test.go": "error" for name in ("foreign", "nopkg", "syntax", "undefined")},
    }
    assert gathered.results[f"{GO}.TestWrong/two"].file == "calc_test.go"
    assert "got 3, want 4" in gathered.results[f"{GO}.TestWrong/two"].detail


def test_go_of_later_releases() -> None:
    """Later releases tell of a build that failed in events of their own."""
    lines = (
        '{"ImportPath":"example.com/calc/undefined [x.test]","Action":"build-output","Output":"# x\\n"}\n'
        '{"ImportPath":"x","Action":"build-output","Output":"undefined/a_test.go:6:5: undefined: Sub\\n"}\n'
        '{"Action":"fail","Package":"example.com/calc/undefined","Elapsed":0,"FailedBuild":"x"}\n'
    )
    gathered = ReportBuilder()
    read_go(lines, gathered, tests={}, module=GO)
    assert outcomes(gathered) == {"undefined/a_test.go": "error"}


@pytest.mark.parametrize(
    ("package", "said"),
    [("undefined", ""), ("nopkg", ""), ("syntax", "cannot be compiled"), ("foreign", "github.com/acme")],
)
def test_red_of_go(package: str, said: str) -> None:
    """In Go what is undefined, or of the module, is to be built; a parser's error and a foreign package are not."""
    gathered = ReportBuilder()
    read_go(recorded("go.txt"), gathered, tests={}, module=GO)
    found = complaints(gathered, f"{package}/a_test.go")
    assert [said in each for each in found] == ([True] if said else []), found


def test_cargo() -> None:
    """Of `cargo test` each test is known by its binary, and the summaries fit."""
    gathered = ReportBuilder()
    read_cargo(recorded("cargo-run.txt"), gathered)
    assert outcomes(gathered) == {
        "src/lib.rs::tests::left_out": "skipped",
        "src/lib.rs::tests::right": "passed",
        "tests/adding.rs::result": "failed",
        "tests/adding.rs::wrong": "failed",
        "tests/adding.rs::panics": "passed",
        "doc calc::src/lib.rs - (line 1)": "passed",
    }
    assert "left: 3" in gathered.results["tests/adding.rs::wrong"].detail
    assert gathered.problems == []


def test_a_binary_that_leaves() -> None:
    """A test binary that ends without its summary is not complete, whatever its exit code."""
    gathered = ReportBuilder()
    read_cargo(recorded("cargo-exits.txt"), gathered)
    assert gathered.problems == ["tests/exits.rs broke off before its summary"]


def test_a_line_that_looks_like_a_result() -> None:
    """A result that the code under test printed does not fit the summary."""
    gathered = ReportBuilder()
    text = recorded("cargo-run.txt").replace("running 3 tests\n", "running 3 tests\ntest made_up ... ok\n")
    read_cargo(text, gathered)
    assert [problem.split(":")[0] for problem in gathered.problems] == [
        "the summary of tests/adding.rs does not match its tests"
    ]


@pytest.mark.parametrize(
    ("case", "file", "said"),
    [
        ("absent", "tests/absent.rs", ""),
        ("absent2", "tests/absent2.rs", ""),
        ("syntax", "tests/syntax.rs", "unclosed delimiter"),
        ("foreign", "tests/foreign.rs", "'serde' is not installed"),
    ],
)
def test_red_of_cargo(case: str, file: str, said: str) -> None:
    """In Rust what cannot be found in the crate is to be built; a parser's error and a foreign crate are not."""
    gathered = ReportBuilder()
    read_cargo(recorded(f"cargo-{case}.txt"), gathered)
    found = complaints(gathered, file, "src/lib.rs")
    assert [said in each for each in found] == ([True] if said else []), found


def test_maven() -> None:
    """Of Surefire's report each test is known with its file and why it failed, and Maven's totals fit."""
    gathered = ReportBuilder()
    read_surefire((RECORDED / "TEST-calc.CalcTest.xml").read_bytes(), gathered, SOURCES)
    read_maven(recorded("maven-run.txt"), gathered, "/home/agent/calc")
    assert outcomes(gathered) == {
        "calc.CalcTest.broken": "error",
        "calc.CalcTest.leftOut": "skipped",
        "calc.CalcTest.right": "passed",
        "calc.CalcTest.wrong": "failed",
    }
    assert {each.file for each in gathered.results.values()} == {"src/test/java/calc/CalcTest.java"}
    assert gathered.problems == []


def test_maven_without_reports() -> None:
    """Tests that Maven counted and nobody reported are a problem."""
    gathered = ReportBuilder()
    read_maven(recorded("maven-run.txt"), gathered, "/home/agent/calc")
    assert gathered.problems == ["Maven counts 4 tests, and there are no reports"]


@pytest.mark.parametrize(("case", "said"), [("absent", "com.acme"), ("syntax", "illegal start of type")])
def test_red_of_maven(case: str, said: str) -> None:
    """In Java a class or a package of the project's is to be built; another's package and a parser's error are not."""
    gathered = ReportBuilder()
    read_maven(recorded(f"maven-{case}.txt"), gathered, "/home/agent/calc")
    found = complaints(gathered, "src/test/java/calc/SubTest.java", "src/main/java/calc/Calc.java")
    assert [said in each for each in found] == [True], found


def test_red_of_maven_without_what_is_foreign() -> None:
    """A package that is the project's, and absent, is to be built."""
    gathered = ReportBuilder()
    text = "\n".join(line for line in recorded("maven-absent.txt").splitlines() if "com.acme" not in line)
    read_maven(text, gathered, "/home/agent/calc")
    assert complaints(gathered, "src/test/java/calc/SubTest.java", "src/main/java/calc/Calc.java") == []


LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>
<testsuite tests="1"><testcase classname="a" name="b">&b;</testcase></testsuite>"""
OUTSIDE = (
    b"""<?xml version="1.0"?><!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite tests="0"></testsuite>"""
)


@pytest.mark.parametrize(
    "data", [LAUGHS, OUTSIDE, b"<a>" * 1000, b"<testsuite", b"", b"\xff\xfe\x00", b"<a>&x;</a>"]
)
def test_xml_that_is_refused(data: bytes) -> None:
    """A document type, an entity, a depth without an end, or what is no document is refused, and is a problem."""
    with pytest.raises(UnsafeXml):
        parse_surefire(data)
    gathered = ReportBuilder()
    read_surefire(data, gathered, {})
    assert [problem.split(":")[0] for problem in gathered.problems] == [
        "a report of Surefire's cannot be read"
    ]


async def test_reports_of_an_earlier_run_are_not_read(run: Run) -> None:
    """What lies where reports are written is removed first; what the command writes is read."""
    files = {
        "pom.xml": "<project/>",
        "TEST-calc.CalcTest.xml": recorded("TEST-calc.CalcTest.xml"),
        "printed": recorded("maven-run.txt"),
        "src/test/java/calc/CalcTest.java": "",
        "target/surefire-reports/TEST-old.xml": '<testsuite tests="1"><testcase classname="o" name="o"/></testsuite>',
    }
    command = "mkdir -p target/surefire-reports; cp TEST-*.xml target/surefire-reports; cat printed; exit 1"
    report = await run(files, runner="maven", command=command)
    assert sorted(report.results) == [
        f"calc.CalcTest.{name}" for name in ("broken", "leftOut", "right", "wrong")
    ]
    assert (report.is_complete, report.is_green) == (True, False)


GO_FILES = {
    "go.mod": "module example.com/calc\n\ngo 1.19\n",
    "calc.go": "package calc\n\nfunc Add(a, b int) int { return a + b }\n",
    "calc_test.go": (
        'package calc\n\nimport "testing"\n\nfunc TestRight(t *testing.T) {\n'
        "\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n"
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go")
async def test_real_go(run: Run) -> None:
    """A real `go test` is green with its canary taken out; code that leaves before the tests is found."""
    report = await run(GO_FILES, runner="go", command="go test ./...")
    assert (report.is_green, report.problems) == (True, ())
    assert report.results == {
        "example.com/calc.TestRight": TestResult("example.com/calc.TestRight", "passed", "calc_test.go")
    }
    left = GO_FILES | {"exit.go": 'package calc\n\nimport "os"\n\nfunc init() { os.Exit(0) }\n'}
    report = await run(left, runner="go", command="go test ./...")
    assert not report.is_green


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo on this machine")
async def test_real_cargo(run: Run) -> None:
    """A real `cargo test` is told test by test, by rustup's stand-in for cargo too."""
    files = {
        "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a + b }\n",
        "tests/adding.rs": "#[test]\nfn right() { assert_eq!(calc::add(1, 2), 3); }\n",
    }
    report = await run(files, runner="cargo", command="cargo test --offline")
    assert (report.is_green, report.problems, list(report.results)) == (True, (), ["tests/adding.rs::right"])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo on this machine")
async def test_a_helper_of_real_cargo(run: Run) -> None:
    """A module beside the tests that lacks what is to be built is the right red, and is known to hold no test."""
    helper = "pub fn check(a: i32, b: i32, sum: i32) { assert_eq!(calc::add(a, b), sum); }\n"
    files = {
        "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "//! Sums.\n",
        "tests/common/mod.rs": helper,
        "tests/adding.rs": "mod common;\n#[test]\nfn right() { common::check(1, 2, 3); }\n",
    }
    report = await run(files, runner="cargo", command="cargo test --offline")
    written = ["tests/adding.rs", "tests/common/mod.rs"]
    assert red_for_the_right_reason(report, written, None, project=Project(files=files)) == []
    assert [may_hold_tests(path, files[path].encode()) for path in written] == [True, False]
