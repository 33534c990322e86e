"""`python -m support.fuzz.one NAME CORPUS -OPTION=...`: one target under atheris, until libFuzzer ends it."""

import logging
import random
import sys

import atheris

from support.fuzz import targets

_OF_LIBFUZZER = 0.3  # the share of changes that it makes itself, of bytes that it has seen compared
_PRODUCT = ["guided_contract", "guided_sidecar", "guided_engine", "guided_grammar"]


def main() -> None:
    name = sys.argv.pop(1)
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=_PRODUCT), targets.made(name) as target:

        def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
            chance = random.Random(seed)
            if chance.random() < _OF_LIBFUZZER:
                return bytes(atheris.Mutate(data, most_bytes))
            return target.mutate(data, chance)[:most_bytes]

        atheris.Setup(sys.argv, target.run, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
