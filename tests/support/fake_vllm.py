"""A distribution named vllm, of any version, whose API server is a small program with real children.

It holds what the launcher cares about: /health, a core below it and a rank below that; TERM ends all.
"""

import json
from pathlib import Path

# The arguments decide how it behaves; it writes what it got, and its pids, to a file.
_API_SERVER = """
import http.server, importlib.metadata, json, os, signal, subprocess, sys, threading, time

def option(name, default=""):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default

# Only when asked for: the ledger's modules import torch, which takes seconds.
patches = []
if "--plugins" in sys.argv:
    for plugin in importlib.metadata.entry_points(group="vllm.general_plugins", name="guidedmodel"):
        plugin.load()()
    from guided_engine import ledger
    patches = [patch.name for patch in ledger.applied()]

sleeper = "import signal, sys, time; %s time.sleep(600)"
deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if "--deaf" in sys.argv else ""
rank = sleeper % deaf
core = "import subprocess as s,sys; p = s.Popen([sys.executable, '-c', %r]); print(p.pid, flush=True);" % rank
child = subprocess.Popen(
    [sys.executable, "-c", core + rank],
    stdout=subprocess.PIPE,
    text=True,
    start_new_session="--setsid" in sys.argv,
)
rank_pid = int(child.stdout.readline())

def end(*_):
    if "--deaf" in sys.argv:
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would wait for the lock of the wait below
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.kill(rank_pid, signal.SIGKILL)
    child.kill()
    child.wait()
    os._exit(int(option("--exit", "0")))

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass

if "--sick" not in sys.argv:
    server = http.server.HTTPServer(("127.0.0.1", int(option("--port"))), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
said = {
    "argv": sys.argv[1:], "env": dict(os.environ), "pids": [os.getpid(), child.pid, rank_pid],
    "patches": patches, "pgid": os.getpgrp(),
}
path = os.path.join(os.environ["FAKE_VLLM_OUT"])
open(path + ".part", "w").write(json.dumps(said))
os.rename(path + ".part", path)
if "--die" in sys.argv:
    os._exit(int(option("--die")))
while True:
    time.sleep(0.1)  # a signal that comes right before a sleep is handled right after it
"""


def make(folder: Path, version: str) -> Path:
    """Write the distribution; with the folder first on PYTHONPATH it is the installed vLLM."""
    package = folder / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True, exist_ok=True)
    for level in (package, package.parent, package.parent.parent):
        (level / "__init__.py").touch()
    for module in (package / "main.py", folder / "vllm" / "envs.py"):  # compat.serve begins with it
        module.write_text(_API_SERVER)
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return folder


def said(path: Path) -> dict[str, object]:
    """Return what the program wrote."""
    return dict(json.loads(path.read_text()))
