# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What proves a new engine."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks

REFUSED = "the front proxy answered 400: the model does not support chats"
LATE = "the front proxy: timed out"
WHOLE = {"streams": {"1": {"decode_tokens_per_second": 10.0}}}


def proven(before: dict[str, Any], after: dict[str, Any]) -> bool:
    blocks = [inner for _hosts, one in tasks("upgrade") for inner in one.get("block", ())]
    deeds = [deed for inner in blocks for deed in inner.get("block", ())]
    [compare] = [deed for deed in deeds if deed["name"] == "Compare the new engine with the former one"]
    given = {name: trust_as_template(text) for name, text in compare["vars"].items()}
    known = {"__upgrade_before": before, "__upgrade_after": {"found": after}}
    templar = Templar(loader=DataLoader(), variables={**given, **known})
    conditions = compare["ansible.builtin.assert"]["that"]
    return all(templar.template(trust_as_template("{{ " + words + " }}")) is True for words in conditions)


@pytest.mark.parametrize(
    ("before", "after", "well"),
    [
        ({"found": WHOLE}, WHOLE, True),
        ({"found": WHOLE}, {"error": LATE}, False),
        ({"found": {"error": REFUSED}}, {"error": REFUSED}, True),
        # neither answered in time
        ({"found": {"error": LATE}}, {"error": LATE}, False),
        ({"found": {"error": REFUSED}}, {"error": LATE}, False),
        # nothing was served before
        ({"skipped": True}, WHOLE, True),
        ({"skipped": True}, {"error": LATE}, False),
    ],
)
def test_what_proves_an_engine(before: dict[str, Any], after: dict[str, Any], well: bool) -> None:
    assert proven(before, after) is well
