"""The command line: parse, call, render. stdout is data, stderr is talk."""

_OBJECTS = 150_000
"""That are made before Python looks for those that nobody can reach any more. A run's imports make 120,000; at Python's
own 700 it looks 170 times meanwhile, in vain, which takes 50 ms."""


def main() -> None:
    """Entry point of the `ringfence` command."""
    import gc
    import sys

    gc.set_threshold(_OBJECTS)
    from ringfence.cli.quick import plain_exec
    from ringfence.cli.quick_run import plain_run

    plain = plain_exec(sys.argv[1:]) or plain_run(sys.argv[1:])
    if plain is not None:
        from ringfence.cli.ending import end_by

        end_by(plain.run)
    else:
        from ringfence.cli.main import run_app

        run_app()
