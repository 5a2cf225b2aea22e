import sys

from kitty.command import main

sys.exit(main(sys.argv[1:]))
