"""Issues as a work source, against a stand-in for GitHub's API: claims, faults, rate limits, strangers."""

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest
from starlette.responses import JSONResponse, Response
from tests.fleet.trigger.source.github_api import TOKEN, Fault, GitHub, mixed, serving

from ringfence.errors import AuthenticationFailed, InfrastructureFault, RingfenceError, UsageError
from ringfence.fleet.trigger.source import Outcome, WorkItem, WorkSource
from ringfence.fleet.trigger.source.github import GitHubSource, GitHubSourceConfig
from ringfence.testing.work_source import CHECKS, Check

pytestmark = pytest.mark.slow

CLAIM = "claim00000001"
ISSUES = "/repos/o/r/issues"


class Repository:
    """A repository with the operations of its owner."""

    def __init__(self, github: GitHub) -> None:
        self.github = github
        self.sources: list[GitHubSource] = []

    async def put(self, title: str, body: str) -> str:
        return self.github.open_issue(title, body, "ready")

    async def words(self, item: WorkItem) -> list[str]:
        return self.github.words(item.id)

    def open(self) -> WorkSource:
        return self.source()

    def source(self, token: str = TOKEN) -> GitHubSource:
        async def give() -> str:
            return token

        config = GitHubSourceConfig("o/r", base_url=self.github.url)
        self.sources.append(GitHubSource(config, give, first_wait_s=0.001))
        return self.sources[-1]


@pytest.fixture
async def place() -> AsyncIterator[Repository]:
    """A repository without issues."""
    with serving(GitHub()) as github:
        repository = Repository(github)
        yield repository
        for source in repository.sources:
            await source.aclose()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conforms(place: Repository, check: Check):
    """Issues meet the contract of work sources."""
    await check(place)


async def test_a_race_has_one_winner_at_most(place: Repository):
    """Of concurrent claims of an issue, however their requests interleave, one wins."""
    place.github.turn = mixed
    for number in range(10):
        id = await place.put("task", "do")
        tokens = [f"claim{number:04}{claimer:04}" for claimer in range(5)]
        claims = await asyncio.gather(*(place.open().claim(id, token) for token in tokens))
        assert len([claim for claim in claims if claim]) == 1
        marks = [words for words in place.github.words(id) if "ringfence-claim" in words]
        assert len(marks) == 1
        assert place.github.labels(id) == {"in progress"}


async def test_an_issue_with_comments_without_end_holds_up_no_other(place: Repository):
    """An issue with too many comments is reported and not claimed; others are not affected."""
    flooded = await place.put("task", "do")
    for _ in range(1000):
        place.github.add_comment(int(flooded), "me too", "stranger", "NONE")
    id = await place.put("task", "do")
    source = place.source()
    assert await source.claim(flooded, CLAIM) is None
    place.github.issues[int(flooded)]["comments"] = 1000
    found = await source.fetch(100)
    assert [item.id for item in found.items] == [id]
    assert [one.reason for one in found.unusable] == ["it has 1000 comments; continue in a new issue"]
    assert await source.claim(id, CLAIM)


async def test_labels_say_how_it_stands(place: Repository):
    """An issue's labels show whether it is claimed, done or failed."""
    source = place.open()
    done, failed = [await place.put("task", "do") for _ in range(2)]
    for number, id in enumerate((done, failed)):
        claim = await source.claim(id, f"claim{number:08}")
        assert claim is not None
        assert place.github.labels(id) == {"in progress"}
        await source.complete(claim, Outcome.DONE if id == done else Outcome.FAILED, "")
    assert (place.github.labels(done), place.github.issues[int(done)]["state"]) == (set(), "open")
    assert (place.github.labels(failed), place.github.issues[int(failed)]["state"]) == ({"failed"}, "open")
    assert [words for id in (done, failed) for words in place.github.words(id)] == []


async def test_an_answer_gives_no_commands(place: Repository):
    """An agent's answer is posted as a code block that it cannot leave, without mentions and commands of bots."""
    id = await place.put("task", "do")
    source = place.source()
    claim = await source.claim(id, CLAIM)
    assert claim is not None
    answer = "@colleague look\n```\n/merge\n  /close\r/lock\n" + "`" * 50 + "\n@dependabot merge a/b"
    await source.complete(claim, Outcome.DONE, answer)
    (words,) = place.github.words(id)
    _, first, *lines, last = words.split("\n")
    assert first == f"{last}text"
    assert set(last) == {"`"}
    assert len(last) > max(map(len, re.findall("`+", "\n".join(lines))))
    assert len(last) < 30
    assert not re.search(r"@\w|(^|[\r\n])\s*/", "\n".join(lines))
    assert "a/b" in lines[-1]


async def test_strangers_cannot_hold_a_claim(place: Repository):
    """A claim in a stranger's comment is ignored; one of the repository's members counts."""
    id = await place.put("task", "do")
    mark = "<!-- ringfence-claim forged00 -->"
    place.github.add_comment(int(id), mark, "stranger", "NONE")
    assert await place.open().claim(id, CLAIM) is not None
    other = await place.put("task", "do")
    place.github.add_comment(int(other), mark, "colleague", "MEMBER")
    assert await place.open().claim(other, CLAIM) is None


