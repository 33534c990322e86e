"""That what a demo installs is enough: CI runs it in the development environment, which has more."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

WHERE_IT_IS = {"nvidia-cusolver"}  # torch loads it ahead where it is, and imports without it
REQUIREMENTS = Path(__file__).parents[2] / "requirements/demo.txt"


def test_a_demo_has_every_library_that_torch_loads(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loaded")}
    subprocess.run([sys.executable, "-c", "import torch"], check=True, env=environment, timeout=120)
    said = "".join(each.read_text(errors="replace") for each in tmp_path.iterdir())
    loaded = {Path(path).resolve() for path in re.findall(r"calling init: (/\S+)", said)}

    installed = set(re.findall(r"^([\w.-]+)==", REQUIREMENTS.read_text(), re.MULTILINE))
    needed = {
        distribution.name
        for distribution in importlib.metadata.distributions()
        if distribution.name.startswith(("nvidia", "torch", "triton"))
        for file in distribution.files or ()
        if ".so" in file.name and Path(str(distribution.locate_file(file))).resolve() in loaded
    }
    assert {"torch", "nvidia-cuda-cupti"} <= needed
    assert needed - WHERE_IT_IS <= installed
