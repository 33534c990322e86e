"""The guided probe: a real guided request to this pod's engine, its answer checked against the schema."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import aiohttp

from guided_contract import trace_context
from guided_contract.config import PodConfig
from guided_contract.status import Failure
from guided_contract.tasks import Living
from guided_sidecar.socket.snapshot import ServiceSnapshot

# Two fixed strings: no model can spoil them with endless whitespace, which an object's grammar allows it,
# and none would write one of them and stop unless the mask made it.
SCHEMA: Final[dict[str, Any]] = {"enum": ["guided", "ranked"]}
_MAX_TOKENS: Final = 32  # bytes of the longest answer, for a tokenizer of bytes, and the end token


class ProbeStatus(NamedTuple):
    """What became of the probe."""

    state: Literal["Pending", "Passed", "Failed", "Busy"]
    message: str = ""


_PENDING: Final = ProbeStatus(state="Pending")

_log: Final = logging.getLogger(__name__)


class GuidedProbe:
    """Asks until the running engine start has answered well once. A pod that drains is asked nothing.

    Parameters
    ----------
    snapshot
        Names the engine start, and tells whether a guided request can be admitted at all.
    steps
        The engine core's steps so far: tells a slow engine from a dead one.
    api_key
        What the engine's clients must send; "": nothing.
    timeout_s
        For one request.
    poll_s
        From one look at the engine to the next, which notices a new start of it.
    delay_s
        After a failure, instead.
    """

    def __init__(  # noqa: PLR0913 - the times are for tests
        self,
        config: PodConfig,
        snapshot: Callable[[], ServiceSnapshot],
        steps: Callable[[], int],
        *,
        api_key: str = "",
        timeout_s: float = 60.0,
        poll_s: float = 1.0,
        delay_s: float = 10.0,
    ) -> None:
        self._config = config
        self._snapshot = snapshot
        self._steps = steps
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._poll_s = poll_s
        self._delay_s = delay_s
        self._key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = f"http://127.0.0.1:{config.ports.engine}/v1/completions"
        self._boot = ""
        self.status = _PENDING  # the outcome for the engine start that was looked at last
        self.last_failure: Failure | None = None
        self._prober = Living("guided-probe", self._probe_forever)
        self.start, self.stop = self._prober.start, self._prober.stop

    async def _probe_forever(self) -> None:
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            while True:
                snapshot = self._snapshot()
                if snapshot.boot != self._boot:
                    self._boot, self.status = snapshot.boot, _PENDING
                if self.status.state != "Passed" and self._can_answer(snapshot):
                    self._note(await self._ask(session))
                await asyncio.sleep(self._delay_s if self.status.state == "Failed" else self._poll_s)

    def _can_answer(self, snapshot: ServiceSnapshot) -> bool:
        """Tell whether a guided request can be admitted: a pod that starts is no failure."""
        if not snapshot.boot or self._config.is_draining:
            return False
        has_all = snapshot.workers.ready and len(snapshot.ranks) >= len(snapshot.expected_ranks)
        return bool(has_all) or self._config.guided_decoding.placement != "Rank"

    async def _ask(self, session: aiohttp.ClientSession) -> ProbeStatus:
        before = self._steps()
        try:
            async with session.post(
                self._url,
                json=self._request(),
                headers={"traceparent": trace_context.new(ratio=0).traceparent, **self._key},
            ) as response:
                text = await response.text(errors="replace")
                # Stock vLLM masks nothing on this route where the model has a reasoning parser.
                if response.status == 200 and self._config.guided_decoding.placement != "Rank":
                    return ProbeStatus(state="Passed")
                return judge_answer(response.status, text)
        except TimeoutError:
            if self._steps() > before:
                return ProbeStatus(
                    state="Busy", message="the engine is busy; the guided probe waits its turn"
                )
            return _failed(f"no answer within {self._timeout.total:g} s, and the engine completed no step")
        except aiohttp.ClientConnectorError:  # it listens when it has an engine
            return ProbeStatus(state="Pending", message="the API server does not listen yet")
        except aiohttp.ClientError as error:
            return _failed(f"the request failed: {error or type(error).__name__}")

    def _request(self) -> dict[str, Any]:
        schema = {"name": "guided_probe", "schema": SCHEMA}
        return {
            "model": self._config.served_name,
            "prompt": "Answer:",
            "max_tokens": _MAX_TOKENS,
            "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": schema},
        }

    def _note(self, status: ProbeStatus) -> None:
        if status.state == "Failed":
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.last_failure = Failure(code="guided_probe_failed", message=status.message, time=now)
        if status != self.status:
            level = logging.WARNING if status.state == "Failed" else logging.INFO
            _log.log(level, "guided probe: %s %s", status.state, status.message)
        self.status = status


def judge_answer(status: int, body: str) -> ProbeStatus:
    """Return what an HTTP answer to the probe's request means. Its text stays out: it could be anything."""
    if status == 503:
        return ProbeStatus(state="Pending", message="guided requests are not admitted yet (HTTP 503)")
    try:
        answer = json.loads(body)
        if status != 200:
            return _failed(f"HTTP {status}, code {answer['error']['code']}")
        text, finish = answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return _failed("the answer is not a completion" if status == 200 else f"HTTP {status}, no error code")
    if finish != "stop":
        return _failed(f"the answer did not finish within {_MAX_TOKENS} tokens (finish reason {finish})")
    with contextlib.suppress(ValueError, TypeError, RecursionError):  # it is no JSON, or no text
        if json.loads(text) in SCHEMA["enum"]:
            return ProbeStatus(state="Passed")
    return _failed("the answer does not match the schema: the mask was not applied")


def _failed(message: str) -> ProbeStatus:
    return ProbeStatus(state="Failed", message=f"guided probe: {message}")
