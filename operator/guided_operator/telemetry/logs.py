"""The operator's log: lines for people or JSON for machines, each with the GuidedModel that it is about."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from opentelemetry import trace

from guided_operator.kube.key import Key

LogFormat = Literal["text", "json"]

_about: ContextVar[Key | None] = ContextVar("guided_operator_log_about", default=None)


@contextmanager
def about(key: Key) -> Iterator[None]:
    """Say that what is logged meanwhile, by this task, is about this GuidedModel."""
    token = _about.set(key)
    try:
        yield
    finally:
        _about.reset(token)


def configure(level: str, form: LogFormat) -> None:
    """Have everything logged to standard error in this form."""
    logging.basicConfig(level=level, handlers=[handler(form)], force=True)
    # A line per watched event says nothing that the status does not say better; and that it leaves signals
    # alone is what we want of it.
    logging.getLogger("kopf").setLevel(logging.ERROR)


def handler(form: LogFormat) -> logging.Handler:
    """Return what writes to standard error; a line of text has time, level, logger, GuidedModel, message."""
    made = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(about)s%(message)s")
    made.setFormatter(JsonFormatter() if form == "json" else text)
    made.addFilter(_with_model_without_kopfs_inside)
    return made


def _with_model_without_kopfs_inside(record: logging.LogRecord) -> bool:
    """Pass everything; of what the API server refused to kopf, the words and no traces of kopf's tasks.

    Of its watches that are cut off as the process ends, nothing.
    """
    key = _about.get()
    record.about = f"{key}: " if key else ""
    if record.name.startswith("kopf"):
        record.exc_info = None
    return not (record.name == "asyncio" and "closing of asynchronous generator" in record.getMessage())


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message; namespace and name; trace; exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if key := _about.get():
            line |= {"namespace": key.namespace, "name": key.name}
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            line |= {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
