"""`python -m guided_operator.cli`: the same as the command `guidedmodel`."""

import sys

from guided_operator.cli import main

if __name__ == "__main__":
    sys.exit(main())
