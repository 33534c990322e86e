"""The command line `guidedmodel`, and `kubectl gm`: models without a cluster, and looks at those in one."""

from guided_operator.cli.command_line import main

__all__ = ["main"]
