"""The command line: parse, call, render. stdout is data, stderr is talk."""


def main() -> None:
    """Entry point of the `ringfence` command."""
    from ringfence.cli.main import run_app

    run_app()
