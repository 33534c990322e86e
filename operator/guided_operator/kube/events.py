"""Kubernetes' Events, as the operator posts them."""

import datetime as dt
import hashlib
from typing import Any, Final

from guided_operator.kube import kinds
from guided_operator.kube.apiserver import FIELD_MANAGER, Api

Object = dict[str, Any]
_MAX_MESSAGE: Final = 1024  # as the API server has it


def normal(about: Object, reason: str, message: str, facts: tuple[object, ...], now: dt.datetime) -> Object:
    """Return an event that asks for nothing; its parameters are those of `warning`."""
    return {**warning(about, reason, message, facts, now), "type": "Normal"}


def warning(about: Object, reason: str, message: str, facts: tuple[object, ...], now: dt.datetime) -> Object:
    """Return a Warning, in the namespace of the object that it is about.

    Parameters
    ----------
    about
        A reference: apiVersion, kind, namespace, name and uid.
    facts
        What makes it another event than those before: its name is derived from them and the uid.
    now
        Wall-clock time, with a time zone: the event's timestamps.
    """
    stamp = now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hashlib.sha256("/".join(map(str, (about["uid"], *facts))).encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.{digest[:16]}", "namespace": about["namespace"]},
        "involvedObject": about,
        "type": "Warning",
        "reason": reason,
        "message": message[:_MAX_MESSAGE],
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


async def post(api: Api, event: Object) -> None:
    """Post an event; the API server keeps it for an hour.

    Raises
    ------
    ApiError
        It was not posted; AlreadyExists: it was before.
    """
    await api.create(kinds.api_path("v1", "events", event["metadata"]["namespace"]), event)
