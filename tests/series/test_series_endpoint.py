"""GET series: forms, windows, caches, forks and late evaluations."""

from __future__ import annotations

import csv
import io
import time
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Run
from service.series import endpoints
from service.worker.seal import seal_run
from tests.ingest.store_client import Store


def seal(engine: Engine) -> None:
    with reading(engine) as session:
        runs = session.scalars(select(Run.id)).all()
    for run_id in runs:
        seal_run(engine, run_id)


def get(store: Store, **query: Any) -> Any:
    headers = query.pop("headers", {})
    return store.http.get(f"/api/v1/runs/{store.run()}/series", params=query, headers=headers)


@pytest.fixture
def filled(store: Store) -> Store:
    """Two segments: the second starts after step 3. A metric with a name that no path would take."""
    first = store.start(started_at=1.0, sent_at=time.time())
    store.batch(first, [1, 2, 3, 4], {"a": [1.0, float("nan"), -0.0, 4.0], 'b/../"é,': [None, 0.1, None, None]})
    second = store.start(started_at=2.0, sent_at=time.time(), start_step=3)
    store.batch(second, [4, 5], {"a": [40.0, float("-inf")]})
    return store


def test_every_form_says_the_same(filled: Store, engine: Engine) -> None:
    names = ["a", 'b/../"é,']
    expected = [
        ("a", 1, 10.0, "1.0"),
        ("a", 2, 20.0, "nan"),
        ("a", 3, 30.0, "-0.0"),
        ("a", 4, 40.0, "40.0"),
        ("a", 5, 50.0, "-inf"),
        ('b/../"é,', 2, 20.0, "0.1"),
    ]
    for _ in range(2):
        series = filled.read(*names)
        assert [
            (name, step, tokens, str(float(value)))
            for name in names
            for step, tokens, value in zip(*series[name].values(), strict=True)
        ] == expected
        for tables in (
            pa.ipc.open_stream(get(filled, metric=names, format="arrow").content).read_all(),
            pa.ipc.open_stream(
                get(filled, metric=names, headers={"accept": "application/vnd.apache.arrow.stream"}).content
            ).read_all(),
            pq.read_table(io.BytesIO(get(filled, metric=names, format="parquet").content)),
        ):
            rows = tables.to_pylist()
            assert [(r["metric"], r["step"], r["tokens"], str(r["value"])) for r in rows] == expected
        answer = get(filled, metric=names, headers={"accept": "text/csv"})
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.reader(io.StringIO(answer.text)))
        assert rows[0] == ["metric", "step", "tokens", "value"]
        assert [(m, int(s), float(t), str(float(v))) for m, s, t, v in rows[1:]] == expected
        seal(engine)


def test_superseded_points_stay_readable(filled: Store) -> None:
    series = filled.read("a", superseded=True)["a"]
    assert series["steps"] == [1, 2, 3, 4, 4, 5]
    assert series["live"] == [True, True, True, False, True, True]
    assert series["values"][3:] == [4.0, 40.0, "-Infinity"]
    first, second = series["segments"][0], series["segments"][-1]
    assert series["segments"] == [first] * 4 + [second] * 2
    rows = list(csv.DictReader(io.StringIO(get(filled, metric="a", format="csv", superseded=True).text)))
    assert [row["live"] for row in rows] == ["true", "true", "true", "false", "true", "true"]
    table = pa.ipc.open_stream(get(filled, metric="a", format="arrow", superseded=True).content).read_all()
    assert table.column("segment").to_pylist() == series["segments"]


def test_windows_and_overviews(filled: Store) -> None:
    assert filled.read("a", **{"from": 2, "to": 4})["a"]["steps"] == [2, 3, 4]
    overview = filled.read("a", points=2)["a"]
    assert overview == {
        "width": 4,
        "steps": [3, 5],
        "tokens": [30.0, 50.0],
        "minimum": [-0.0, 40.0],
        "maximum": [1.0, 40.0],
        "mean": [0.5, 40.0],
        "first": [1.0, 40.0],
        "last": [-0.0, "-Infinity"],
        "count": [3, 2],
        "non_finite": [1, 1],
    }
    assert filled.read("a", points=1, **{"from": 2, "to": 2})["a"]["minimum"] == [None]
    assert filled.read("a", points=9, **{"from": 50})["a"]["steps"] == []
    assert filled.read("axis/time")["axis/time"]["values"] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_is_not_there_is_404_and_named(filled: Store) -> None:
    answer = get(filled, metric=["a", "nope"])
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert "nope" in answer.json()["detail"]
    for run in (uuid.uuid4(), "no-id"):
        found = filled.http.get(f"/api/v1/runs/{run}/series", params={"metric": "a"})
        assert found.status_code in (404, 422)
    for query in ({}, {"metric": "a", "points": 0}, {"metric": "a", "from": -1}, {"metric": "a", "format": "xml"}):
        assert get(filled, **query).status_code == 422
    assert get(filled, metric="a", points=5, format="csv").json()["errors"][0]["field"] == "points"


