"""`guidedmodel run`: the pod of a GuidedModel as local processes, until Ctrl-C."""

import contextlib
import json
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from guided_operator.api import GuidedModel, Manifest, ManifestError, read
from guided_operator.cli.inputs import text_of
from guided_operator.cli.local import viewer
from guided_operator.cli.local.collector import Collector
from guided_operator.cli.local.pod import LocalPod, PodError, StoppedError, containers
from guided_operator.cli.local.site import PortTakenError, lay_out, local_site
from guided_operator.cli.local.stop import Stop
from guided_operator.cli.local.traces import TraceBook, tree
from guided_operator.cli.local.viewer import Viewer, ViewerError
from guided_operator.policy.arguments import Arguments, check

# vLLM's exporter sends its spans every 5 s by default; here somebody waits for them.
_EXPORT_SOON: Final = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
_TICK_S: Final = 0.2
_EXAMPLE_SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says besides the manifest."""

    volumes: Mapping[str, Path]
    config_maps: Mapping[str, Path]
    port: int | None = None
    viewer: bool = False


def main(  # noqa: PLR0913 - what the command line has
    file: str,
    volumes: Iterable[tuple[str, Path]],
    config_maps: Iterable[tuple[str, Path]],
    port: int | None,
    arguments: Arguments = "Listed",
    *,
    viewer: bool,
) -> int:
    """Carry out the command; 2: the manifest, the port or the viewer will not do."""
    chosen = RunOptions(volumes=dict(volumes), config_maps=dict(config_maps), port=port, viewer=viewer)
    try:
        return run(_checked(read(text_of(file)), arguments), chosen)
    except ManifestError as error:
        for problem in error.problems:
            sys.stderr.write(f"{file}: {problem}\n")
    except (PortTakenError, ViewerError) as error:
        sys.stderr.write(f"guidedmodel: {error}\n")
    return 2


def _checked(manifest: Manifest, arguments: Arguments) -> Manifest:
    if problems := [*check(manifest.model, arguments)]:
        raise ManifestError(problems)
    return manifest


def run(manifest: Manifest, options: RunOptions) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; return 0 then, and 1 if the pod failed.

    Every process and file of the pod is gone when this returns, or when this process is killed.

    Raises
    ------
    ManifestError
        The model's folder, or a grammar's text, does not exist.
    ViewerError
        A viewer is asked for and not installed.
    """
    gm = manifest.model
    program = viewer.find() if options.viewer else None
    book = TraceBook()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(Stop())
        folder = Path(stack.enter_context(_folder()))
        page = None
        if program is not None:
            page = Viewer.start(program, folder, gm.name)
            stack.callback(page.stop)
        collector = Collector(book) if page is None else Collector(book, page.take)
        stack.callback(collector.close)
        site = local_site(
            folder, volumes=options.volumes, port=options.port, otlp_endpoint=collector.endpoint
        )
        plan = containers(lay_out(manifest, site, options.config_maps))
        pod = LocalPod(plan, folder, environment=_EXPORT_SOON)
        return _serve(pod, stop, book, _greeting(gm, f"http://{site.bind_host}:{site.ports.engine}"), page)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="guidedmodel-", ignore_cleanup_errors=True)


def _serve(pod: LocalPod, stop: Stop, book: TraceBook, greeting: str, page: Viewer | None) -> int:
    started = time.monotonic()
    try:
        pod.start(_say, is_stopping=stop.is_asked)
        _say(f"ready after {time.monotonic() - started:.1f} s")
        _say(greeting)
        if page is not None:
            _show(page)
        while not stop.wait(_TICK_S):
            pod.check()
            pod.check_liveness()
            for spans in book.ripe(time.monotonic()):
                _say(f"{tree(spans)}\n")  # the empty line ends it, for whoever reads our output
    except PodError as error:
        sys.stderr.write(f"guidedmodel: {error}\n")
        if error.log:
            sys.stderr.write(f"The end of its log:\n{error.log}\n")
        return 1
    except StoppedError:
        return 0
    finally:
        if stop.is_asked():
            _say("stopping")
        pod.stop(is_hurried=stop.is_hurried)
    return 0


def _show(page: Viewer) -> None:
    """Name the page, and open it where somebody looks on."""
    try:
        page.wait_ready()
    except ViewerError as error:
        _say(f"guidedmodel: {error}")  # the model is served all the same
        return
    _say(f"traces at {page.url}")
    if sys.stdout.isatty():
        webbrowser.open(page.url)


def _say(text: str) -> None:
    print(text, flush=True)


def _greeting(gm: GuidedModel, url: str) -> str:
    body = {
        "model": gm.served_name,
        "messages": [{"role": "user", "content": "Give me the JSON record for alice"}],
        "max_tokens": 100,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": _EXAMPLE_SCHEMA},
        },
    }
    return (
        f"serving {gm.served_name} at {url}/v1 ; Ctrl-C stops it. Try:\n"
        f"  curl -s {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )
