"""What CI builds ahead."""

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


def test_it_begins_before_anything_is_installed() -> None:
    """`.ci/run` starts it beside `make setup`: it imports the standard library alone."""
    code = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import devtools.prebuild"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
