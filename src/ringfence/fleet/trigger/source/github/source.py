"""A source of work in GitHub issues with a label. GitHub's API has no locks, so comments elect the owner of a claim.

A claimer adds a comment with its token and reads all comments again: the claim with the lowest comment id wins, and the
others delete theirs. Ids only grow, and a comment exists before its response is sent, so two claimers cannot both be
first. Only claims of the token's own user and of members of the repository count, since everyone may comment.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.trigger.source.base import (
    BODY_LIMIT_BYTES,
    Claim,
    Fetched,
    Outcome,
    Unusable,
    WorkItem,
    WorkSource,
    cut,
)
from ringfence.fleet.trigger.source.github.api import GitHubApi, Token

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9-]{1,100}/[A-Za-z0-9._-]{1,100}", re.ASCII)
_CLAIM: Final = re.compile(r"\A<!-- ringfence-claim ([A-Za-z0-9]{8,64}) -->", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9]{8,64}", re.ASCII)
_PAGE: Final = 100
_MAX_PAGES: Final = 10
_MAX_COMMENTS: Final = _PAGE * _MAX_PAGES
_GONE: Final = frozenset({404, 410})
_MEMBERS: Final = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_COMMAND: Final = re.compile(r"((?:^|[\r\n])[^\S\r\n]*+)/")
_MAX_BACKTICKS: Final = 20
"""Longer runs of backticks are broken up, so that the fence around them stays short."""
_TITLE_LIMIT_BYTES: Final = 1000
_FAILED: Final = "failed"
"""The label of issues whose work failed."""

_Json = dict[str, Any]


@dataclass(frozen=True)
class GitHubSourceConfig:
    """The configuration of a source.

    Raises:
        UsageError: The name of the repository is not valid.
    """

    repository: str
    """`owner/name`."""
    label: str = "ready"
    """The label of issues that can be claimed; a claim removes it."""
    claim_label: str = "in progress"
    """The label of claimed issues."""
    base_url: str = "https://api.github.com"

    def __post_init__(self) -> None:
        if not _REPOSITORY.fullmatch(self.repository):
            raise UsageError(f"{self.repository[:200]!r} is not a repository; write owner/name")


class _FloodedError(UsageError):
    """An issue has more comments than are read, so the owner of its claim is not known."""


class GitHubSource(WorkSource):
    """Issues of a repository. The token needs to read and write issues, and nothing else.

    Args:
        config: The repository and the labels.
        token: Returns the token.
        first_wait_s: The pause before the first retry of a request, in seconds.
    """

    def __init__(self, config: GitHubSourceConfig, token: Token, *, first_wait_s: float = 0.5) -> None:
        self._config = config
        self._api = GitHubApi(config.base_url, token, first_wait_s=first_wait_s)
        self._issues = f"/repos/{config.repository}/issues"

    async def aclose(self) -> None:
        """See `WorkSource`."""
        await self._api.aclose()

    async def fetch(self, limit: int) -> Fetched:
        """See `WorkSource`. Pull requests are excluded."""
        items: list[WorkItem] = []
        unusable: list[Unusable] = []
        for page in range(1, _MAX_PAGES + 1):
            query = {"labels": self._config.label, "state": "open", "sort": "created", "direction": "asc"}
            answer = await self._api.request(
                "GET", self._issues, query={**query, "per_page": _PAGE, "page": page}
            )
            found = _listed(answer.body)
            for issue in found:
                if "pull_request" in issue or self._config.claim_label in _labels(issue):
                    continue
                item = _item(issue)
                if isinstance(item, Unusable):
                    unusable.append(item)
                elif len(items) < limit:
                    items.append(item)
                else:
                    return Fetched(tuple(items), tuple(unusable))
            if len(found) < _PAGE:
                break
        return Fetched(tuple(items), tuple(unusable))

    async def claim(self, id: str, token: str) -> Claim | None:
        """See `WorkSource`."""
        if not _TOKEN.fullmatch(token):
            raise UsageError(f"claim token {token[:80]!r} must be 8 to 64 letters and digits")
        path = self._path(id)
        try:
            claims = await self._claims(path)
        except _FloodedError:
            return None  # it must not block other issues; `fetch` reports it
        own = [comment for comment in claims if _claim_of(comment) == token]
        if not own and (claims or not await self._is_free(path)):
            return None
        if not own:
            await self._post_comment(path, f"<!-- ringfence-claim {token} -->\nWork on this has begun.")
            claims = await self._claims(path)
        first = min(claims, key=_number, default=None)
        if first is None or _claim_of(first) != token:
            await self._withdraw(path, token)
            return None
        issue = (await self._api.request("GET", path, allowed=_GONE)).body
        item = _item(issue) if _is_issue(issue) else None
        was_claimed = bool(own) and _is_issue(issue) and self._config.claim_label in _labels(issue)
        if not isinstance(item, WorkItem) or not (was_claimed or self._is_claimable(issue)):
            await self._withdraw(path, token)
            return None
        await self._label(path, self._config.claim_label)
        await self._unlabel(path, self._config.label)
        return Claim(item, token)

    async def complete(self, claim: Claim, outcome: Outcome, text: str) -> None:
        """See `WorkSource`."""
        path = self._path(claim.item.id)
        if text:
            await self._comment(claim, text, key=f"end-{outcome.value}")
        if not await self._has_claim(path, claim.token):
            return
        if outcome is Outcome.FAILED:
            await self._label(path, _FAILED)
        await self._unlabel(path, self._config.claim_label)
        await self._withdraw(path, claim.token)

    def _path(self, id: str) -> str:
        if not (id.isascii() and id.isdigit() and len(id) <= 18):
            raise UsageError(f"{id[:80]!r} is not the number of an issue")
        return f"{self._issues}/{id}"

    async def _is_free(self, path: str) -> bool:
        issue = (await self._api.request("GET", path, allowed=_GONE)).body
        return self._is_claimable(issue)

    def _is_claimable(self, issue: Any) -> bool:
        if not _is_issue(issue) or issue.get("state") != "open" or "pull_request" in issue:
            return False
        labels = _labels(issue)
        return self._config.label in labels and self._config.claim_label not in labels

    async def _has_claim(self, path: str, token: str) -> bool:
        return any(_claim_of(comment) == token for comment in await self._claims(path))

    async def _comments(self, path: str) -> list[_Json]:
        comments: list[_Json] = []
        for page in range(1, _MAX_PAGES + 1):
            answer = await self._api.request(
                "GET", f"{path}/comments", query={"per_page": _PAGE, "page": page}, allowed=_GONE
            )
            if answer.status in _GONE:
                return []
            found = _listed(answer.body)
            comments += found
            if len(found) < _PAGE:
                return comments
        raise _FloodedError(f"{path} has {_MAX_COMMENTS} comments or more; continue in a new issue")

    async def _claims(self, path: str) -> list[_Json]:
        claims = [comment for comment in await self._comments(path) if _claim_of(comment)]
        if any(comment.get("author_association") not in _MEMBERS for comment in claims):
            me = (await self._api.request("GET", "/user", allowed=frozenset({403, 404}))).body
            login = me.get("login") if isinstance(me, dict) else None
            claims = [
                comment
                for comment in claims
                if comment.get("author_association") in _MEMBERS or (login and _author(comment) == login)
            ]
        return claims

    async def _comment(self, claim: Claim, text: str, *, key: str) -> None:
        await self._post_comment(
            self._path(claim.item.id), f"<!-- ringfence {claim.token} {key} -->\n{_quote(text)}"
        )

    async def _post_comment(self, path: str, text: str) -> None:
        """Comment, unless a comment with the same first line exists: a lost response must cause no second one."""
        mark = text.partition("\n")[0]
        for _ in range(3):
            if any(str(comment.get("body", "")).startswith(mark) for comment in await self._comments(path)):
                return
            answer = await self._api.post_once(f"{path}/comments", {"body": text})
            if answer is not None:
                return
        raise InfrastructureFault(f"POST {path}/comments: no answer, 3 times; try again later")

    async def _withdraw(self, path: str, token: str) -> None:
        for comment in await self._claims(path):
            if _claim_of(comment) == token:
                await self._api.request(
                    "DELETE", f"{self._issues}/comments/{_number(comment)}", allowed=_GONE
                )

    async def _label(self, path: str, label: str) -> None:
        await self._api.request("POST", f"{path}/labels", body={"labels": [label]})

    async def _unlabel(self, path: str, label: str) -> None:
        await self._api.request("DELETE", f"{path}/labels/{quote(label, safe='')}", allowed=_GONE)


def _listed(body: Any) -> list[_Json]:
    if not isinstance(body, list) or not all(isinstance(one, dict) for one in body):
        raise InfrastructureFault("the response is not a list of objects; is this the address of the API?")
    return body


def _is_issue(body: Any) -> bool:
    return isinstance(body, dict) and isinstance(body.get("number"), int)


def _item(issue: _Json) -> WorkItem | Unusable:
    number = str(issue.get("number", "?"))[:20]
    body, title, created = issue.get("body") or "", issue.get("title"), issue.get("created_at")
    if not (isinstance(body, str) and isinstance(title, str) and isinstance(created, str)) or not _is_issue(
        issue
    ):
        return Unusable(number, "it lacks a number, a title or a date")
    comments = issue.get("comments")
    if isinstance(comments, int) and comments >= _MAX_COMMENTS:
        return Unusable(number, f"it has {comments} comments; continue in a new issue")
    if len(body.encode("utf-8", "replace")) > BODY_LIMIT_BYTES:
        return Unusable(number, f"its text has more than {BODY_LIMIT_BYTES} bytes")
    try:
        created_at = datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, OverflowError):
        return Unusable(number, "its date is not valid")
    url = str(issue.get("html_url") or "")[:1000]
    return WorkItem(number, cut(title, _TITLE_LIMIT_BYTES), body, created_at, url, tuple(_labels(issue)))


def _labels(issue: _Json) -> list[str]:
    labels = issue.get("labels")
    named = [label.get("name") if isinstance(label, dict) else label for label in labels or []]
    return [name for name in named if isinstance(name, str)][:100]


def _claim_of(comment: _Json) -> str | None:
    match = _CLAIM.match(str(comment.get("body", "")))
    return match[1] if match else None


def _quote(text: str) -> str:
    """Return a text as a code block in which GitHub sees no markup, and bots no commands.

    Some bots search the whole comment, code blocks included, for mentions and for lines that begin with a slash.
    """
    quiet = _COMMAND.sub("\\1\u200b/", text).replace("@", "@\u200b")
    quiet = cut(quiet.replace("`" * _MAX_BACKTICKS, "`" * _MAX_BACKTICKS + "\u200b"))
    longest = max(map(len, re.findall("`+", quiet)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{quiet}\n{fence}"


def _number(comment: _Json) -> int:
    number = comment.get("id")
    if not isinstance(number, int):
        raise InfrastructureFault("a comment has no number; is this the address of the API?")
    return number


def _author(comment: _Json) -> str:
    user = comment.get("user")
    return str(user.get("login", "")) if isinstance(user, dict) else ""
