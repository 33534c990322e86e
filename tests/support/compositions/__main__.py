"""`make fuzz-schemas`: drawn schemas through our whole path, and what comes out of it judged by jsonschema.

SECONDS=60     for how long
SEED=0         of the first schema; the next has the next number

Each schema is compiled by our path for each library alone, without a proof, since nothing may rest on that.
Random texts are walked through its rank's matchers, from nothing and from beginnings of drawn values; drawn
values and those near to a text, spelt in many ways, are offered to it. An invalid text that is finished is
a failure, and so is a text that one library takes of a schema and the other does not. Ends with 1 then.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from devtools import tinymodel

from support.compositions.attempt import Attempt, Finding
from support.compositions.children import outcome
from support.compositions.libraries import Compilers
from support.compositions.shrinking import shrunk


def main() -> int:
    """Fuzz for a while, print what is found, and return 1 where something is."""
    seconds = float(os.environ.get("SECONDS_EACH") or 60)
    seed = int(os.environ.get("SEED") or 0)
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    until = time.monotonic() + seconds
    number = seed
    with tempfile.TemporaryDirectory() as folder:
        attempt = Attempt(Compilers(tinymodel.models() / "tiny", Path(folder)))
        while time.monotonic() < until:
            found = outcome(lambda number=number: attempt.of(number))
            counts.update(found.counts)
            for finding in found.findings:
                smaller = outcome(lambda finding=finding: shrunk(attempt, finding), limit_s=60)
                findings.append(smaller if isinstance(smaller, Finding) else finding)
                print(findings[-1].shown(number), flush=True)  # noqa: T201 - a program's answer
            number += 1
    print(f"fuzz-schemas: {dict(sorted(counts.items()))}")  # noqa: T201 - likewise
    print(f"fuzz-schemas: seeds {seed} to {number - 1}, and {len(findings)} findings")  # noqa: T201 - likewise
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
