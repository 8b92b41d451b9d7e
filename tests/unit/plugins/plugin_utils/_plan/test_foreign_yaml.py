# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A few lines of YAML that would take all memory or time, and what people write."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign_yaml import load_foreign


def merges(levels: int) -> str:
    """Each level merges the one before it nine times: 9 ** levels keys while it is read, and one in what it is."""
    rows = [f"a{level}: &a{level} {{<<: [{','.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, levels + 1)]
    return "\n".join(["a0: &a0 {k: v}", *rows])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(merges(30), "more than 200000 keys, by merges", id="merges"),
        pytest.param("a: " + "[" * 200_000, "more than 40 levels", id="levels"),
        pytest.param("a: " + "1:" * 200_000 + "1", "a number of more digits", id="base 60"),
        pytest.param("a: 1" + "0" * 5_000, "a number of more digits", id="digits"),
        pytest.param("b: 1\na: 2001-99-99", r"no such date or number(?s:.*)line 2", id="a date"),
        pytest.param("a: !!python/object/apply:os.system [id]", "could not determine a constructor", id="an object"),
    ],
)
def test_what_takes_all_memory_or_time_is_refused_by_its_line(text: str, words: str) -> None:
    with pytest.raises(yaml.YAMLError, match=words):
        load_foreign(text)


def test_what_people_write_is_read() -> None:
    text = "common: &c {a: 1}\none: {<<: *c, b: 2}\ntwo: {<<: [*c], at: 2026-01-02}\nhash: " + "0123456789abcdef" * 4
    found = load_foreign(text)
    assert found["one"] == {"a": 1, "b": 2}
    assert found["two"]["a"] == 1
    assert len(str(found["hash"])) == 64
