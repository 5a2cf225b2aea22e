"""`python -m ringfence.testing.scripted_model FILE [--port N]`: serve a script until interrupted."""

import argparse
import signal
import sys
from pathlib import Path

import anyio

from ringfence.errors import RingfenceError
from ringfence.testing.scripted_model import Script, ScriptedModelServer, load_script


def main() -> int:
    """Print the base URL, then serve; the exit code is that of the `ringfence` command."""
    parser = argparse.ArgumentParser(
        prog="python -m ringfence.testing.scripted_model", description=main.__doc__
    )
    parser.add_argument("file", type=Path, help="the script, YAML or JSONL")
    parser.add_argument(
        "--port", type=int, default=0, help="port of 127.0.0.1; 0 (default): any that is free"
    )
    options = parser.parse_args()
    try:
        anyio.run(_serve, load_script(options.file), options.port)
    except RingfenceError as exc:
        sys.stderr.write(f"{exc}\n")
        return exc.exit_code
    return 0


async def _serve(script: Script, port: int) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with ScriptedModelServer.serve(script, port=port) as server:
            sys.stdout.write(f"{server.base_url}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    sys.exit(main())
