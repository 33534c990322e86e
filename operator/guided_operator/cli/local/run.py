"""`guidedmodel run`: the pod of a GuidedModel as local processes, until Ctrl-C."""

import contextlib
import json
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from guided_operator.api import GuidedModel, ManifestError, Problem
from guided_operator.cli.inputs import Fault, gather
from guided_operator.cli.local.pod import LocalPod, PodError, StoppedError, containers
from guided_operator.cli.local.site import free_port, lay_out, local_site
from guided_operator.cli.local.traces import Collector, TraceBook, tree
from guided_operator.cli.local.viewer import trace_page
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


@contextlib.contextmanager
def signals_kept() -> Iterator[list[int]]:
    """Keep signals to stop in a list while this is entered.

    The handler takes no lock (an Event has one): it runs in the main thread, between any two of its steps, so
    that it would wait for ever for a lock that this thread holds.
    """
    heard: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, lambda number, _: heard.append(number))) for number in numbers]
    try:
        yield heard
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def main(
    file: str,
    volumes: Mapping[str, Path],
    config_maps: Mapping[str, Path],
    port: int | None,
    *,
    viewer: bool,
) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP: the first ends the pod in order, the second kills it.

    Every process and file of the pod is gone when this returns, or when this process is killed. Return 0 when
    it was stopped, 1 if the pod failed, 2 if the manifest, the port or the viewer will not do.
    """
    inputs = gather([file])
    found = inputs.judged(broken_rules, check_spec)
    if len(inputs.models) > 1:
        found.append(Fault(file, Problem("manifest", "must be one GuidedModel, holds more")))
    if found:
        for fault in found:
            click.echo(fault, err=True)
        return 2
    [(_, model)] = inputs.models
    try:
        page_port = free_port() if viewer else None
        page = f"http://127.0.0.1:{page_port}" if page_port else ""
        with (
            signals_kept() as heard,
            tempfile.TemporaryDirectory(prefix="guidedmodel-", ignore_cleanup_errors=True) as made,
            Collector(book := TraceBook()) as collector,
        ):
            folder = Path(made)
            traces = page or collector.endpoint
            site = local_site(folder, volumes=volumes, port=port, otlp_endpoint=traces)
            plan = containers(lay_out(model, inputs.sources(model), site, config_maps))
            if page_port:
                plan.insert(0, trace_page(folder, page_port))
            pod = LocalPod(plan, folder, click.echo, heard=heard, environment=_EXPORT_SOON)
            greeting = _greeting(model, f"http://{site.bind_host}:{site.ports.engine}")
            return _serve(pod, heard, book, greeting, page)
    except ManifestError as error:
        for problem in error.problems:
            click.echo(f"{file}: {problem}", err=True)
    except PodError as error:
        click.echo(f"guidedmodel: {error}", err=True)
    return 2


def _serve(pod: LocalPod, heard: Sequence[int], book: TraceBook, greeting: str, page: str) -> int:
    started = time.monotonic()
    try:
        pod.start()
        click.echo(f"ready after {time.monotonic() - started:.1f} s\n{greeting}")
        if page:
            click.echo(f"traces at {page}")
            if sys.stdout.isatty():
                webbrowser.open(page)
        while not heard:
            time.sleep(_TICK_S)
            pod.check()
            for spans in book.ripe(time.monotonic()):
                click.echo(f"{tree(spans)}\n")  # the empty line ends it, for whoever reads our output
    except PodError as error:
        click.echo(f"guidedmodel: {error}", err=True)
        if error.log:
            click.echo(f"The end of its log:\n{error.log}", err=True)
        return 1
    except StoppedError:
        pass
    finally:
        if heard:
            click.echo("stopping")
        pod.stop()
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
