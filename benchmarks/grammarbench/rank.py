"""A sampling rank without an engine: loads what the service tells it to, with the plugin's own code.

`python -m grammarbench.rank CONFIG`
"""

import os
import sys
import threading
from pathlib import Path

from guided_contract import config, wire
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_engine.service_link import ServiceLink
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary


def main() -> None:
    """Serve until killed."""
    pod = config.decode(Path(sys.argv[1]).read_bytes())
    loaded_grammars = LoadedGrammars(Backends(vocabulary.load(pod)))

    def answer(message: wire.ServiceMessage) -> wire.ClientMessage | None:
        if isinstance(message, wire.Load):
            return loaded_grammars.load(message)
        if isinstance(message, wire.Unload):
            loaded_grammars.unload(message)
        return None

    def hello() -> wire.Hello:
        return wire.Hello(role="rank", pid=os.getpid(), boot="bench", rank=0, samples=True)

    ServiceLink(pod.service_socket, hello, answer).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
