"""A sampling rank without an engine: loads what the service tells it to, with the plugin's own code.

`python -m grammarbench.rank CONFIG`
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

from guided_contract import config, wire
from guided_engine.ranks.prototypes import Prototypes
from guided_engine.service_link import ServiceLink
from guided_sidecar.grammar import vocabulary


class Vocabulary:
    """The model's tokenizer as a rank holds it."""

    def __init__(self, pod: config.PodConfig) -> None:
        self._words = vocabulary.load(pod)

    def tokenizer_info(self) -> Any:
        """Return xgrammar's TokenizerInfo."""
        return self._words.xgrammar_info

    def guidance_tokenizer(self) -> Any:
        """Return llguidance's LLTokenizer."""
        return self._words.guidance_tokenizer


def main() -> None:
    """Serve until killed."""
    pod = config.decode(Path(sys.argv[1]).read_bytes())
    prototypes = Prototypes(pod.grammars_folder, Vocabulary(pod))
    prototypes.warm()

    def answer(message: wire.ServiceMessage) -> wire.ClientMessage | None:
        if isinstance(message, wire.Load):
            return prototypes.load(message)
        if isinstance(message, wire.Unload):
            prototypes.unload(message)
        return None

    def hello() -> wire.Hello:
        return wire.Hello(role="rank", pid=os.getpid(), boot="bench", rank=0, samples=True)

    ServiceLink(pod.service_socket, hello, answer).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
