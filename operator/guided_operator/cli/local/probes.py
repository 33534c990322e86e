"""A container's HTTP probes, asked as a kubelet asks them."""

import http.client
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP GET that answers 2xx or 3xx when all is well.

    Attributes
    ----------
    failures
        So many in a row count as failed.
    """

    path: str
    port: int
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def of(cls, probe: Any) -> Self | None:
        """Return a container's probe (V1Probe or None); kubelet's defaults stand for what is not set."""
        if probe is None or probe.http_get is None:
            return None
        return cls(
            path=probe.http_get.path or "/",
            port=int(probe.http_get.port),
            period_s=float(probe.period_seconds or 10),
            timeout_s=float(probe.timeout_seconds or 1),
            failures=int(probe.failure_threshold or 3),
        )

    @property
    def deadline_s(self) -> float:
        """For how long a startup probe may fail."""
        return self.period_s * self.failures

    def ask(self) -> str:
        """Return "" if the probe passes, else why not, in one line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", self.path)
            response = connection.getresponse()
            text = response.read(4096).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return f"{self.path}: {error or type(error).__name__}"
        finally:
            connection.close()
        if 200 <= response.status < 400:
            return ""
        return f"{self.path}: {response.status} {' '.join(text.split())[:200]}".strip()
