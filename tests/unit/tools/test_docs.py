# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import docs

TOP = Path(__file__).resolve().parents[3]
KNOWN = docs.pages()


@pytest.mark.parametrize(
    ("page", "target", "expected"),
    [
        ("docs/serving.md", "model-store.md#the-store", "model-store.md#the-store"),
        ("docs/serving.md", "../README.md", "index.md"),
        ("docs/serving.md", "../README.md#the-api-key", f"{docs.REPOSITORY}#the-api-key"),
        ("docs/serving.md", "../lab/README.md", "lab.md"),
        ("docs/serving.md", "../roles/engine/README.md", "collections/engine_role.rst"),
        ("docs/serving.md", "../recipes", f"{docs.REPOSITORY}/tree/main/recipes"),
        ("docs/serving.md", "../galaxy.yml", f"{docs.REPOSITORY}/blob/main/galaxy.yml"),
        ("docs/site/tutorial/lab.md", "../../variables.md", "../variables.md"),
        ("lab/README.md", "../docs/developers.md", "developers.md"),
        ("docs/serving.md", "https://jmespath.org", "https://jmespath.org"),
        ("docs/serving.md", "#the-api", "#the-api"),
    ],
)
def test_a_link_leads_to_the_page_or_to_the_repository(page: str, target: str, expected: str) -> None:
    assert docs.relink(f"see [it]({target}).", page, KNOWN) == f"see [it]({expected})."


def test_what_looks_like_a_link_in_code_stays() -> None:
    text = "```\nx[0](missing.md)\n```"
    assert docs.relink(text, "docs/serving.md", KNOWN) == text


def test_a_link_to_nothing_stops_the_build() -> None:
    with pytest.raises(docs.BrokenLinkError, match=r"docs/serving\.md: link to missing\.md"):
        docs.relink("[it](missing.md)", "docs/serving.md", KNOWN)


def test_every_page_is_in_the_contents() -> None:
    index = (docs.SITE / "index.md").read_text()
    listed = set(re.findall(r"^([\w/-]+)$", "\n".join(re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL)), re.M))
    written = {name.rpartition(".")[0] for name in KNOWN.values()} - {"index"}
    assert written <= listed


def test_every_rule_has_a_heading_its_cause_and_its_fix() -> None:
    for area, rules in docs.rules().items():
        page = docs.rule_page(area, rules)
        title = {"nccl": "NCCL", "sglang": "SGLang", "vllm": "vLLM"}.get(area, area.title())
        # as its owners write it
        assert page.partition("\n")[0] == f"# {title}"
        assert page.count("\n## ") == page.count("**Cause.**") == page.count("**Fix.**") == len(rules) > 0, area


def test_cells_of_a_wide_table_carry_the_heading_of_their_column() -> None:
    heads = "".join(f'<th class="head"><p>on\n<code>{name}</code></p></th>' for name in "abcde")
    row = "<tr>" + "".join(f'<td class="x">{value}</td>' for value in "12345") + "</tr>"
    table = f'<table class="docutils align-default"><tr>{heads}</tr>{row}{row}</table>'
    found = docs.label(f"<p>before</p>{table}<p>after</p>")
    assert found.count('<td data-label="on a" class="x">1</td>') == 2
    assert found.count('<td data-label="on e" class="x">5</td>') == 2
    assert '<table class="wide docutils align-default">' in found
    narrow = table.replace('<th class="head"><p>on\n<code>e</code></p></th>', "")
    assert docs.label(narrow) == narrow


def test_whoever_searches_for_uninstall_finds_the_removal() -> None:
    assert "uninstall" in (docs.TOP / "docs" / "changes.md").read_text()
    assert "source_repository" not in (docs.SITE / "conf.py").read_text()  # no icon that leads to a file to edit
