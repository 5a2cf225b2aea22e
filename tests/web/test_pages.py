"""The pages in a real browser, on an example fleet with the real API, a real database and real records."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import delete, insert, select, update
from starlette.types import ASGIApp
from tests.web.dashboard import Dashboard, running_api, running_dashboard
from tests.web.example import LIVE_RUN, Example, created, execute, open_daemon

from ringfence import events
from ringfence.fleet.api.app import create_local_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.database import Database, sqlite_url
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import GRANTS, INBOX, JOBS
from ringfence.job.apply_request import request_apply
from ringfence.job.changes import is_decided
from ringfence.job.state import JobState
from ringfence.journal import Journal, run_dir, run_dirs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard")]
_PAGES = (
    "inbox",
    "jobs",
    "agents",
    "agents/bug-triage",
    "schedules",
    "spend",
    "workers",
    "runs",
    "loops",
    "doctor",
)
_PARTS = ("", "/changes", "/attempts", "/record", "/task")


def _settle(page: Page, path: str) -> None:
    response = page.goto(path)
    assert response is not None
    assert response.status == 200, (path, page.inner_text("body"))


def test_a_link_signs_in_and_works_once(browser: Browser, dashboard: Dashboard) -> None:
    """A link signs in one browser; a second browser with the same link is told how to get another."""
    link = dashboard.new_link()
    first, second = browser.new_context(), browser.new_context()
    page = first.new_page()
    page.goto(link)
    expect(page).to_have_url(f"{dashboard.url}/inbox")
    other = second.new_page()
    other.goto(link)
    expect(other.locator("h1")).to_have_text("This link does not work")
    assert "ringfence serve" in other.inner_text("body")
    other.goto(f"{dashboard.url}/jobs")
    expect(other.locator("h1")).to_have_text("You are not signed in")
    first.close()
    second.close()


@pytest.mark.parametrize("path", _PAGES)
def test_each_page_is_named_and_shown(page: Page, path: str) -> None:
    """Each page has one heading, its navigation entry is marked as current, and every control has a name."""
    _settle(page, path)
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("nav[aria-label=Pages] [aria-current=page]")).to_have_attribute(
        "href", f"/{path.partition('/')[0]}"
    )
    for control in page.locator("button, input:not([type=hidden]), select, textarea").all():
        name = control.evaluate("each => each.ariaLabel || each.innerText || each.labels?.[0]?.innerText")
        assert name, control.evaluate("each => each.outerHTML")


@pytest.mark.parametrize("part", _PARTS)
def test_hostile_texts_are_only_text(page: Page, example: Example, part: str) -> None:
    """An agent's markup neither runs nor loads nor renders, and invisible characters are spelled out."""
    for path in (f"jobs/{example.hostile}{part}", "jobs", "inbox"):
        _settle(page, path)
        page.wait_for_load_state("load")
        assert "taken" not in page.title().replace("'taken'", "")
        assert page.locator("main").is_visible()
        for markup in ("img", "style", "script:not([src^='/static/'])", "base", "meta[http-equiv=refresh]"):
            assert page.locator(markup).count() == 0, markup
        assert page.locator("[action*=evil], [href*='javascript:'], [onfocus], [onerror]").count() == 0
        text = page.inner_text("main")
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert "{{ 7 * 7 }}" in page.inner_text("main") or path == "inbox"
    assert "\\u202e" in page.inner_text("main")


