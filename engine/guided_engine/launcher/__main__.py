"""Start as ``python3 -m guided_engine.launcher -- ARGS``, ARGS being vLLM's own."""

import sys

from guided_contract import processes

if __name__ == "__main__":
    processes.end_on_term()
    processes.raise_file_limit()
    from guided_engine.launcher.run import main

    sys.exit(main(sys.argv[1:]))
