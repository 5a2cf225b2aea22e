"""The command line: commands parse, call and render. stdout is for data, stderr for messages."""

_OBJECTS = 150_000
"""Allocations before the first garbage collection. A run's imports make 120,000; at Python's default of 700 they cause
170 collections, which find nothing and take 50 to 100 ms of processor time."""


def delay_collection() -> None:
    """Delay the first garbage collection until the imports are over; later ones are as frequent as Python's default."""
    import gc

    default = gc.get_threshold()

    def restore_threshold(phase: str, info: dict[str, int]) -> None:  # noqa: ARG001 -- as Python calls it
        gc.set_threshold(*default)
        gc.callbacks.remove(restore_threshold)

    gc.callbacks.append(restore_threshold)
    gc.set_threshold(_OBJECTS)


def main() -> None:
    """Entry point of the `ringfence` command."""
    import os

    delay_collection()
    # Pydantic would read the metadata of every installed package in search of plugins, which takes 10 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from ringfence.cli.app import run_app

    run_app()