def test_jobs_are_filtered_by_state_agent_and_text(page: Page) -> None:
    """The filters are part of the URL, and `/` focuses the text filter."""
    _settle(page, "jobs")
    page.get_by_label("State").get_by_text("Failed", exact=True).click()
    expect(page).to_have_url(re.compile("state=failed"))
    assert page.locator("tbody .state.good").count() == 0
    page.get_by_label("State").get_by_text("Succeeded", exact=True).click()
    expect(page).to_have_url(re.compile("state=succeeded"))
    assert set(page.locator("tbody .state").all_inner_texts()) == {"succeeded"}
    page.goto("jobs?state=failed")
    page.keyboard.press("/")
    page.keyboard.type("benchmark")
    page.get_by_label("Agent", exact=True).select_option("docs-keeper")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("text=benchmark"))
    rows = page.locator("tbody tr")
    assert rows.count() > 0
    assert all("benchmark" in row and "docs-keeper" in row for row in rows.all_inner_texts())
    page.get_by_label("Filter by task or reason").fill("nothing has this text")
    page.keyboard.press("Enter")
    expect(page.locator(".empty")).to_contain_text("No job fits these filters")
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr").first).to_be_visible()


def test_the_filters_of_a_link_stay_while_others_change(page: Page) -> None:
    """A list that a link narrows by parent and time stays narrowed in its tabs and when the form is sent."""
    _settle(page, "jobs?parent=20260101-000000-000000-000000&since=2020-01-01")
    narrowed = re.compile(
        "(?=.*parent=20260101-000000-000000-000000)(?=.*since=2020-01-01)(?=.*state=failed)"
    )
    page.get_by_label("State").get_by_text("Failed", exact=True).click()
    expect(page).to_have_url(narrowed)
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("text=&"))
    expect(page).to_have_url(narrowed)


def test_a_large_diff_is_read_by_pages(page: Page, example: Example) -> None:
    """Each page of a diff has some hundred of its 50,003 lines with their numbers, and links to the pages around it."""
    _settle(page, f"jobs/{example.large}/changes?file=src/all.py")
    rows = page.locator("table.diff tr")
    assert 300 < rows.count() < 500
    page.get_by_role("link", name="Next page").click()
    expect(page).to_have_url(re.compile("line=400"))
    first = [each.strip() for each in rows.first.locator("td").all_inner_texts()]
    assert first == ["", "406", "+", "line 395"]
    page.get_by_role("link", name="Previous page").click()
    expect(rows.nth(1)).to_contain_text("first")
    _settle(page, f"jobs/{example.large}/changes?file=src/all.py&line=49800")
    expect(rows.last).to_contain_text("last")
    assert page.get_by_role("link", name="Next page").count() == 0
    page.get_by_label("Changed files").get_by_text("n.md").click()
    expect(rows.last).to_contain_text("note")


def test_a_long_log_is_read_by_pages(page: Page, example: Example) -> None:
    """Each page of a log has some hundred events, and links to the latest, next and previous ones."""
    _settle(page, f"jobs/{example.large}")
    entries = page.locator(".log li")
    expect(entries).to_have_count(200)
    page.get_by_role("link", name="Next page").first.click()
    expect(page.locator(".pager")).to_contain_text("Events 201 to 400")
    page.get_by_role("link", name="Latest").click()
    expect(entries.last).to_contain_text("sealed")
    page.get_by_role("link", name="Previous page").click()
    expect(entries).to_have_count(200)


def test_tool_calls_are_shown_alone(page: Page, example: Example) -> None:
    """The log's filter shows calls and results of tools, and hides the model's replies."""
    _settle(page, f"jobs/{example.finished}")
    page.get_by_role("link", name="Tool calls").click()
    expect(page.locator(".log .tool").first).to_be_visible()
    assert page.locator(".log .agent").count() == 0


def test_a_log_is_followed_as_it_is_written(page: Page, example: Example) -> None:
    """A new event appears at the end once, without a reload; after the seal the page no longer follows the log."""
    with Journal.create(run_dir(LIVE_RUN), LIVE_RUN) as journal:
        journal.append(created("the beginning"))
        _settle(page, f"jobs/{example.live}")
        expect(page.locator(".log")).to_contain_text("the beginning")
        expect(page.locator("#following")).to_be_visible()
        journal.append(events.ToolCalled(call_id="c", tool="shell", arguments={"command": "<b>now</b>"}))
        expect(page.locator(".log li").last).to_contain_text("$ <b>now</b>")
        journal.append(events.JobEnded(state="failed", exit_code=1, reason="the end"))
        journal.seal()
    expect(page.locator(".log li").last).to_contain_text("sealed")
    expect(page.locator("#following")).not_to_be_visible()
    assert page.locator(".log li", has_text="<b>now</b>").count() == 1


