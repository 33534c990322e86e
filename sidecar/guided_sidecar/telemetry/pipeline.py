"""All of the sidecar's telemetry as one thing to start and stop."""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource

from guided_contract.config import PodConfig
from guided_contract.records import Digests
from guided_sidecar.telemetry import conventions, otlp_metrics, spans
from guided_sidecar.telemetry.decode_spans import Decodes
from guided_sidecar.telemetry.exporter import span_processor
from guided_sidecar.telemetry.incidents import Desyncs
from guided_sidecar.telemetry.metrics import SidecarMetrics
from guided_sidecar.telemetry.processor_failures import ProcessorFailures
from guided_sidecar.telemetry.record_receiver import TelemetryReceiver
from guided_sidecar.telemetry.span_metrics import MEASURED

FLUSH_DEADLINE_S: Final = 5.0  # of a pod's 30 s to end, after the engine has gone


class Instruments:
    """What the sidecar's parts tell by: a tracer, metrics. Make it after any fork.

    Where they go is in the environment, as `otel_variables.environment` makes it; without a collector,
    figures are for whoever reads /metrics.
    """

    def __init__(self, config: PodConfig) -> None:
        resource = Resource.create({}, conventions.SCHEMA_URL)
        is_traced = config.telemetry.endpoint is not None
        self.metrics = SidecarMetrics(
            config.tensor_parallel,
            traced=is_traced,
            processors=[processor.name for processor in config.logits_processors],
        )
        # Without a collector the contexts of other processes' traces still travel, and no trace begins here.
        share = config.telemetry.sampling if is_traced else 0.0
        self.provider = spans.provider(resource, share=share, measured=MEASURED)
        self.provider.add_span_processor(self.metrics.spans)
        if (way_out := span_processor(config.telemetry, self.metrics.registry)) is not None:
            self.provider.add_span_processor(way_out)
        self.figures = otlp_metrics.figures(self.metrics.registry, resource, os.environ)
        self.tracer = spans.tracer(self.provider)
        self.desyncs = Desyncs(self.tracer)


class Telemetry:
    """The receiver of what other processes tell, and the way out for all of it.

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

    def guided_served_s(self) -> float:
        """Return when a guided request was last answered well, by time.monotonic; -inf: never."""
        return self._records.guided_served_s

    def processor_failures(self) -> Mapping[str, int]:
        """Return how many sequences ended for each logits processor, by its name."""
        return self._failures.counts

    async def start(self) -> None:
        """Listen for records.

        Raises
        ------
        OSError
            The socket cannot be bound.
        """
        self._records.start()

    async def stop(self, deadline_s: float = FLUSH_DEADLINE_S) -> None:
        """Stop listening and send what is left, for at most `deadline_s`."""
        self._records.stop()
        self._decodes.flush()
        ends: list[Callable[[], None]] = [self._instruments.provider.shutdown]
        if self._instruments.figures is not None:
            ends.append(self._instruments.figures.shutdown)
        # In threads that end with the process: a collector that does not answer takes longer.
        sending = [threading.Thread(target=end, daemon=True) for end in ends]
        for thread in sending:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join, deadline_s) for thread in sending))
