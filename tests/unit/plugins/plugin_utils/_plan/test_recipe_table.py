# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a newcomer reads of recipes: what all hosts or a part of them can run, in plain words, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import outlook
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue as catalogue
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_table as table

HOSTS = ["a", "b", "c"]
CHOOSE = "write in group_vars/cluster.yml of the inventory: vllm_serve_recipe:"


def row(**more: Any) -> dict[str, Any]:
    told = {"verdict": catalogue.PLANNED, "memory": "fits", "acknowledge": [], "name": "n", "recipe": "x/n.yml"}
    numbers = {"bytes": 40e9, "requests": 12.9, "request_tokens": 32768, "tokens_per_second": [6.58, 12.5]}
    return {**told, **numbers, "hosts": 3, "split": "TP=1 PP=3", "measured": [], "unknown": [], **more}


def refused(kind: str, reason: str) -> dict[str, Any]:
    return {"verdict": catalogue.REFUSED, "recipe": "x/n.yml", "kind": kind, "reason": reason}


@pytest.fixture(scope="module")
def three() -> list[str]:
    known = (HOSTS, "switch", {}, None)
    return table.run_lines(catalogue.runs(*known), catalogue.parts(*known))


def lines_of(text: list[str], title: str) -> list[str]:
    begin = text.index(title)
    return text[begin + 1 : text.index("", begin)]


def test_the_numbers_of_a_row_are_rounded_by_one_rule() -> None:
    assert table.numbers(row()) == ["40", "32,768", "12", "6.5 to 13", "nobody yet"]
    unknown = row(bytes=None, requests=None, request_tokens=None, tokens_per_second=None)
    assert table.numbers(unknown) == [*["not known"] * 3, "not estimated", "nobody yet"]
    seen = {"tokens_per_second": 57.5, "streams": 1}
    assert table.numbers(row(measured=[seen]))[-1] == "57.5"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (row(), "fits"),
        (row(memory="tight"), "fits tightly"),
        (row(acknowledge=["trust-remote-code"]), "fits with trust-remote-code"),
        (row(memory="not known"), "not planned: size not known"),
        (row(memory="unknown", acknowledge=["a", "b"]), "not planned: size not known, needs a, b"),
        (
            refused("hosts", "recipe n is for 4 hosts and the group cluster has 3 (a, b, c). Recipes for 3: m."),
            "does not fit: it is for 4 hosts",
        ),
        (
            refused("memory", "recipe n does not fit these hosts. It needs 240.0 GiB, a has 119. Lower x."),
            "does not fit: It needs 240.0 GiB, a has 119",
        ),
        (
            refused("file", "recipe n is for hosts of kind spark, and c is thor. Take it out."),
            "does not fit: it is for hosts of kind spark, and c is thor",
        ),
        (refused("shape", "recipe n: config has no layers. Correct it."), "not planned: config has no layers"),
        (refused("engine", "recipe n: atlas is unknown."), "not possible: atlas is unknown"),
    ],
)
def test_a_verdict_is_plain(given: dict[str, Any], said: str) -> None:
    assert table.verdict(given) == said


@pytest.mark.parametrize(
    ("number", "of", "said"), [(2, 3, "2+1"), (1, 3, "3 x 1"), (2, 4, "2 x 2"), (3, 8, "2 x 3 + 2"), (2, 2, "2")]
)
def test_how_hosts_are_divided(number: int, of: int, said: str) -> None:
    assert table.divided(number, of) == said


def test_three_hosts_see_what_a_part_of_them_can_run_and_how_fast(three: list[str]) -> None:
    assert three[0].split("  ")[0] == "RECIPE"
    together = lines_of(three, "All hosts together:")
    assert {line.split()[0] for line in together} == {"qwen3.5-397b-a17b-nvfp4", "llama-3.1-405b-int4"}
    pairs = lines_of(three, "2 of the 3 hosts, and 1 left for another model:")
    [pair] = [line for line in pairs if line.startswith("qwen3-235b-a22b-nvfp4 ")]
    assert pair.split()[1:4] == ["2+1", "fits", "TP=2"]
    alone = lines_of(three, "1 of the 3 hosts, or 3 replicas (each as fast, together 3 times as many requests):")
    [one] = [line for line in alone if line.startswith("gpt-oss-120b ")]
    assert " 3 x 1 " in one
    [planned] = catalogue.check("gpt-oss-120b", hosts=["a"], topology="lan")
    assert f" {outlook.words(planned['tokens_per_second'])} " in one
    for line in (*together, *pairs, *alone):
        assert "  fits  " in line or "  fits with trust-remote-code  " in line
        assert line.endswith(" nobody yet") or line.rsplit(" ", 1)[1].replace(".", "").isdigit()
    assert len([line for line in together if line.endswith(" nobody yet")]) == 2


def test_what_no_part_can_run_is_named_with_the_reason(three: list[str]) -> None:
    below = lines_of(three, "Not on these hosts:")
    assert "  qwen3.5-397b-a17b-fp8: it is for 4 hosts" in below
    assert not any(line.startswith("  gpt-oss-120b:") for line in below), "a part of them can"


def test_the_table_ends_with_what_to_do_and_has_no_riddles(three: list[str]) -> None:
    first = three[three.index("All hosts together:") + 1].split()[0]
    assert three[-1] == f"To choose one of the first block, {CHOOSE} {first}"
    text = "\n".join(three)
    assert "docs/groups.md" in three[-2]
    assert "SPLIT: TP, hosts that compute each layer together; PP, hosts that have layers one after" in text
    assert "LONGEST REQUEST: tokens of question and answer together." in text
    assert "with a drafter those of prose" not in text
    assert "tokens each" not in text


