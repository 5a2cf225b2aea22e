"""The route of the machine's state."""

from fastapi import APIRouter

from ringfence.fleet.api.access import READ
from ringfence.fleet.queries.record_models import MachineReport
from ringfence.job.machine import describe_machine

router = APIRouter(tags=["doctor"])


@router.get("/v1/doctor", dependencies=[READ])
async def doctor() -> MachineReport:
    """What the responding machine can run. Only `ringfence doctor` opens sandboxes and tries to escape."""
    return MachineReport(**await describe_machine())