async def test_what_is_no_work(place: Repository):
    """Pull requests, closed issues and those without the label are not claimed; invalid issues are reported."""
    pull = place.github.open_issue("pull", "x", "ready", pull_request={})
    closed = place.github.open_issue("closed", "x", "ready", state="closed")
    other = place.github.open_issue("other", "x")
    large = place.github.open_issue("large", "x" * 300_000, "ready")
    empty = place.github.open_issue("no text", None, "ready")
    odd = place.github.open_issue("odd", "x", "ready", created_at="yesterday")
    source = place.open()
    found = await source.fetch(100)
    assert [item.id for item in found.items] == [empty]
    assert [one.id for one in found.unusable] == [large, odd]
    for id in (pull, closed, other, large, odd, "999"):
        assert await source.claim(id, CLAIM) is None
    assert place.github.comments == {}


async def test_many_issues_are_read_page_by_page(place: Repository):
    """Several pages of issues are fetched, up to the limit."""
    for number in range(230):
        place.github.open_issue(f"task {number}", "do", "ready")
    source = place.open()
    assert len((await source.fetch(1000)).items) == 230
    assert len((await source.fetch(150)).items) == 150


SOON = {"retry-after": "0"}
FAULTS = {
    "5xx": Fault("GET", ISSUES, Response("oops", 502)),
    "limit": Fault("GET", ISSUES, JSONResponse({}, 403, SOON)),
    "secondary limit": Fault("GET", ISSUES, JSONResponse({}, 429, SOON)),
    "5xx at a comment": Fault("POST", "comments", Response("oops", 500)),
    "lost answer to a comment": Fault("POST", "comments", Response("oops", 502), is_done_anyway=True),
    "lost answer to a label": Fault("POST", "labels", Response("oops", 502), is_done_anyway=True),
    "lost answer to taking a label away": Fault("DELETE", "labels", Response("", 504), is_done_anyway=True),
    "limit at a comment": Fault("POST", "comments", JSONResponse({}, 403, SOON)),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_faults_that_pass_change_nothing(place: Repository, name: str):
    """A request that fails once, or whose response is lost, is repeated without a second effect."""
    place.github.faults.append(FAULTS[name])
    id = await place.put("task", "do")
    source = place.open()
    claim = await source.claim(id, CLAIM)
    assert claim is not None
    assert len(place.github.words(id)) == 1
    await source.complete(claim, Outcome.DONE, "well")
    assert [words for words in place.github.words(id) if "well" in words] == place.github.words(id)
    assert len(place.github.words(id)) == 1
    assert not place.github.faults


LATER = str(int(time.time()) + 3600)


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ([Response("no", 503)] * 4, InfrastructureFault, "status 503, 4 times"),
        ([Response("{", 200)], InfrastructureFault, "is not JSON"),
        ([Response("<html>", 200)], InfrastructureFault, "is not JSON"),
        ([Response("[" * 100_000, 200)], InfrastructureFault, "is not JSON"),
        ([JSONResponse({"a": 1})], InfrastructureFault, "not a list of objects"),
        ([JSONResponse([1])], InfrastructureFault, "not a list of objects"),
        (
            [JSONResponse({}, 403)],
            UsageError,
            "status 403; check the repository's name and the token's permissions",
        ),
        ([JSONResponse({}, 404)], UsageError, "status 404"),
        ([Response("", 301, {"location": "http://127.0.0.1:1/"})], UsageError, "status 301"),
        (
            [JSONResponse({}, 403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": LATER})],
            InfrastructureFault,
            "the rate is limited for another ",
        ),
        ([JSONResponse({}, 429, {"retry-after": "3600"})], InfrastructureFault, "another 3600 s"),
    ],
)
async def test_faults_that_stay_are_told(place: Repository, answers, error, words):
    """A lasting fault ends in an error of the right kind, after few requests, and without the token."""
    place.github.faults.extend(Fault("GET", ISSUES, answer) for answer in answers)
    with pytest.raises(error) as failed:
        await place.open().fetch(100)
    assert words in str(failed.value)
    assert TOKEN not in str(failed.value)
    assert len(place.github.asked) == len(answers)


async def test_a_wrong_token_is_an_error_of_its_own(place: Repository):
    """A token that is rejected is not tried again, and not shown."""
    with pytest.raises(AuthenticationFailed, match="the token is not accepted") as failed:
        await place.source("wrong-token").fetch(100)
    assert "wrong-token" not in str(failed.value)
    assert len(place.github.asked) == 1


async def test_a_server_that_is_not_there(place: Repository):
    """The error of an unreachable server advises to try again later."""
    place.github.url = "http://127.0.0.1:1"
    with pytest.raises(InfrastructureFault, match="try again later"):
        await place.open().fetch(100)


@pytest.mark.parametrize("id", ["1/../../user", "", "x", "-1", "9" * 30, "\u0661"])
async def test_only_numbers_are_issues(place: Repository, id: str):
    """An id that is no number is refused, and never part of a path."""
    with pytest.raises(UsageError, match="is not the number"):
        await place.open().claim(id, CLAIM)
    assert place.github.asked == []


@pytest.mark.parametrize("name", ["", "o", "o/r/x", "o/../x", "o/r?x", "o /r"])
def test_what_is_no_repository_is_refused(name: str):
    """A repository's name with other path segments is refused."""
    with pytest.raises(RingfenceError, match="write owner/name"):
        GitHubSourceConfig(name)