def test_an_answer_has_a_tag_until_new_data_come(filled: Store, engine: Engine) -> None:
    for query in ({}, {"points": 3}, {"format": "csv"}, {"format": "arrow"}):
        first = get(filled, metric="a", **query)
        tag = first.headers["etag"]
        same = get(filled, metric="a", headers={"if-none-match": tag}, **query)
        assert (same.status_code, same.content) == (304, b"")
        seal(engine)
        after = get(filled, metric="a", **query)
        assert (after.headers["etag"], after.content) == (tag, first.content)
        segment = filled.start(start_step=5 + len(query))
        assert get(filled, metric="a", headers={"if-none-match": tag}, **query).status_code == 200
        tag = get(filled, metric="a", **query).headers["etag"]
        filled.batch(segment, [9], {"a": [9.0]})
        assert get(filled, metric="a", headers={"if-none-match": tag}, **query).status_code == 200
    assert get(filled, metric="a", points=3).headers["etag"] != get(filled, metric="a", points=4).headers["etag"]


def test_long_series_are_streamed_whole(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from service.series import formats

    whole = filled.read("a")["a"]
    text = get(filled, metric="a", format="csv").text
    for module in (endpoints, formats):
        monkeypatch.setattr(module, "PIECE", 2)
    monkeypatch.setattr(endpoints, "_answers", endpoints.AnswerCache())
    assert filled.read("a")["a"] == whole
    assert get(filled, metric="a", format="csv").text == text


def test_a_fork_keeps_what_its_parent_had(store: Store) -> None:
    """The parent goes on, and rewinds: neither changes what the fork took."""
    now = time.time()
    first = store.start("parent", started_at=now - 50)
    store.batch(first, [1, 2, 3, 4], {"a": [1.0, 2.0, 3.0, 4.0], "only/parent": [1.0] * 4})
    fork = store.start("child", started_at=now - 40, start_step=3, forked_from={"run": "parent", "step": 3})
    store.batch(fork, [4, 5], {"a": [40.0, 50.0]})
    rewound = store.start("parent", started_at=now - 30, start_step=1, tokens_per_step=1)
    store.batch(rewound, [2, 3], {"a": [-2.0, -3.0]})
    assert store.read("a", run="child")["a"] == {
        "steps": [1, 2, 3, 4, 5],
        "tokens": [10.0, 20.0, 30.0, 40.0, 50.0],
        "values": [1.0, 2.0, 3.0, 40.0, 50.0],
    }
    assert store.read("only/parent", run="child")["only/parent"]["steps"] == [1, 2, 3]
    assert store.read("a", run="parent")["a"]["values"] == [1.0, -2.0, -3.0]
    store.batch(first, [2], {"late": [2.0]})  # synchronised late; the segment keeps its place
    assert store.read("late", run="child")["late"]["values"] == [2.0]
    grandchild = store.start(
        "grandchild", started_at=now - 20, start_step=2, forked_from={"run": store.run("child"), "step": 2}
    )
    store.batch(grandchild, [3], {"a": [300.0]})
    assert store.read("a", run="grandchild")["a"]["values"] == [1.0, 2.0, 300.0]


def test_late_evaluations_belong_to_the_weights_that_were_there(store: Store) -> None:
    now = time.time()
    old = store.start(started_at=now - 100)
    store.batch(old, [1, 9], {"a": [1.0, 9.0]})
    store.post(old, "events", step=8, kind="checkpoint", value="x", at=now - 90)
    evaluator = store.start(kind="evaluator", started_at=now - 80, tokens_per_step=None)
    store.batch(evaluator, [4, 8], {"e": [4.0, 8.0]}, times=[now - 79, now - 78])
    new = store.start(started_at=now - 70, start_step=5)
    store.post(new, "events", step=8, kind="checkpoint", value="y", at=now - 60)
    assert store.read("e")["e"] == {"steps": [4], "tokens": [40.0], "values": [4.0]}
    store.batch(evaluator, [8], {"e": [80.0]}, times=[now - 50])
    assert store.read("e")["e"]["values"] == [4.0, 80.0]
    store.batch(evaluator, [7, 8], {"e": [-7.0, -8.0]}, times=[now - 40] * 2, weights_segment=old)
    assert store.read("e")["e"]["values"] == [4.0, 80.0]
    everything = store.read("e", superseded=True)["e"]
    assert sorted(everything["values"]) == [-8.0, -7.0, 4.0, 8.0, 80.0]


def test_tokens_of_the_trainer_are_kept(store: Store, engine: Engine) -> None:
    segment = store.start(tokens_per_step=None)
    store.batch(segment, [1, 2, 3], {"a": [1.0, 2.0, 3.0]}, tokens=[7, None, 21.5])
    for _ in range(2):
        assert store.read("a")["a"]["tokens"] == [7.0, 14.25, 21.5]
        assert store.read("a", points=1)["a"]["tokens"] == [21.5]
        assert store.read("axis/tokens")["axis/tokens"]["values"] == [7.0, 21.5]
        seal(engine)
