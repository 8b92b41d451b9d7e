# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many recipes at once: files, folders, registries, and a verdict for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import outlook, recipe_table
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue as catalogue
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import names
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

from tests.unit.published_models import model

GOOD = {"recipe_version": "2", "model": "o/m", "container": "o/i:1", "command": "vllm serve o/m --seed 1"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A registry with an official and a hidden folder."""
    (tmp_path / ".sparkrun").mkdir()
    registry = {"registries": [{"name": "a", "recipes": "official"}, {"name": "b", "recipes": "hidden"}]}
    (tmp_path / ".sparkrun" / "registry.yaml").write_text(yaml.safe_dump(registry))
    for folder in ("official", "hidden/deep", "other"):
        (tmp_path / folder).mkdir(parents=True)
    rows = {
        "official/good.yaml": GOOD,
        "official/trust.yaml": {**GOOD, "command": GOOD["command"] + " --trust-remote-code"},
        "hidden/deep/sglang.yaml": {**GOOD, "runtime": "sglang", "command": "sglang serve o/m --enable-trace"},
        "hidden/deep/atlas.yaml": {**GOOD, "runtime": "atlas"},
        "hidden/wrong.yaml": {**GOOD, "command": "vllm serve o/m --max-num-seqs 0"},
        "other/not-listed.yaml": GOOD,
    }
    for name, data in rows.items():
        (tmp_path / name).write_text(yaml.safe_dump(data))
    (tmp_path / "official" / "broken.yaml").write_text("a: [")
    return tmp_path


def test_a_registry(checkout: Path) -> None:
    rows = {Path(row["recipe"]).name: row for row in catalogue.check(str(checkout), version="0.33.0")}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "good.yaml": "planned",
        "trust.yaml": "acknowledge",
        "broken.yaml": "refused",
        "sglang.yaml": "acknowledge",
        "atlas.yaml": "refused",
        "wrong.yaml": "refused",
    }
    assert rows["trust.yaml"]["acknowledge"] == ["trust-remote-code"]
    assert rows["sglang.yaml"]["acknowledge"] == ["enable-trace"]
    assert rows["sglang.yaml"]["command"][:2] == ["sglang", "serve"]
    assert rows["good.yaml"]["form"] == "sparkrun v2"
    assert "is not YAML" in rows["broken.yaml"]["reason"]
    assert "0: is below 1" in rows["wrong.yaml"]["reason"]
    counts = catalogue.counts(list(rows.values()))
    assert counts == {"planned": 1, "acknowledge": 2, "engine": 1, "arguments": 1, "file": 1}
    text = "\n".join(recipe_table.check_lines(list(rows.values())))
    assert "trust-remote-code" in text
    assert "    1  refused: for another engine" in text


OWN = {"name": "n", "summary": "s", "model": "o/m", "runtime": "venv", "hosts": "any", "args": {}}
PROJECT = {"meta": {"title": "t"}, "model": {"model_id": "o/m"}}
SGLANG = {"engine": "sglang", "runtime": "container", "image": "o/i:1"}


@pytest.mark.parametrize(
    ("other", "verdict", "reason"),
    [
        (PROJECT, "file", "is not understood"),
        ({**OWN, "splits": {2: 4}}, "file", "splits: 2 is not a split"),
        ({**OWN, "splits": {"two": {}}}, "file", "splits names 'two'"),
        (
            {**OWN, **SGLANG, "max_model_len": "long"},
            "arguments",
            "other.yaml: max_model_len='long': is not an integer",
        ),
        ({**OWN, **SGLANG, "args": {1: 2}}, "acknowledge", ""),
        ({**OWN, "config": model("llama-3.1-8b"), "args": {"hf-overrides": {1: 2}}}, "planned", ""),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_file_that_nobody_can_read_is_a_row_and_not_the_end(
    tmp_path: Path, other: dict[str, Any], verdict: str, reason: str
) -> None:
    for name, data in {"other": other, "good": GOOD}.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(data))
    good, row = catalogue.check(str(tmp_path))
    assert good["verdict"] == "planned"
    assert (row.get("kind") or row["verdict"]) == verdict
    assert reason in row.get("reason", "")


@pytest.mark.parametrize("registries", [3, "official", [3], {"a": 1}], ids=str)
def test_a_registry_that_lists_nothing_readable_holds_no_recipe(checkout: Path, registries: Any) -> None:
    (checkout / ".sparkrun" / "registry.yaml").write_text(yaml.safe_dump({"registries": registries}))
    with pytest.raises(RecipeError, match="holds no recipe"):
        catalogue.check(str(checkout))


def test_a_folder_and_a_file(checkout: Path) -> None:
    (checkout / "other" / "compose.yaml").write_text("services: {}")
    rows = catalogue.check(str(checkout / "other"))
    assert [Path(row["recipe"]).name for row in rows] == ["not-listed.yaml"]
    (row,) = catalogue.check(str(checkout / "official" / "good.yaml"))
    assert (row["hosts"], row["split"], row["memory"]) == (1, "TP=1 PP=1", "not known")
    (checkout / "empty").mkdir()
    with pytest.raises(RecipeError, match="holds no recipe"):
        catalogue.check(str(checkout / "empty"))


def test_the_hosts_of_an_inventory() -> None:
    (row,) = catalogue.check("qwen3-30b-a3b-thinking-fp8", hosts=["a", "b"], topology="direct")
    assert (row["verdict"], row["memory"]) == ("planned", "fits")
    (row,) = catalogue.check("qwen3-30b-a3b-thinking-fp8", hosts=["a", "b", "c"])
    assert (row["verdict"], row["kind"]) == ("refused", "hosts")
    with pytest.raises(RecipeError, match="is unknown"):
        catalogue.check("no-such-recipe")


def test_the_shape_of_a_known_model_is_used(tmp_path: Path) -> None:
    data = {**GOOD, "model": "openai/gpt-oss-120b", "command": "vllm serve openai/gpt-oss-120b"}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    (row,) = catalogue.check(str(tmp_path / "r.yaml"))
    assert row["memory"] == "fits"


def test_the_list() -> None:
    assert [row["name"] for row in catalogue.listing()] == names()


def test_a_recipe_for_an_image_of_its_own_is_not_refused_for_its_options(tmp_path: Path) -> None:
    recipe = {**GOOD, "container": "ghcr.io/someone/vllm:1", "command": GOOD["command"] + " --gdn-decode-kernel b12x"}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe))
    (row,) = catalogue.check(str(tmp_path / "own.yaml"))
    assert (row["verdict"], row["acknowledge"]) == ("planned", [])
    assert "--gdn-decode-kernel" in row["command"]
    assert "unknown here: gdn-decode-kernel" in "\n".join(recipe_table.check_lines([row]))
    (tmp_path / "vllm.yaml").write_text(yaml.safe_dump({**recipe, "container": "vllm/vllm-openai:v0.33.0"}))
    (row,) = catalogue.check(str(tmp_path / "vllm.yaml"))
    assert (row["verdict"], row["kind"]) == ("refused", "arguments")


def test_the_tag_of_an_image_says_by_which_options_it_is_checked(tmp_path: Path) -> None:
    def verdict(image: str, version: str | None = None) -> tuple[str, str]:
        # 0.20 has it, 0.33 has not
        recipe = {**GOOD, "container": image, "command": GOOD["command"] + " --calculate-kv-scales"}
        (tmp_path / "tagged.yaml").write_text(yaml.safe_dump(recipe))
        (row,) = catalogue.check(str(tmp_path / "tagged.yaml"), version=version)
        return row["verdict"], row.get("kind", "")

    assert verdict("vllm/vllm-openai:v0.20.0-aarch64-cu130-ubuntu2404") == ("planned", "")
    assert verdict("vllm/vllm-openai:v0.33.0") == ("refused", "arguments")
    # what is asked for wins; of a version that nobody knows here the newest table speaks
    assert verdict("vllm/vllm-openai:v0.20.0", "0.33.0") == ("refused", "arguments")
    assert verdict("vllm/vllm-openai:v0.24.0") == ("refused", "arguments")


def test_a_cache_that_an_image_of_others_stores_in_its_own_way_is_unknown(tmp_path: Path) -> None:
    model = "deepseek-ai/DeepSeek-V4-Flash"
    recipe = {
        **{"recipe_version": "2", "model": model, "container": "ghcr.io/someone/vllm:1", "cluster_only": True},
        "command": f"vllm serve {model} -tp 2 --kv-cache-dtype nvfp4_ds_mla",
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe))
    (row,) = catalogue.check(str(tmp_path / "own.yaml"), hosts=["a", "b"], topology="direct")
    assert (row["verdict"], row["memory"], row["requests"]) == ("planned", "unknown", None)
    assert row["bytes"] > 140e9
    # vLLM itself has no such cache for this model
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({**recipe, "container": "vllm/vllm-openai:v0.33.0"}))
    (row,) = catalogue.check(str(tmp_path / "own.yaml"), hosts=["a", "b"], topology="direct")
    assert (row["verdict"], row["kind"]) == ("refused", "arguments")
    assert "has no known size for compressed attention" in row["reason"]


def test_padded_heads_are_planned_with_an_acknowledgement(tmp_path: Path) -> None:
    model = "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8"
    three = {
        **{"recipe_version": "2", "model": model, "container": "ghcr.io/someone/vllm:1", "min_nodes": 3},
        **{"max_nodes": 3, "command": f"vllm serve {model} -tp 3"},
    }
    (tmp_path / "three.yaml").write_text(yaml.safe_dump(three))
    (row,) = catalogue.check(str(tmp_path / "three.yaml"))
    assert (row["verdict"], row["acknowledge"], row["split"]) == ("acknowledge", ["padded-heads"], "TP=3 PP=1")


def test_what_was_measured_ranks_before_what_is_planned_and_no_acknowledgement_before_one() -> None:
    def row(name: str, planned: float, *measured: dict[str, Any], **more: Any) -> dict[str, Any]:
        told = {"verdict": catalogue.PLANNED, "acknowledge": [], **more}
        return {"name": name, "tokens_per_second": [planned, 2 * planned], "measured": list(measured), **told}

    speed = {"tokens_per_second": 97.7, "streams": 1}
    rows = [
        row("planned", 50.0),
        row("measured", 20.0, speed, {**speed, "streams": 8, "tokens_per_second": 500}),
        row("of other weights", 30.0, {**speed, "weights": "of another owner"}),
        row("acknowledged", 200.0, acknowledge=["trust-remote-code"]),
        row("refused", 300.0, verdict=catalogue.REFUSED),
        row("unknown", 0.0),
    ]
    assert [speed["name"] for speed in catalogue.fastest(rows)] == [
        *("measured", "planned", "of other weights", "acknowledged"),
    ]
    assert [catalogue.row_speed(speed) for speed in rows[:3]] == [50.0, 97.7, 30.0]


def test_the_chosen_row_says_what_would_be_faster() -> None:
    hosts = ["a", "b"]
    memory = {
        **{"weights_bytes": 134_000_000_000, "max_model_len": 32768, "max_concurrent_sequences": 12.27},
        **{"tokens_per_second": {outlook.ANY: [17.0, 25.0]}, "verdict": "fits"},
    }
    serving = {"recipe": "qwen3-235b-a22b-nvfp4", "memory": memory, "tensor_parallel": 2, "pipeline_parallel": 1}
    chosen, faster, switch = catalogue.chosen_lines(serving, hosts, "direct", {})
    assert chosen == (
        "chosen: qwen3-235b-a22b-nvfp4, TP=2 PP=1, fits, 134 GB, 12 requests of 32,768 tokens at once, "
        f"{outlook.words(outlook.speed(memory))} tokens/s planned for one stream"
    )
    assert faster.startswith("faster on these hosts together: ")
    assert "qwen3-30b-a3b-thinking-fp8 (" in faster
    assert "qwen3-235b-a22b-nvfp4" not in faster
    first = faster.removeprefix("faster on these hosts together: ").partition(" (")[0]
    assert switch == f"to switch to the first of them: vllm_serve_recipe: {first} (switch_model.yml)"
    fastest = {**serving, "memory": {**memory, "tokens_per_second": {outlook.ANY: [4000.0, 9000.0]}}}
    assert "no recipe of the collection" in catalogue.chosen_lines(fastest, hosts, "direct", {})[1]
    assert len(catalogue.chosen_lines({**serving, "recipe": "tiny-smollm2"}, hosts, "direct", {})) == 1
    assert len(catalogue.chosen_lines({**serving, "answers": False}, hosts, "direct", {})) == 1
    unknown = {**serving, "recipe": None, "model": "own", "memory": None}
    assert catalogue.chosen_lines(unknown, hosts, "direct", {}) == [
        "chosen: own, TP=2 PP=1, size not known, tokens/s not estimated"
    ]
