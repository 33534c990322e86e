"""What `make bench-operator` keeps, judges and prints, and the older revisions that it makes."""

from pathlib import Path

from operatorbench import bars, crowd, records
from operatorbench.records import Changed, Converged, Restarted, Run, Storm

from guided_operator.builders.revision_key import revision_name
from guided_operator.kube import kinds
from guided_operator.reconcile.rollout import revision

MIB = 1 << 20


def run(**found: object) -> Run:
    converged = Converged(
        1.0, 2.0, 0.5, {"operator": 3.0, "API server": 1, "etcd": 1, "player": 1}, 150 * MIB, {}
    )
    changed = Changed(1.0, 20, 0, 0.1, 0.2, 0.3, 21.0, {"operator": 0.5}, {})
    restarted = Restarted(1.0, 230 * MIB, {"list guidedmodels": 1}, 0)
    return Run(
        500, "here", converged, changes=[changed], restarted=restarted, revisions=6, foreign=500, **found
    )


def test_memory_counts_whenever_it_was_highest_and_a_storm_may_cost_no_write(tmp_path: Path) -> None:
    calm = Storm(30.0, refused=90, status_writes=0, events=0, back_s=4.0, peak_bytes=240 * MIB)
    loud = Storm(30.0, refused=90, status_writes=500, events=1, back_s=4.0, peak_bytes=260 * MIB)
    records.save(tmp_path / "r.json", [run(storm=calm)])
    judged = {bar.asks: bar.met for bar in bars.bars(records.load(tmp_path / "r.json"))}
    assert judged["500 models: memory at most 256 MiB"]
    assert judged["500 models, 403 for 30 s: no status write, no event"]
    assert [bar.asks for bar in bars.bars([run(storm=loud)]) if not bar.met] == [
        "500 models: memory at most 256 MiB",
        "500 models, 403 for 30 s: no status write, no event",
    ]
    told = "\n".join(bars.report([run(storm=calm)]))
    assert "| 500 | 6 | 500 |  | 1.0 | 230 | 1 | 240 | 4.0 |" in told
    assert "| 0 of 20 | 25.0 | operator 0, in 21 s |" in told


def test_an_older_revision_is_one_that_the_operator_would_keep() -> None:
    owner = {"apiVersion": "guidedmodel.io/v1alpha1", "kind": "GuidedModel", "uid": "u", "controller": True}
    metadata = {
        "name": "m-0123456789",
        "namespace": "ns",
        "uid": "x",
        "labels": {"guidedmodel.io/revision": "0123456789"},
        "ownerReferences": [owner],
    }
    newest = {"metadata": metadata, "revision": 1, "data": {"template": {}, "config": {}}}
    older = [crowd._older(kinds.REVISION, newest, number) for number in range(5)]
    assert all("uid" not in each["metadata"] for each in older)
    known = revision.stored({each["metadata"]["name"]: each for each in (newest, *older)}, "u")
    assert len(known) == 6
    assert revision.expired(known, {"0123456789"}) == set()
    chosen = revision.choose(known, "0123456789", dict)
    assert (chosen.key, chosen.number) == ("0123456789", 1), "nothing is to be written"
    assert {each["metadata"]["name"] for each in older} == {
        revision_name("m", each["metadata"]["labels"]["guidedmodel.io/revision"]) for each in older
    }
