"""The command line: parse, call, render. stdout is data, stderr is talk."""


def main() -> None:
    """Entry point of the `ringfence` command."""
    import sys

    from ringfence.cli.quick import plain_exec

    plain = plain_exec(sys.argv[1:])
    if plain is not None:
        from ringfence.cli.ending import end_by

        end_by(plain.run)
    else:
        from ringfence.cli.main import run_app

        run_app()
