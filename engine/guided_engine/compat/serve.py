"""Start as ``python3 -m guided_engine.compat.serve ARGS``: vLLM's API servers, one or several, or none.

`vllm serve` does this, but the command dies in the CPU build (see launcher/command.py), and vLLM's own
api_server module starts one server whatever it is told.
"""

import sys
from importlib import import_module
from typing import Any

from guided_engine.compat import minor


def make_parser() -> Any:
    """Return vLLM's parser of its server's arguments."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415 - see main

    return import_module(minor.here().arguments_module).make_arg_parser(FlexibleArgumentParser())


def main() -> None:
    """Serve until vLLM ends."""
    from vllm import envs  # noqa: PLC0415 - the module must import without vLLM
    from vllm.entrypoints.cli.serve import ServeSubcommand  # noqa: PLC0415 - as above
    from vllm.logger import configure_logging_from_args  # noqa: PLC0415 - as above

    import_module(minor.here().environment_module).cli_env_setup()
    args = make_parser().parse_args()
    if envs.VLLM_USE_RUST_FRONTEND or args.grpc:
        sys.exit("guidedmodel: neither the Rust front end nor gRPC passes admission; neither is served")
    configure_logging_from_args(args)
    ServeSubcommand().validate(args)
    ServeSubcommand.cmd(args)


if __name__ == "__main__":
    main()