def test_a_part_of_a_ring_has_the_cable_between_neighbours_alone() -> None:
    def splits(topology: str, number: int) -> dict[str, str]:
        found = catalogue.parts(["a", "b", "c", "d"], topology, {}, None)
        return {one["name"]: one["split"] for one in found if one["hosts"] == number}

    assert splits("ring", 2)["gpt-oss-120b"] == "TP=2 PP=1"
    assert splits("lan", 2)["gpt-oss-120b"] == "TP=1 PP=2"
    # three of four make no ring
    assert splits("ring", 3) == {}
    assert "qwen3.5-397b-a17b-nvfp4" in splits("switch", 3)


def test_parts_are_of_one_kind_each_and_name_it() -> None:
    hosts, kinds = ["s1", "s2", "t1", "t2"], {"t1": "thor", "t2": "thor"}
    rows = catalogue.parts(hosts, "lan", kinds, None)
    assert {one["part"]["kind"] for one in rows} == {"spark", "thor"}
    assert {one["name"] for one in rows if one["part"]["kind"] == "thor"} == {"qwen3.5-122b-a10b-fp8"}
    text = table.run_lines(catalogue.runs(hosts, "lan", kinds, None), rows)
    assert "The 2 hosts of kind spark:" in text
    assert "The 2 hosts of kind thor:" in text
    assert catalogue.parts(["a"], "lan", {}, None) == []


def test_hosts_that_no_recipe_is_for_are_told_so() -> None:
    hosts = [f"h{number}" for number in range(5)]
    text = table.run_lines(catalogue.runs(hosts, "switch", {}, None), catalogue.parts(hosts, "switch", {}, None))
    assert "All hosts together: no recipe of the collection" in text
    assert text[-1].endswith("docs/groups.md"), "nothing is named that all of them would refuse"
    assert not any("To choose" in line for line in text)
    replicas = "or 2 replicas (each as fast, together 2 times as many requests)"
    assert f"2 of the 5 hosts, {replicas}, and 1 left for another model:" in text


def test_hosts_without_parts_are_told_what_to_write_or_where_to_read() -> None:
    no = refused("hosts", "recipe n is for 4 hosts and the group cluster has 3 (a). Choose.")
    text = table.run_lines([row(name="fast"), row(name="slow"), no])
    assert text[-1] == f"To choose one, {CHOOSE} fast"
    text = table.run_lines([no])
    assert "  n: it is for 4 hosts" in text
    assert text[-1].endswith("docs/recipes.md")


def test_a_checked_registry_is_a_table_with_the_reasons_below() -> None:
    rows = [
        {**row(name="good", recipe="r/good.yml", hosts=2, untranslated=["a note"]), "unknown": ["Unknown here: x"]},
        {**row(recipe="r/trust.yml", untranslated=[], acknowledge=["trust-remote-code"]), "verdict": "acknowledge"},
        refused("hosts", "recipe n is for 4 hosts and the group cluster has 3 (a). Choose."),
    ]
    text = table.check_lines(rows)
    assert text[1].split()[:3] == ["r/good.yml", "2", "fits"]
    assert " fits with trust-remote-code " in text[2]
    assert {"  r/good.yml: unknown here: x", "  r/good.yml: not translated: a note"} <= set(text)
    below = text.index("  x/n.yml: does not fit")
    assert text[below + 1] == "    recipe n is for 4 hosts and the group cluster has 3 (a). Choose."
    assert "fits with NAME: set vllm_serve_acknowledged: [NAME] as well." in text
    assert "    1  refused: for another number of hosts" in text
    assert table.check_lines(rows[2:])[:2] == ["", "Refused:"]


def test_the_plain_list_says_how_to_see_more() -> None:
    text = table.list_lines(catalogue.listing())
    assert any("hosts 2, 4:" in line for line in text)
    assert "-e recipe_sparks=3" in text[-1]


def test_a_recipe_is_shown_with_a_summary_before_it() -> None:
    shown = table.show("gpt-oss-120b")
    told = shown.partition("---")[0].splitlines()
    assert told[0] == "# gpt-oss-120b: gpt-oss-120b in MXFP4 on one or two Sparks."
    assert told[1] == "# Model openai/gpt-oss-120b, served by vLLM in a container, for 1 or 2 hosts of kind spark."
    assert told[2].startswith("# On 1 host: fits; TP=1 PP=1; 65 GB to fetch; 6 requests of 131,072 tokens at once; ")
    assert told[3].startswith("# On 2 hosts (direct): fits; TP=2 PP=1; ")
    assert told[3].endswith(" planned, 69 measured by others")
    assert told[-1] == f"# To choose it, {CHOOSE} gpt-oss-120b"
    assert yaml.safe_load(shown)["model"] == "openai/gpt-oss-120b"
    assert "# On 3 hosts: does not fit: it is for 1 or 2 hosts" in table.show("gpt-oss-120b", hosts=HOSTS)
    # where its recipe names the cabling
    assert "# On 4 hosts (lan): fits; TP=1 PP=4; " in table.show("nemotron-3-super-120b-a12b-nvfp4")


def test_a_foreign_recipe_cannot_end_its_comment(tmp_path: Path) -> None:
    foreign = {"recipe_version": "2", "model": "o/m", "container": "o/i:1", "command": "vllm serve o/m"}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({**foreign, "description": "good\nmodel: evil/model\x1b[2J"}))
    shown = table.show(str(tmp_path / "r.yaml"))
    assert yaml.safe_load(shown)["model"] == "o/m"
    assert all(line.startswith("# ") for line in shown.partition("\n---\n")[0].splitlines())
    assert "\x1b" not in shown
    assert "not planned: size not known" in shown
