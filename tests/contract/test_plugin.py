"""The plugin in a stock environment: not installed, only unpacked in a folder on PYTHONPATH, as in a pod."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from devtools import cache

from guided_contract import names
from support.engine import pod_config, write_config

ROOT = Path(__file__).parents[2]

# vLLM's own loader in a spawned process, as those of ranks are.
_PROGRAM = """
import json, multiprocessing

def load(out):
    from vllm.plugins import load_general_plugins
    load_general_plugins()
    load_general_plugins()
    import guided_engine.plugin
    from guided_engine import ledger
    plugins = __import__("vllm.plugins").plugins.load_plugins_by_group("vllm.general_plugins")
    out.put({
        "file": guided_engine.plugin.__file__,
        "found": "guidedmodel" in plugins,
        "patches": {patch.name: patch.state for patch in ledger.applied()},
    })

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=load, args=(out,))
    process.start()
    print(json.dumps(out.get(timeout=200)))
    process.join()
"""


def build_wheel(folder: Path) -> None:
    """Build the wheel with the pinned backend, unpack it to `folder`/plugin, and leave the operator out."""
    builder = cache.built("wheel-builder", [ROOT / "requirements" / "build.txt", sys.version], _make_builder)
    subprocess.run(
        [
            builder / "bin" / "python",
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            ROOT,
        ],
        cwd=folder,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    (wheel,) = folder.glob("guidedmodel-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "plugin")


def _make_builder(folder: Path) -> None:
    venv.create(folder, with_pip=True)
    requirements = ROOT / "requirements" / "build.txt"
    subprocess.run(
        [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "-r",
            requirements,
        ],
        check=True,
    )


@pytest.fixture(scope="module")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build_wheel(folder)
    return folder / "plugin"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what is installed here, except the distribution of ours."""
    folder = tmp_path_factory.mktemp("stock")
    (installed,) = (Path(path) for path in sys.path if path.endswith("site-packages"))
    for item in installed.iterdir():
        if "guidedmodel" not in item.name:
            (folder / item.name).symlink_to(item)
    return folder


def run(program: Path, paths: list[Path], **variables: str) -> dict[str, object]:
    """Run the program with nothing but `paths` on its path; return what its process found."""
    path = os.pathsep.join(map(str, paths))
    env = {**os.environ, "PYTHONPATH": path, "VLLM_LOGGING_LEVEL": "ERROR", **variables}
    # -S: the folder of installed packages is not read, so what is not on the path is not installed.
    done = subprocess.run(
        [sys.executable, "-S", program],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(_PROGRAM)
    return path


def test_wheel_holds_what_a_pod_needs(plugin_folder: Path) -> None:
    for package in ("guided_contract", "guided_engine", "guided_sidecar"):
        assert (plugin_folder / package / "__init__.py").exists()
    (entry_points,) = plugin_folder.glob("guidedmodel-*.dist-info/entry_points.txt")
    assert "guidedmodel = guided_engine.plugin:register" in entry_points.read_text()


def test_a_process_of_vllms_loads_the_plugin(
    plugin_folder: Path, stock: Path, program: Path, tmp_path: Path
) -> None:
    config = write_config(pod_config(tmp_path, "m"))
    process = run(program, [plugin_folder, stock], **{names.ENV_CONFIG: str(config)})
    assert process["found"]
    assert Path(str(process["file"])).is_relative_to(plugin_folder)
    patches = process["patches"]
    assert isinstance(patches, dict)
    assert {"admission", "validators", "core-detached"} <= patches.keys()
    assert set(patches.values()) <= {"Applied", "Skipped"}
