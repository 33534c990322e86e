"""Whether a live object is as wanted, whatever defaults and others' fields it has besides."""

from typing import Any

import pytest

from guided_operator.kube.diff import differences


@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        pytest.param({"a": 1}, {"a": 1, "defaulted": True}, id="the server adds fields"),
        pytest.param({"a": "", "b": [], "c": None}, {}, id="empty text, list, null and absent"),
        pytest.param({"a": {"b": ""}}, {}, id="a map of nothing and absent"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}, {"name": "B"}]},
            {"env": [{"name": "X"}, {"name": "B"}, {"name": "A", "value": "1"}]},
            id="lists by key, in another order, with others' items",
        ),
        pytest.param(
            {"m": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]},
            {"m": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a", "readOnly": False}]},
            id="two mounts of one volume",
        ),
    ],
)
def test_nothing_to_do(wanted: Any, live: Any) -> None:
    assert differences(wanted, live) == []


@pytest.mark.parametrize(
    ("wanted", "live", "path"),
    [
        ({"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}, ".spec.replicas"),
        ({"spec": {"replicas": 0}}, {"spec": {}}, ".spec.replicas"),
        ({"a": False}, {}, ".a"),
        ({"a": "1"}, {"a": 1}, ".a"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, ".env[A].name"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, ".env[A].value"),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, ".args[0]"),
        ({"args": ["a"]}, {"args": ["a", "b"]}, ".args"),
        ({"args": ["a"]}, {}, ".args"),
        ({"a": {"b": 1}}, {"a": "text"}, ".a"),
    ],
)
def test_first_difference_is_named(wanted: Any, live: Any, path: str) -> None:
    assert differences(wanted, live)[0] == path
