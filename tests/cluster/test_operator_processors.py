"""Factories of logits processors, which whoever runs the operator allows: one as it is by default."""

import pytest

from support.cluster import Cluster
from support.resources import await_condition, items, model

pytestmark = pytest.mark.cluster

SHIPPED = {
    "name": "no-repeat",
    "factory": "guided_engine.processors.no_repeat_ngram:NoRepeatNgram",
    "enforced": True,
}
FOREIGN = {"name": "ban", "factory": "acme.processors:Ban"}
TOLD = (
    "spec.logitsProcessors[1].factory: acme.processors:Ban is code that runs in the engine",
    "this operator allows only guided_engine.*: use one of those",
    "have whoever runs the operator add it to limits.processorFactories",
)


@pytest.mark.usefixtures("operator")
def test_the_condition_says_which_why_and_what_to_do(api_server: Cluster, namespace: str) -> None:
    api_server.apply(model(namespace, logitsProcessors=[SHIPPED, FOREIGN]))
    told = await_condition(api_server, namespace, "Compatible", "False", "Invalid")["message"]
    assert [each for each in TOLD if each not in told] == []
    await_condition(api_server, namespace, "Ready", "False", "Incompatible")
    assert items(api_server, namespace) == []
    api_server.apply(model(namespace, logitsProcessors=[SHIPPED]))
    await_condition(api_server, namespace, "Compatible", "True")
    [_] = items(api_server, namespace, "deployments")
