"""docs/processors.md, followed: its module and its test are saved and run, its resource is read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors import registry
from guided_operator.api.manifest import parse
from support.manifests import minimal

PAGE = Path(__file__).resolve().parents[2] / "docs/processors.md"
BLOCKS = re.findall(r"^```(python|yaml)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
MODULE, TEST = (text for language, text in BLOCKS if language == "python")
[RESOURCE] = (yaml.safe_load(text) for language, text in BLOCKS if language == "yaml")


def test_what_the_page_says_to_save_passes_its_own_test(tmp_path: Path) -> None:
    (tmp_path / "not_twice.py").write_text(MODULE)
    (tmp_path / "test_not_twice.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_resource_is_valid_and_names_it() -> None:
    manifest = minimal()
    manifest["spec"] |= RESOURCE["spec"]
    [processor] = parse(manifest).spec.logits_processors
    assert (processor.factory, processor.params) == ("not_twice:NotTwice", {"penalty": 4.0})


def test_every_processor_that_the_page_names_is_there() -> None:
    for factory in re.findall(r"^\| `(guided_engine\.[^`]+)` \|", PAGE.read_text(), re.MULTILINE):
        assert registry.find(LogitsProcessorConfig(name="shipped", factory=factory))
