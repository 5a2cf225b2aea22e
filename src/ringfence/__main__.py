"""`python -m ringfence`: the command, by the interpreter that asks for it."""

from ringfence.cli import main

main()