def test_a_record_says_whether_it_is_whole(page: Page, example: Example) -> None:
    """A sealed record is shown as complete; a changed one is shown in red, with the line."""
    _settle(page, f"jobs/{example.finished}/record")
    expect(page.locator("main .notice.good").last).to_contain_text("sealed and complete")
    _settle(page, f"jobs/{example.broken}/record")
    expect(page.locator("#broken")).to_contain_text("The record is broken at line 5:")
    assert page.locator("#broken").evaluate("each => getComputedStyle(each).color") == "rgb(198, 42, 47)"


def test_changes_are_applied_and_rejected(page: Page, example: Example) -> None:
    """Applying and rejecting change the workspace, and the page shows the state of the changes."""
    page.on("dialog", lambda dialog: dialog.accept())
    file = example.project / "roombook" / "interval.py"
    before = file.read_text()
    _settle(page, "inbox")
    ready = page.get_by_label("Ready to apply").locator(f"[href='/jobs/{example.finished}']")
    expect(ready).to_have_count(1)
    _settle(page, f"jobs/{example.finished}/changes")
    expect(page.locator("table.diff")).to_contain_text("self.start < other.end")
    page.get_by_role("button", name="Apply changes").click()
    expect(page.locator("#notice")).to_contain_text("The changes are applied")
    assert file.read_text() != before
    expect(page.get_by_role("button", name="Apply changes")).to_have_count(0)
    page.get_by_role("button", name="Reject changes").click()
    expect(page.locator("#notice")).to_contain_text("The changes are rejected")
    assert file.read_text() == before
    _settle(page, "inbox")
    expect(ready).to_have_count(0)


def test_requests_to_apply_lead_to_the_changes(page: Page, example: Example) -> None:
    """A program's request to apply the changes of a run is in the inbox and on the page of runs."""
    run = next(each for each in run_dirs() if not is_decided(each))
    request_apply(run.name, by="client <b>1</b>", workspace=str(example.project))
    for path in ("inbox", "runs"):
        _settle(page, path)
        requests = page.get_by_label("Requests to apply")
        expect(requests.locator(f"[href='/runs/{run.name}/changes']")).to_have_count(1)
        expect(requests).to_contain_text("client <b>1</b>")


def test_tables_are_live(page: Page, example: Example) -> None:
    """The tables, the job's page and the navigation show a change soon after it is in the database."""
    _settle(page, "jobs?state=active")
    row = page.locator("tbody tr", has_text="Wait for a worker")
    expect(row).to_contain_text("queued")
    heading = page.locator("nav[aria-label=Pages] [href='/jobs']")
    active = int(re.search(r"\d+", heading.inner_text())[0])  # type: ignore[index]
    page.locator("body").evaluate("each => each.dataset.kept = 'yes'")
    execute(
        example,
        update(JOBS).where(JOBS.c.title == "Wait for a worker").values(state="starting", changed_ms=now_ms()),
    )
    expect(row).to_contain_text("starting")
    expect(heading).to_contain_text(f"{active + 1} active")
    assert page.locator("body").get_attribute("data-kept") == "yes"  # the page was not reloaded


