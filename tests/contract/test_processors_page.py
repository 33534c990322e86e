"""docs/processors.md, followed in an empty folder: what it says to save and to run."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/processors.md"
BLOCKS = re.findall(r"^```(python|yaml|sh)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
MODULE, TEST = (text for language, text in BLOCKS if language == "python")
[RESOURCE] = (text for language, text in BLOCKS if language == "yaml")
[COMMANDS] = (text for language, text in BLOCKS if language == "sh")


def followed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Save all there is, and run the page's commands as a stranger's shell does."""
    (folder / "not_twice.py").write_text(MODULE)
    (folder / "test_not_twice.py").write_text(TEST)
    (folder / "model.yaml").write_text(RESOURCE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    known = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))
    }
    return subprocess.run(
        ["sh", "-ec", COMMANDS],
        env=known | {"PATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_the_page_says_to_save_passes_what_it_says_to_run(tmp_path: Path) -> None:
    done = followed(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "GuidedModel default/tiny is valid" in done.stdout
