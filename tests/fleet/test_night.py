"""A question from its asking by a scheduled job to the applied changes, as a person with a phone sees it."""

import signal

import pytest
from playwright.sync_api import Page, ViewportSize, expect
from tests.chromium import running_chromium
from tests.fleet.fleet_files import FleetFiles
from tests.fleet.worker.asking import HOST, asking_agent

from ringfence.events import JSONObject

_PHONE = ViewportSize(width=390, height=844)


def _scheduled(crew: FleetFiles) -> JSONObject:
    return {**asking_agent(crew), "schedules": {"nightly": {"every": "1s"}}}


def _answer_and_apply(page: Page, crew: FleetFiles, question: JSONObject) -> JSONObject:
    """Allow the question, wait for the end of its job, and apply the changes; return the job."""
    page.on("dialog", lambda dialog: dialog.accept())
    asked = page.get_by_label("Question of asker")
    expect(asked).to_contain_text(f"asks to connect to {HOST}:443")
    asked.get_by_role("button", name="Allow").click()
    expect(page.locator("#notice")).to_contain_text("Allowed")
    job: JSONObject = crew.ends(str(question["job"]))
    page.goto(f"jobs/{job['id']}/changes")
    page.get_by_role("button", name="Apply changes").click()
    expect(page.locator("#notice")).to_contain_text("The changes are applied")
    return job


@pytest.mark.slow
def test_a_question_of_the_night_is_answered_on_a_phone(crew: FleetFiles):
    """It waits through a restart; the answer on a narrow page resumes the job, whose changes and record hold."""
    crew.write(fleet={"name": "c", "drain": "1s"}, agents={"asker": _scheduled(crew)})
    crew.up()
    found = crew.waits(lambda: crew.client.get("inbox", open="true"), bool)
    crew.does("fleet", "schedules", "pause", "asker/nightly")
    crew.does("fleet", "down", "--now")
    crew.up()
    with crew.start("serve", "--address", "127.0.0.1:0") as serve, running_chromium() as browser:
        assert serve.stdout is not None
        link = serve.stdout.readline().strip()
        page = browser.new_page(viewport=_PHONE, base_url=link.partition("login")[0])
        page.goto(link)
        page.goto("inbox")
        job = _answer_and_apply(page, crew, found[0])
        serve.send_signal(signal.SIGINT)
        serve.communicate(timeout=30)
    assert (job["state"], job["attempt"]) == ("unverified", 2)
    assert (crew.project / "made.txt").read_text() == "made\nmade\n"
    for attempt in job["attempts"]:
        assert crew.does("runs", "verify", attempt["run_id"], "--json").code == 0
