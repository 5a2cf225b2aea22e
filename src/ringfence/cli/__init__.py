"""The command line: parse, call, render. stdout is data, stderr is talk."""

_OBJECTS = 150_000
"""That are made before Python looks for those that nobody can reach any more. A run's imports make 120,000; at Python's
own 700 it looks 170 times meanwhile, in vain, which takes 50 ms."""
_FROM_STANDBY = frozenset({"run", "exec", "loop"})
"""The commands that take long to load. Those that take over a terminal, or live on, always start by themselves."""


def look_rarely() -> None:
    """Have Python look for unreachable objects when there are very many; from then on as often as it does by itself."""
    import gc

    usual = gc.get_threshold()

    def look_as_usual(phase: str, info: dict[str, int]) -> None:  # noqa: ARG001 -- as Python calls it
        # The imports are over: what runs for days leaves no heaps of them.
        gc.set_threshold(*usual)
        gc.callbacks.remove(look_as_usual)

    gc.callbacks.append(look_as_usual)
    gc.set_threshold(_OBJECTS)


def main() -> None:
    """Entry point of the `ringfence` command."""
    import sys

    if len(sys.argv) > 1 and sys.argv[1] in _FROM_STANDBY:
        from ringfence.cli.standby.asking import done_by_standby

        code = done_by_standby()
        if code is not None:
            sys.exit(code)
    start_here()


def start_here() -> None:
    """Do the command in this process."""
    import sys

    look_rarely()
    from ringfence.cli.quick import plain_exec
    from ringfence.cli.quick_run import plain_run

    plain = plain_exec(sys.argv[1:]) or plain_run(sys.argv[1:])
    if plain is not None:
        from ringfence.cli.ending import end_by

        end_by(plain.run)
    else:
        from ringfence.cli.main import run_app

        run_app()
