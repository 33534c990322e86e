"""The command line `guidedmodel`: a GuidedModel without a cluster."""

from guided_operator.cli.command_line import main

__all__ = ["main"]
