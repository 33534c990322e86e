"""Start as ``python3 -m guided_engine.compat.serve ARGS``: vLLM's API servers, one or several, or none.

`vllm serve` does this, but dies in the CPU build (see versions.has_command).
"""

import os
import sys
from typing import Any


def make_parser() -> Any:
    """Return vLLM's parser of its server's arguments."""
    from vllm.entrypoints.cli.serve import ServeSubcommand  # noqa: PLC0415 - see main
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415 - as above

    return ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())


def main() -> None:
    """Serve until vLLM ends."""
    from vllm import envs  # noqa: PLC0415 - the module must import without vLLM
    from vllm.entrypoints.cli.serve import ServeSubcommand  # noqa: PLC0415 - as above
    from vllm.logger import configure_logging_from_args  # noqa: PLC0415 - as above

    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # as the command has it
    args = make_parser().parse_args()
    if envs.VLLM_USE_RUST_FRONTEND or args.grpc:
        sys.exit("guidedmodel: neither the Rust front end nor gRPC passes admission; neither is served")
    configure_logging_from_args(args)
    ServeSubcommand().validate(args)
    ServeSubcommand.cmd(args)


if __name__ == "__main__":
    main()