def test_an_answer_that_is_typed_survives_changes(page: Page, example: Example) -> None:
    """A change of the inbox keeps the field that a person is about to type in, and the text that is in it."""
    _settle(page, "inbox")
    field = page.get_by_label("Question of nightly-deps").get_by_label("Reply to the agent")
    field.focus()
    heading = page.locator("nav[aria-label=Pages] [href='/inbox']")
    before = heading.inner_text()
    row = {"job": example.live, "attempt": 1, "run_id": "r", "kind": "question", "rule": "{}", "text": "?"}
    execute(example, insert(INBOX).values(id="other", agent="other", created_ms=now_ms(), **row))
    expect(heading).not_to_have_text(before, use_inner_text=True)
    expect(field).to_be_focused()
    page.keyboard.type("half an ans")
    execute(example, delete(INBOX).where(INBOX.c.agent == "other"))
    expect(heading).to_have_text(before, use_inner_text=True)
    expect(field).to_have_value("half an ans")


def test_a_job_that_runs_again_shows_no_reason_of_before(page: Page, example: Example) -> None:
    """While an attempt runs, neither the list nor the page of a job shows why the attempt before ended."""
    execute(example, update(JOBS).where(JOBS.c.id == example.live).values(reason="its worker was stopped"))
    for path in ("jobs", f"jobs/{example.live}"):
        _settle(page, path)
        expect(page.locator("main")).not_to_contain_text("its worker was stopped")


def test_a_job_that_waits_leads_to_its_question(page: Page, example: Example) -> None:
    """The page of a job that waits for a person has a link to the place in the inbox where the person answers."""
    asked = INBOX.c.agent == "bug-triage"  # another test answers the question
    execute(example, update(INBOX).where(asked).values(answer=None, answered_by=None, answered_ms=None))
    waiting = JOBS.c.id.in_(select(INBOX.c.job).where(asked))
    execute(example, update(JOBS).where(waiting).values(state=JobState.WAITING, ended_ms=None))
    _settle(page, "inbox")
    question = page.get_by_label("Question of bug-triage")
    question.get_by_role("link", name="job ").click()
    page.get_by_role("link", name="Answer it").click()
    expect(page).to_have_url(re.compile(r"/inbox#of-"))
    expect(page.locator(":target")).to_contain_text("asks to connect to api.github.com:443")


def test_a_page_that_does_not_exist_leads_back(page: Page) -> None:
    """An unknown address has a link to the dashboard."""
    page.goto("nowhere")
    page.get_by_role("link", name="Back to the dashboard").click()
    expect(page.locator("h1")).to_have_text("Inbox")


def test_a_question_is_answered(page: Page, example: Example) -> None:
    """A question shows the narrowest rule and the agent's words; once it is confirmed, the answer is stored."""
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.once("dialog", lambda dialog: dialog.dismiss())
    _settle(page, "inbox")
    question = page.get_by_label("Question of bug-triage")
    expect(question).to_contain_text("asks to connect to api.github.com:443")
    expect(question.locator("blockquote")).to_contain_text("I need the issue's comments.")
    question.get_by_label("Reply to the agent").fill("Only this one.")
    question.get_by_role("button", name="Allow").click()
    assert asked == ["Allow bug-triage to connect to api.github.com:443?"]
    expect(question).to_have_count(1)
    page.once("dialog", lambda dialog: dialog.accept())
    question.get_by_role("button", name="Allow").click()
    expect(page.locator("#notice")).to_contain_text("Allowed")
    expect(question).to_have_count(0)
    answered = page.locator(".card", has_text="Answered")
    expect(answered).to_contain_text("allow")
    expect(answered).to_contain_text("Only this one.")
    own = page.get_by_label("Question of docs-keeper")
    own.get_by_role("button", name="Answer").click()  # the field is required
    expect(own).to_have_count(1)
    own.get_by_role("button", name="Deny").click()
    expect(own).to_have_count(0)


