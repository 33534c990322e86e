"""The command line `guidedmodel`, and `kubectl gm`: models without a cluster, and looks at those in one."""

from guided_operator.cli.command_line import complete_for_kubectl, main

__all__ = ["complete_for_kubectl", "main"]
