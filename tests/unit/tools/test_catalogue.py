# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of all recipes is what the program writes, and every measured number on it says where it is from."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    outlook,
    recipe,
    recipe_catalogue,
    recipe_table,
)

from tools.catalogue import PAGE, page


def test_the_page_is_what_the_program_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tools.catalogue"


def test_measured_numbers_stand_beside_planned_ones() -> None:
    rows = [row for name in recipe.names() for row in recipe.load(name)["measured"]]
    assert sum(bool(recipe.load(name)["measured"]) for name in recipe.names()) >= 20
    text = PAGE.read_text(encoding="utf-8").partition("## Measured")[2]
    assert text.count("[source](https://") == len(rows), "each is of a number of hosts that its recipe is planned for"


def test_the_page_says_what_an_inventory_has_to_acknowledge() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("needs `vllm_serve_acknowledged: [") == 1
    assert "`mimo-v2.6-flash-rl` needs `vllm_serve_acknowledged: [trust-remote-code]` as well." in text


def test_recipes_draft_where_somebody_serves_the_model_so() -> None:
    drafting = {name: recipe.load(name) for name in recipe.names()}
    drafting = {name: data for name, data in drafting.items() if data["args"].get("speculative-config")}
    assert len(drafting) >= 8
    for name, data in drafting.items():
        # another model is planned with its own memory
        named = data["args"]["speculative-config"].get("model")
        assert not named or (data["draft_weights_bytes"] and data["draft_config"]), name


def test_the_table_for_an_inventory_shows_them_with_their_sources() -> None:
    rows = recipe_catalogue.runs(["spark-01", "spark-02"], "direct", {"spark-01": "spark", "spark-02": "spark"}, None)
    text = recipe_table.run_lines(rows)
    assert text[0].split("  ")[-1].strip() == "MEASURED"
    [line] = [line for line in text if line.startswith("gpt-oss-120b ")]
    assert line.endswith(" 69")
    [line] = [line for line in text if line.startswith("llama-3.3-70b-awq ")]
    assert line.endswith(" nobody yet")
    below = [line for line in text if line.startswith("  gpt-oss-120b: ")]
    assert len(below) == 4
    assert below[0] == (
        "  gpt-oss-120b: 69; llama-benchy, 1,024 tokens in, 128 out; vLLM 0.1.dev12777 (fork for MXFP4), eager; "
        "2026-03-22; https://kubis.ai/blog/dgx_series/benchmarks/gpt-oss-120b-topology-benchmark"
    )


def test_pages_name_speeds_as_the_table_does() -> None:
    """Of the models that three Sparks can only run together, and the fastest on two of them."""
    rows = [row for row in recipe_catalogue.runs(["a", "b", "c"], "switch", {}, None) if row.get("tokens_per_second")]
    slow, fast = (end(row["tokens_per_second"][at] for row in rows) for at, end in ((0, min), (1, max)))
    text = " ".join((PAGE.parent / "first-hour.md").read_text(encoding="utf-8").split())
    pairs = [row for row in recipe_catalogue.parts(["a", "b", "c"], "switch", {}, None) if row["hosts"] == 2]
    most = outlook.words(max(row["tokens_per_second"] for row in pairs if row["tokens_per_second"])).rpartition(" ")[2]
    told = (
        f"{outlook.words((slow, fast))} planned tokens/s from a model on three Sparks, and up to {most} from one on two"
    )
    assert told in text