def test_an_answer_is_for_the_rule_that_was_shown(page: Page, example: Example) -> None:
    """If the question's rule is not the one on the page, the answer is refused, and the question stays open."""
    page.on("dialog", lambda dialog: dialog.accept())
    page.route("**/stream", lambda route: route.abort())  # the page goes on showing the rule of before
    _settle(page, "inbox")
    question = page.get_by_label("Question of nightly-deps")
    expect(question).to_contain_text("spend up to $2.00")
    rule = update(INBOX).where(INBOX.c.agent == "nightly-deps")
    execute(example, rule.values(rule=json.dumps({"limit": "cost_usd", "to": 200.0})))
    question.get_by_role("button", name="Allow").click()
    expect(page.locator("#notice")).to_contain_text("another rule than the one that was shown")
    execute(example, rule.values(rule=json.dumps({"limit": "cost_usd", "to": 2.0})))
    _settle(page, "inbox")
    expect(question).to_have_count(1)


def test_the_most_urgent_question_is_first(page: Page, example: Example) -> None:
    """Questions are listed by deadline; a new one is last, and those beyond the fiftieth are counted."""
    _settle(page, "inbox")
    shown = page.locator(".ask")
    now = now_ms()
    row = {"job": example.live, "attempt": 1, "run_id": "r", "kind": "question", "rule": "{}", "text": "?"}
    execute(
        example,
        insert(INBOX).values(id="soon", agent="soon", created_ms=now, deadline_ms=now + 60_000, **row),
    )
    execute(example, insert(INBOX).values(id="late", agent="late", created_ms=now, deadline_ms=None, **row))
    many = [
        {"id": f"m{n}", "agent": "m", "created_ms": now, "deadline_ms": now + 70_000, **row}
        for n in range(50)
    ]
    _settle(page, "inbox")
    expect(shown.first).to_have_attribute("aria-label", "Question of soon")
    expect(shown.last).to_have_attribute("aria-label", "Question of late")
    execute(example, insert(INBOX).values(many))
    _settle(page, "inbox")
    expect(shown).to_have_count(50)
    expect(page.get_by_label("Questions", exact=True).locator(".pager")).to_contain_text(
        re.compile(r"^\d more wait")
    )
    execute(example, delete(INBOX).where(INBOX.c.agent.in_(["m", "soon", "late"])))


def test_only_what_is_shown_is_applied(page: Page, example: Example) -> None:
    """The page of an older attempt offers no button; if a newer attempt exists, the changes are not applied."""
    page.on("dialog", lambda dialog: dialog.accept())
    job = example.finished
    _settle(page, f"jobs/{job}/changes")
    apply = page.get_by_role("button", name="Apply changes")
    expect(apply).to_have_count(1)
    # In one task of the page, since a refresh of the page sets the value anew.
    apply.evaluate(
        "button => { document.querySelector('#shown-run').value = '2026-01-01T00-00-00-00000001'; button.click(); }"
    )
    expect(page.locator("#notice")).to_contain_text("not the ones that were shown")
    execute(example, update(JOBS).where(JOBS.c.id == job).values(attempt=2))
    _settle(page, f"jobs/{job}/changes?attempt=1")
    expect(page.locator("main")).to_contain_text("This is attempt 1 of 2")
    expect(apply).to_have_count(0)
    expect(page.get_by_role("button", name="Reject changes")).to_have_count(0)
    expect(page.get_by_label("Changed files").locator("a").first).to_have_attribute(
        "href", re.compile("attempt=1")
    )
    execute(example, update(JOBS).where(JOBS.c.id == job).values(attempt=1))


def test_a_granted_rule_is_revoked(page: Page, example: Example) -> None:
    """The agent's page lists the rules that people granted, and takes one away."""
    rule = json.dumps({"kind": "host", "rule": {"host": "pypi.example.com", "port": 443}}, sort_keys=True)
    execute(
        example, insert(GRANTS).values(agent="bug-triage", rule=rule, granted_by="ann", granted_ms=now_ms())
    )
    page.on("dialog", lambda dialog: dialog.accept())
    _settle(page, "agents/bug-triage")
    granted = page.get_by_label("Granted rules")
    expect(granted).to_contain_text("pypi.example.com")
    granted.get_by_role("button", name="Revoke").click()
    expect(page.locator("#notice")).to_contain_text("revoked")
    _settle(page, "agents/bug-triage")
    expect(granted).to_have_count(0)


