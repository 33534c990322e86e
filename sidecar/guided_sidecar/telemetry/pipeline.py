"""All of the sidecar's telemetry as one thing to start and stop."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from guided_contract.config import PodConfig
from guided_contract.records import Digests
from guided_sidecar.export_options import USUAL, ExportOptions, MetricOptions
from guided_sidecar.telemetry import otlp_transport, spans
from guided_sidecar.telemetry.decode_spans import Decodes
from guided_sidecar.telemetry.exporter import Exporter, SpanBatches
from guided_sidecar.telemetry.incidents import Desyncs
from guided_sidecar.telemetry.metrics import ExportCollector, SidecarMetrics
from guided_sidecar.telemetry.otlp_metrics import MetricExports
from guided_sidecar.telemetry.otlp_receiver import OtlpReceiver
from guided_sidecar.telemetry.otlp_transport import METRICS
from guided_sidecar.telemetry.processor_failures import ProcessorFailures
from guided_sidecar.telemetry.record_receiver import TelemetryReceiver
from guided_sidecar.telemetry.resource import of_the_pod, resource
from guided_sidecar.telemetry.span_metrics import MEASURED

FLUSH_DEADLINE_S: Final = 5.0  # of a pod's 30 s to end, after the engine has gone


class Instruments:
    """What the sidecar's parts tell by: a tracer, metrics. Make it in a running event loop, after any fork.

    Parameters
    ----------
    pod
        The pod's Kubernetes name; "" for local processes.
    export
        How spans are sent.
    metrics
        Where figures are sent; None: whoever wants them reads /metrics.

    Attributes
    ----------
    exporter
        Where spans go; None without a collector.
    """

    def __init__(
        self,
        config: PodConfig,
        *,
        pod: str = "",
        export: ExportOptions = USUAL,
        metrics: MetricOptions | None = None,
    ) -> None:
        self.resource = resource(config, pod=pod)
        collector = otlp_transport.connect(config.telemetry, export)
        self.metrics = SidecarMetrics(
            config.tensor_parallel,
            traced=collector is not None,
            processors=[processor.name for processor in config.logits_processors],
        )
        self.exporter = None if collector is None else Exporter(collector)
        # Without a collector the contexts of other processes' traces still travel, and no trace begins here.
        share = 0.0 if collector is None else config.telemetry.sampling
        self.provider = spans.provider(self.resource, share=share, measured=MEASURED)
        self.provider.add_span_processor(self.metrics.spans)
        if self.exporter is not None:
            self.provider.add_span_processor(SpanBatches(self.exporter, export))
            self.metrics.registry.register(ExportCollector(self.exporter.counts))
        self.figures = None if metrics is None else self._figures(metrics)
        self.tracer = spans.tracer(self.provider)
        self.desyncs = Desyncs(self.tracer)

    def _figures(self, options: MetricOptions) -> MetricExports | None:
        transport = otlp_transport.connect(options.to, options.export, METRICS)
        if transport is None:
            return None
        return MetricExports(self.metrics.registry, self.resource, transport, options.interval_s)


class Telemetry:
    """The receivers of what other processes tell, and the way out for all of it.

    Parameters
    ----------
    on_digests
        Takes the ranks' digests, which come among the records.
    """

    def __init__(
        self, config: PodConfig, instruments: Instruments, on_digests: Callable[[Digests], None]
    ) -> None:
        self._instruments = instruments
        self._decodes = Decodes(config.tensor_parallel, instruments.tracer, instruments.desyncs)
        self._failures = ProcessorFailures(
            config.logits_processors, config.tensor_parallel, instruments.tracer
        )
        self._records = TelemetryReceiver(
            config.telemetry_socket,
            instruments.tracer,
            self._decodes,
            instruments.metrics,
            on_digests,
            self._failures.take,
        )
        self._otlp = OtlpReceiver(config.ports.otlp, instruments.exporter, of_the_pod(instruments.resource))

    def guided_served_s(self) -> float:
        """Return when a guided request was last answered well, by time.monotonic; -inf: never."""
        return self._records.guided_served_s

    def processor_failures(self) -> Mapping[str, int]:
        """Return how many sequences ended for each logits processor, by its name."""
        return self._failures.counts

    async def start(self) -> None:
        """Listen for records and vLLM's spans, and begin to export.

        Raises
        ------
        OSError
            The socket or the port cannot be bound.
        """
        self._records.start()
        await self._otlp.start()
        if self._instruments.exporter is not None:
            self._instruments.exporter.start()
        if self._instruments.figures is not None:
            self._instruments.figures.start()

    async def stop(self, deadline_s: float = FLUSH_DEADLINE_S) -> None:
        """Stop listening and send what is left, for at most `deadline_s`."""
        self._records.stop()
        self._decodes.flush()
        self._instruments.desyncs.flush()
        await self._otlp.stop()
        self._instruments.provider.force_flush()
        self._instruments.provider.shutdown()
        ways_out = (self._instruments.exporter, self._instruments.figures)
        await asyncio.gather(*(way.stop(deadline_s) for way in ways_out if way is not None))
