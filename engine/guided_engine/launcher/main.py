"""The launcher's command line."""

import asyncio
import logging
import os
import sys

from guided_contract import config, names
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan, program
from guided_engine.launcher.run import Launcher


def main(argv: list[str]) -> int:
    """Run vLLM with the arguments after ``--`` until it ends, and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        pod = config.load()
    except config.ConfigError as error:
        return _refuse(str(error))
    if pod is None:
        return _refuse(f"{names.ENV_CONFIG} does not name a configuration file")
    if argv[:1] != ["--"]:
        return _refuse("usage: python3 -m guided_engine.launcher -- VLLM_ARGS")
    args = argv[1:]
    command = plan(pod, args, os.environ, Cpus.of_this_process(), program(pod, args, node=config.node()))
    leader = os.environ.get(names.ENV_LEADER, "") if config.node() else ""
    return asyncio.run(Launcher(pod, command, leader=leader).run())


def _refuse(message: str) -> int:
    sys.stderr.write(f"guidedmodel launcher: {message}\n")
    return 2