def test_what_an_action_is_refused_for_is_said(page: Page, example: Example) -> None:
    """The API's reason for refusing an action appears at the top, and the page stays."""
    page.on("dialog", lambda dialog: dialog.accept())
    _settle(page, f"jobs/{example.live}")
    page.evaluate(
        "htmx.ajax('POST', location.pathname + '/retry', {target: '#notice'})"
    )  # the page offers no retry of a running job
    expect(page.locator("#notice")).to_contain_text("has not ended")
    expect(page.locator("h1")).to_be_visible()


def test_a_daemon_may_go_away_and_come_back(browser: Browser, example: Example, tmp_path: Path) -> None:
    """While the daemon is away a banner says so and stored data stays readable; the banner disappears by itself."""

    async def open_stored() -> ASGIApp:
        database = Database(sqlite_url(example.state, example.home / "fleet" / "ringfence.yaml"))
        fleet = (await open_daemon(example)).fleet
        return create_local_app(ApiContext(example.state, None, FleetSource(database, example.state, fleet)))

    async def open_running() -> ASGIApp:
        return create_local_app(ApiContext.of_daemon(await open_daemon(example)))

    with running_dashboard(open_stored, tmp_path) as dashboard:
        page = browser.new_page()
        page.set_default_timeout(10_000)
        banner = page.locator("#connection")
        with running_api(open_running, tmp_path / "daemon.sock"):
            dashboard.sign_in(page)
            page.goto(f"{dashboard.url}/jobs")
            expect(banner).not_to_be_visible()
        expect(banner).to_contain_text("daemon does not run")
        page.goto(f"{dashboard.url}/jobs/{example.finished}/record")
        expect(page.locator("main")).to_contain_text("sealed and complete")
        expect(banner).to_contain_text("ringfence fleet up")
        with running_api(open_running, tmp_path / "daemon.sock"):
            expect(banner).not_to_be_visible(timeout=10_000)
    expect(banner).to_contain_text("The dashboard's server does not answer")
    page.close()


def test_an_unknown_job_is_said_to_be_unknown(page: Page) -> None:
    """The page of an unknown job names it and keeps the navigation."""
    response = page.goto("jobs/<b>nowhere<b>")
    assert response is not None
    assert response.status == 404
    expect(page.locator("main")).to_contain_text("<b>nowhere<b>")
    expect(page.locator("nav[aria-label=Pages]")).to_be_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_pages_fit_and_can_be_read(
    browser: Browser, signed_in: object, dashboard: Dashboard, example: Example, scheme: str, width: int
) -> None:
    """No page is wider than the window, nor is a list on a phone, and text contrasts with its background."""
    context = browser.new_context(
        base_url=dashboard.url, color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 800},
    )  # fmt: skip
    page = context.new_page()
    dashboard.sign_in(page)
    for path in (*_PAGES, *(f"jobs/{example.hostile}{part}" for part in _PARTS)):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        clipped = page.evaluate("""[...document.querySelectorAll('table.stack')]
            .filter(each => each.scrollWidth > each.parentElement.clientWidth).length""")
        assert clipped == 0 or width > 720, path
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor")
    )
    assert abs(_light(ink) - _light(paper)) > 150
    context.close()


def test_pages_are_read_without_scripts(browser: Browser, dashboard: Dashboard) -> None:
    """Lists, filters and pages work without scripts; buttons, which could do nothing, are hidden."""
    context = browser.new_context(base_url=dashboard.url, java_script_enabled=False)
    page = context.new_page()
    dashboard.sign_in(page)
    page.goto("jobs?state=active")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.goto("schedules")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name="Run now").first).not_to_be_visible()
    context.close()


def _light(colour: str) -> float:
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue
