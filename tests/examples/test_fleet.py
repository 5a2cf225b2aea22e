"""The small fleet of examples/fleet, as somebody has it who copied it."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet.fleet_files import FleetFiles

from ringfence.removal import remove_tree

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "fleet"
OWNER = 12345
"""Whose the files are where root runs the tests: of root's own, agents would be shown a copy."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shop() -> Iterator[FleetFiles]:
    """The crew at work."""
    home = Path(tempfile.mkdtemp(prefix="ringfence-shop-"))
    home.chmod(0o711)
    own_values = {"SHOP_PORT": str(free_port()), "SHOP_SECRET": "a-secret-of-the-shop", "SHOP_EVERY": "1000h"}
    crew = FleetFiles(home, own_values)
    shutil.copytree(EXAMPLE, crew.project, dirs_exist_ok=True)
    own(crew)
    crew.does("config", "trust", "--yes")
    crew.up()
    yield crew
    crew.down()
    remove_tree(home)


def own(crew: FleetFiles) -> None:
    """Have the project be an ordinary user's."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", crew.project], check=True)


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ended(crew: FleetFiles, trigger: str) -> dict[str, str]:
    """The newest job of a schedule or trigger, once it has ended."""

    def newest() -> dict[str, str]:
        return next((job for job in crew.jobs() if job["trigger_name"] == trigger and job["ended_at"]), {})

    found: dict[str, str] = crew.waits(newest, bool)
    return found


def test_it_does_what_it_is_there_for(shop: FleetFiles):
    """The report is written and checked; a line that is no order makes a job fail, after which the mender repairs it."""
    assert shop.ends(shop.trigger("reporter"))["state"] == "succeeded"
    assert (shop.project / "shop" / "report.md").read_text() == "2 orders, 16 pieces\n"
    with (shop.project / "shop" / "orders.csv").open("a") as orders:
        orders.write("pears,three\n")
    failed = shop.ends(shop.trigger("reporter"))
    assert failed["state"] == "check_red"
    mended = ended(shop, "report-failed")
    assert (mended["agent"], mended["state"], mended["parent"]) == ("mender", "succeeded", failed["id"])
    assert (shop.project / "shop" / "report.md").read_text() == "3 orders, 19 pieces\n"


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl")
def test_a_signed_request_makes_a_job(shop: FleetFiles):
    """The example's own script is let in, and the job's task names the customer as data from outside; others are not."""
    subprocess.run([EXAMPLE / "order.sh", "Lovelace"], env=shop.environment, check=True, timeout=60)
    job = ended(shop, "orders-came")
    assert (job["agent"], job["trigger"], job["state"]) == ("reporter", "webhook", "succeeded")
    record = shop.does("job", "logs", job["id"]).out
    assert "<data-from-outside" in record
    assert "Lovelace" in record
    forged = {**shop.environment, "SHOP_SECRET": "another-secret-of-mine"}
    refused = subprocess.run(
        [EXAMPLE / "order.sh", "Eve"], env=forged, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode != 0
    assert "does not match this body and the secret of this webhook" in refused.stdout
    assert len([each for each in shop.jobs() if each["trigger"] == "webhook"]) == 1


def test_its_schedules_fire(shop: FleetFiles):
    """Both are planned; told to come every second, the regular one makes jobs by itself, until it is paused."""
    listed = shop.does("fleet", "schedules", "ls", "--json").json["schedules"]
    assert [(each["agent"], each["name"]) for each in listed] == [
        ("reporter", "morning"),
        ("reporter", "regular"),
    ]
    shop.down()
    shop.environment["SHOP_EVERY"] = "1s"
    shop.up()
    job = ended(shop, "regular")
    assert (job["agent"], job["trigger"], job["state"]) == ("reporter", "schedule", "succeeded")
    shop.does("fleet", "schedules", "pause", "reporter/regular")
