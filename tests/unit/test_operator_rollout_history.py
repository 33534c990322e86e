"""Revisions over any history: drawn specs, tokens, rollbacks, releases and pods, against what must hold."""

import dataclasses
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from guided_contract import names
from guided_operator.builders.pod_paths import Site
from guided_operator.reconcile.plan import Plan, plan
from guided_operator.reconcile.rollout.revision import HISTORY_LIMIT
from support.observed import applied, model, pod, seen

Object = dict[str, Any]
RELEASES = [Site(f"registry.test/guidedmodel:{number}") for number in (1, 2, 3)]


class History(RuleBasedStateMachine):
    """One model on one cluster, whose operator is replaced now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.number, self.token, self.back = 0, "", ""
        self.site: Site = RELEASES[0]
        self.observed = seen(self.spec())
        self.templates: dict[str, Object] = {}  # by key, as first rendered
        self.reconcile()

    def spec(self) -> Object:
        rollout = {"restartToken": self.token, "rollbackTo": self.back}
        raw = model(rollout={name: value for name, value in rollout.items() if value})
        raw["spec"]["engine"]["env"] = [{"name": "APP_NUMBER", "value": str(self.number)}]
        return raw

    def reconcile(self) -> Plan:
        """Do what a pass does: write children and prune."""
        self.observed = dataclasses.replace(self.observed, model=self.spec())
        made = plan(self.observed, self.site)
        after = applied(self.observed, self.site)
        for kind, name in made.surplus:
            del after.children[kind.name][name]  # type: ignore[attr-defined]
        self.observed = after
        return made

    @property
    def stored(self) -> dict[str, Object]:
        """The stored revisions by key."""
        items = self.observed.children["ControllerRevision"].values()
        return {item["metadata"]["labels"][names.LABEL_REVISION]: item for item in items}

    @rule(number=st.integers(0, 9))
    def change(self, number: int) -> None:
        self.number = number
        self.reconcile()

    @rule(token=st.sampled_from(["", "a", "b"]))
    def restart(self, token: str) -> None:
        self.token = token
        self.reconcile()

    @rule(site=st.sampled_from(RELEASES))
    def upgrade(self, site: Site) -> None:
        before = plan(self.observed, self.site).children
        self.site = site
        assert plan(self.observed, site).children == before, "an upgrade alone changes nothing"

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        self.back = data.draw(st.sampled_from(sorted(self.stored)))
        assert self.reconcile().revision == self.back

    @precondition(lambda self: self.back)
    @rule()
    def let_the_spec_hold(self) -> None:
        self.back = ""
        made = self.reconcile()
        assert made.revision == made.asked

    @rule(data=st.data())
    def pods_stay(self, data: st.DataObject) -> None:
        of = data.draw(st.lists(st.sampled_from(sorted(self.stored)), max_size=2))
        self.observed = dataclasses.replace(
            self.observed, pods=tuple(pod(f"p{index}", key) for index, key in enumerate(of))
        )
        self.reconcile()

    @rule()
    def roll_back_to_nothing(self) -> None:
        raw = model(rollout={"rollbackTo": "ffffffffff"})
        refused = plan(dataclasses.replace(self.observed, model=raw), self.site)
        assert refused.problems
        assert (refused.children, refused.surplus) == ((), ())

    @invariant()
    def nothing_is_left_to_do(self) -> None:
        again = plan(self.observed, self.site)
        assert again.surplus == ()
        for child in again.children:
            live = self.observed.children[child["kind"]][child["metadata"]["name"]]
            assert {**live, "metadata": {}, "status": {}} == {**child, "metadata": {}, "status": {}}

    @invariant()
    def a_stored_template_never_changes(self) -> None:
        for key, item in self.stored.items():
            assert self.templates.setdefault(key, item["data"]) == item["data"]
        for gone in set(self.templates) - set(self.stored):
            del self.templates[gone]

    @invariant()
    def what_runs_is_the_newest_and_history_is_bounded(self) -> None:
        made = plan(self.observed, self.site)
        newest = max(self.stored.values(), key=lambda item: item["revision"])
        assert newest["metadata"]["labels"][names.LABEL_REVISION] == made.revision
        in_use = {made.revision, made.asked, *(each.revision for each in self.observed.pods)}
        assert len(set(self.stored) - in_use) <= HISTORY_LIMIT
        assert {each.revision for each in self.observed.pods} <= set(self.stored)


History.TestCase.settings = settings(max_examples=20, stateful_step_count=15)
test_history = History.TestCase
