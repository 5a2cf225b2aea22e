"""SWE-ReX in a sandbox: a session that keeps its state, and a command by itself."""

import asyncio

from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest

from ringfence.integrations.swe_rex import RingfenceDeployment


async def main():
    """Start a deployment, use it, stop it."""
    deployment = RingfenceDeployment(memory="1g")
    await deployment.start()
    runtime = deployment.runtime
    await runtime.create_session(CreateBashSessionRequest())
    await runtime.run_in_session(BashAction(command="mkdir project && cd project && export ROOM=blue"))
    seen = await runtime.run_in_session(BashAction(command="basename $PWD; echo $ROOM"))
    print(seen.output, end="")
    network = await runtime.execute(Command(command=["cat", "/proc/net/dev"]))
    print("interfaces", network.stdout.count(":"))
    await deployment.stop()


asyncio.run(main())
