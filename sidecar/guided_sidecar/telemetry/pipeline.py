"""All of the sidecar's telemetry as one thing to start and stop."""

from collections.abc import Callable
from typing import Final

from guided_contract.config import PodConfig
from guided_contract.records import Digests
from guided_sidecar.telemetry import otlp_transport, spans
from guided_sidecar.telemetry.decode_spans import Decodes
from guided_sidecar.telemetry.exporter import Exporter, SpanBatches
from guided_sidecar.telemetry.incidents import Desyncs
from guided_sidecar.telemetry.metrics import ExportCollector, SidecarMetrics
from guided_sidecar.telemetry.otlp_receiver import OtlpReceiver
from guided_sidecar.telemetry.record_receiver import TelemetryReceiver
from guided_sidecar.telemetry.resource import of_the_pod, resource
from guided_sidecar.telemetry.span_metrics import MEASURED

FLUSH_DEADLINE_S: Final = 5.0  # of a pod's 30 s to end, after the engine has gone


class Telemetry:
    """Spans, metrics, and the receivers that feed them. Make it in a running event loop, after any fork.

    Parameters
    ----------
    pod
        The pod's Kubernetes name; "" for local processes.
    on_digests
        Takes the ranks' digests, which come among the records.
    """

    def __init__(
        self,
        config: PodConfig,
        *,
        pod: str = "",
        on_digests: Callable[[Digests], None] = lambda _digests: None,
    ) -> None:
        self.metrics = SidecarMetrics()
        described = resource(config, pod=pod)
        collector = otlp_transport.connect(config.telemetry)
        self._exporter = None if collector is None else Exporter(collector)
        # Without a collector the contexts of other processes' traces still travel, and no trace begins here.
        share = 0.0 if collector is None else config.telemetry.sampling
        self._provider = spans.provider(described, share=share, measured=MEASURED)
        self._provider.add_span_processor(self.metrics.spans)
        if self._exporter is not None:
            self._provider.add_span_processor(SpanBatches(self._exporter))
            self.metrics.registry.register(ExportCollector(self._exporter.counts))
        self.tracer = spans.tracer(self._provider)
        self.desyncs = Desyncs(self.tracer)
        self._decodes = Decodes(config.tensor_parallel, self.tracer, self.desyncs)
        self._records = TelemetryReceiver(
            config.telemetry_socket, self.tracer, self._decodes, self.metrics, on_digests
        )
        self._otlp = OtlpReceiver(config.ports.otlp, self._exporter, of_the_pod(described))

    async def start(self) -> None:
        """Listen for records and vLLM's spans, and begin to export.

        Raises
        ------
        OSError
            The socket or the port cannot be bound.
        """
        self._records.start()
        await self._otlp.start()
        if self._exporter is not None:
            self._exporter.start()

    async def stop(self, deadline_s: float = FLUSH_DEADLINE_S) -> None:
        """Stop listening and send what is left, for at most `deadline_s`."""
        self._records.stop()
        self._decodes.flush()
        self.desyncs.flush()
        await self._otlp.stop()
        self._provider.force_flush()
        self._provider.shutdown()
        if self._exporter is not None:
            await self._exporter.stop(deadline_s)
