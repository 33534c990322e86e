"""All of the sidecar's telemetry as one thing to start and stop."""

from collections.abc import Callable
from typing import Final

from guided_contract.config import PodConfig
from guided_contract.records import Digests
from guided_sidecar.telemetry import otlp_transport, resource
from guided_sidecar.telemetry.decode_spans import Decodes
from guided_sidecar.telemetry.exporter import Exporter
from guided_sidecar.telemetry.incidents import Desyncs
from guided_sidecar.telemetry.metrics import ExportCollector, SidecarMetrics
from guided_sidecar.telemetry.otlp_receiver import OtlpReceiver
from guided_sidecar.telemetry.otlp_spans import DisabledSpans, OtlpSpans
from guided_sidecar.telemetry.record_receiver import TelemetryReceiver

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
        self.spans: OtlpSpans | DisabledSpans = DisabledSpans(self.metrics.take_span)
        self._exporter: Exporter | None = None
        described = resource.attributes(config, pod=pod)
        collector = otlp_transport.connect(config.telemetry)
        if collector is not None:
            self._exporter = Exporter(collector)
            self.spans = OtlpSpans(
                self._exporter,
                described,
                sampling=config.telemetry.sampling,
                observe=self.metrics.take_span,
            )
            self.metrics.registry.register(ExportCollector(self._exporter.counts))
        self.desyncs = Desyncs(self.spans)
        self._decodes = Decodes(config.tensor_parallel, self.spans, self.desyncs)
        self._records = TelemetryReceiver(
            config.telemetry_socket, self.spans, self._decodes, self.metrics, on_digests
        )
        self._otlp = OtlpReceiver(config.ports.otlp, self._exporter, described)

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
        self.spans.flush()
        if self._exporter is not None:
            await self._exporter.stop(deadline_s)
