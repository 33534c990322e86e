"""`guidedmodel run`: the pod of a GuidedModel as local processes, until Ctrl-C."""

import contextlib
import json
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final, Self

import click

from guided_operator.api import GuidedModel, Manifest, ManifestError, read
from guided_operator.cli.inputs import text_of
from guided_operator.cli.local.pod import LocalPod, PodError, StoppedError, containers
from guided_operator.cli.local.site import PortTakenError, lay_out, local_site
from guided_operator.cli.local.traces import Collector, TraceBook, tree
from guided_operator.cli.local.viewer import Viewer, ViewerError
from guided_operator.cli.rules import broken_rules
from guided_operator.policy.spec_checks import check_spec

# vLLM's exporter sends its spans every 5 s by default; here somebody waits for them.
_EXPORT_SOON: Final = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
_TICK_S: Final = 0.2
_EXAMPLE_SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


class Stop:
    """Counts signals to stop while it is entered: the first ends the pod in order, the second kills it.

    The handler takes no lock (an Event has one): it runs in the main thread, between any two of its steps, so
    that it would wait for ever for a lock that this thread holds.
    """

    def __init__(self) -> None:
        self._asked = 0

    def __enter__(self) -> Self:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = [(number, signal.signal(number, self._count)) for number in numbers]
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1

    def is_asked(self) -> bool:
        """Return whether the pod is to end."""
        return self._asked > 0

    def is_hurried(self) -> bool:
        """Return whether it is to end at once."""
        return self._asked > 1

    def wait(self, timeout_s: float) -> bool:
        """Sleep; return whether it was asked for by then. A request does not end the sleep."""
        if not self.is_asked():
            time.sleep(timeout_s)
        return self.is_asked()


def main(
    file: str,
    volumes: Mapping[str, Path],
    config_maps: Mapping[str, Path],
    port: int | None,
    *,
    viewer: bool,
) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP.

    Every process and file of the pod is gone when this returns, or when this process is killed. Return 0 when
    it was stopped, 1 if the pod failed, 2 if the manifest, the port or the viewer will not do.
    """
    try:
        manifest = _checked(read(text_of(file)))
        page = Viewer() if viewer else None
        with contextlib.ExitStack() as stack:
            stop = stack.enter_context(Stop())
            folder = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="guidedmodel-", ignore_cleanup_errors=True)
                )
            )
            book = TraceBook()
            collector = Collector(book, page.take) if page else Collector(book)
            stack.callback(collector.close)
            site = local_site(folder, volumes=volumes, port=port, otlp_endpoint=collector.endpoint)
            plan = containers(lay_out(manifest, site, config_maps))
            if page:
                plan.insert(0, page.container(folder))
            pod = LocalPod(plan, folder, environment=_EXPORT_SOON)
            url = f"http://{site.bind_host}:{site.ports.engine}"
            return _serve(pod, stop, book, _greeting(manifest.model, url), page)
    except ManifestError as error:
        for problem in error.problems:
            click.echo(f"{file}: {problem}", err=True)
    except (PodError, PortTakenError, ViewerError) as error:
        click.echo(f"guidedmodel: {error}", err=True)
    return 2


def _checked(manifest: Manifest) -> Manifest:
    if problems := [*broken_rules(manifest.model), *check_spec(manifest.model)]:
        raise ManifestError(problems)
    return manifest


def _serve(pod: LocalPod, stop: Stop, book: TraceBook, greeting: str, page: Viewer | None) -> int:
    started = time.monotonic()
    try:
        pod.start(click.echo, is_stopping=stop.is_asked)
        click.echo(f"ready after {time.monotonic() - started:.1f} s\n{greeting}")
        if page:
            click.echo(f"traces at {page.url}")
            if sys.stdout.isatty():
                webbrowser.open(page.url)
        while not stop.wait(_TICK_S):
            pod.check()
            for spans in book.ripe(time.monotonic()):
                click.echo(f"{tree(spans)}\n")  # the empty line ends it, for whoever reads our output
    except PodError as error:
        click.echo(f"guidedmodel: {error}", err=True)
        if error.log:
            click.echo(f"The end of its log:\n{error.log}", err=True)
        return 1
    except StoppedError:
        return 0
    finally:
        if stop.is_asked():
            click.echo("stopping")
        pod.stop(is_hurried=stop.is_hurried)
    return 0


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
