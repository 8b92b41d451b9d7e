# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_state, loads

OF = {"engine": "e", "model": "/m", "split": "TP=1 PP=3", "bytes": 30_000_000_000}
STAGES = {"starting": 2.0, "loading weights": 10.0, "compiling": 60.0}


def load(seconds: float = 90.0, stages: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    return {**OF, "seconds": seconds, "stages": stages or STAGES, "ended": 1.0, "invocation": "i", **more}


def test_a_load_is_kept_as_whoever_reads_it_expects() -> None:
    watched = loads.Watched(OF, "abc", 100.0, [])
    watched.note("", 0.0, 101.0)
    watched.note("starting", 0.0, 102.0)
    watched.note("loading weights", 0.25, 110.0)
    watched.note("loading weights", 0.5, 120.0)
    assert watched.told(120.0) == {
        "stage": "loading weights",
        "share": 0.5,
        "seconds": 20.0,
        "bytes": 30_000_000_000,
        "loaded": 15_000_000_000,
        # half of it in ten seconds
        "left": 10.0,
        "former": 0,
    }
    document = loads.kept({}, watched.ended(190.04, 5.0))
    assert document["version"] == 1
    assert document["loads"] == [
        {**OF, "seconds": 90.0, "stages": {"starting": 2.0, "loading weights": 10.0}, "ended": 5.0, "invocation": "abc"}
    ]
    assert loads.loads(document) == document["loads"]
    full = loads.kept({"version": 1, "loads": [load()] * 60}, load(1.0))
    assert (len(full["loads"]), full["loads"][-1]["seconds"]) == (loads.KEPT, 1.0)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"version": 2, "loads": [load()]},
        {"version": 1, "loads": {}},
        {"version": 1, "loads": [7, load(float("nan")), load(stages={"starting": "soon"}), {**load(), "split": 3}]},
    ],
)
def test_what_is_no_load_is_none(document: Any) -> None:
    assert loads.loads(document) == []


def test_former_loads_of_the_same_say_what_is_left() -> None:
    rows = [load(500.0), load(90.0), load(100.0), load(95.0), load(9.0, split="TP=3 PP=1"), load(9.0, engine="f")]
    assert [row["seconds"] for row in loads.alike(rows, OF)] == [90.0, 100.0, 95.0]
    watched = loads.Watched(OF, "abc", 0.0, rows)
    assert watched.told(5.0)["left"] == 90.0
    watched.note("loading weights", 0.5, 20.0)
    # 95 s, of which the first 10 and half of 50 are over
    assert watched.told(40.0)["left"] == 60.0
    watched.note("compiling", 0.0, 70.0)
    assert watched.told(75.0)["left"] == 30.0
    # slower than ever: as long as it then took at most, and never less than nothing
    assert watched.told(500.0)["left"] == 0.0
    watched.note("a stage of a newer vLLM", 0.0, 80.0)
    assert watched.told(81.0)["left"] is None


def test_words() -> None:
    told = {"bytes": 35_000_000_000, "loaded": 8_100_000_000, "left": 130.0, "former": 2}
    assert loads.words(told) == "8.1 GB of 35 GB, about 2 min 10 s left"
    assert loads.words({**told, "former": 0, "left": 9.6}) == "8.1 GB of 35 GB, about 10 s left for the weights"
    assert loads.words({"bytes": 35, "loaded": 0, "left": None, "former": 0}) == ""
    assert loads.words(None) == ""
    assert (
        loads.took(load())
        == "1 min 30 s: before its first line 2 s, starting 8 s, loading weights 50 s, compiling 30 s"
    )
    assert loads.took({**load(), "stages": {}}) == "1 min 30 s"


def test_what_is_loaded_is_known_by_the_engine_and_the_weights(tmp_path: Path) -> None:
    model, engine = tmp_path / "model@1", tmp_path / "engine.json"
    model.mkdir()
    (model / "a.safetensors").write_bytes(bytes(1000))
    (model / "b.safetensors").write_bytes(bytes(500))
    (model / "tokenizer.json").write_bytes(bytes(70))
    engine.write_text("{}")
    given = {"engine": str(engine), "model": str(model), "split": "TP=1 PP=3"}
    found = loads.described(given)
    assert (found["bytes"], found["model"], found["split"]) == (1500, str(model), "TP=1 PP=3")
    engine.write_text('{"digest": "another"}')
    assert loads.described(given)["engine"] != found["engine"]
    assert loads.described({**given, "model": "org/name", "engine": "/absent"}) == {
        **{"engine": "", "model": "org/name", "split": "TP=1 PP=3", "bytes": 0}
    }


ODD: list[Any] = [
    *({}, [], 5, "x", None, {"version": 1}, {"version": 1, "loads": {}}, {"version": True, "loads": 5}),
    {"version": 1, "loads": [None, 5, "x", [], {}, {**load(), "seconds": "9"}, {**load(), "seconds": True}]},
    {"version": 1, "loads": [load(float("nan")), load(float("inf")), load(-1.0), load(10**400), load(1e300)]},
    {"version": 1, "loads": [load(stages={"a": -1.0}), {**load(), "stages": [1]}, {**load(), "stages": {"a": None}}]},
    {"version": 1, "loads": [{**load(), "engine": 5}, {**load(), "model": ["/m"]}, {**load(), "split": None}]},
]


@pytest.mark.parametrize("document", ODD, ids=range(len(ODD)))
def test_of_a_file_of_the_watchdog_s_user_only_loads_are_taken(document: Any) -> None:
    """Root's part writes it as it is told, and root and the page read it."""
    assert loads.loads(document) == []
    assert loads.kept(document, load())["loads"] == [load()]


def test_what_else_a_load_holds_reaches_no_page() -> None:
    odd = load(stages={"\x1b]52;c;x\x07": 1.0}, ended={"a": 1}, bytes="x", invocation=[], more="<script>")
    [row] = loads.loads({"version": 1, "loads": [odd]})
    assert console_state.last_loads([row]) == [{"seconds": 90.0, "ended": None}]
    assert loads.alike([row], OF) == [row]
    assert loads.left([row], {"starting": 2.0}, 0.0, 2.0, 0.0) is None
