# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that start SGLang, as others write them."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.sglang_command import (
    DECIDED,
    from_sparkrun,
    read_sglang,
)


@pytest.mark.parametrize(
    ("text", "model", "flags"),
    [
        ("sglang serve org/m --tp 2", "org/m", {"tensor-parallel-size": 2}),
        ("python3 -m sglang.launch_server --model-path org/m --pp-size=2", "org/m", {"pipeline-parallel-size": 2}),
        # the value may begin with a dash, when it is a number
        ("sglang serve --model m --offload-group-size -1 --sleep-on-idle", "m", {"offload-group-size": -1}),
        ("sglang serve --context-length 4096 # --tp 2\n", "", {"max-model-len": 4096}),
        ("sglang serve --seed 1 --seed 2", "", {"seed": 2}),
        ("sglang serve --sizes 1 2 --name a", "", {"sizes": [1, 2], "name": "a"}),
    ],
)
def test_what_follows_an_option_is_its_value(text: str, model: str, flags: dict[str, object]) -> None:
    served = read_sglang(text, "f")
    assert served.model == model
    assert {name: value for name, value in served.flags.items() if value is not True} == flags
    assert served.notes == []


def test_sparkrun_passes_on_what_it_knows_and_no_switch_that_is_off() -> None:
    served = from_sparkrun({"disable_radix_cache": True, "trust_remote_code": False, "max_model_len": 1, "x": 2})
    assert served.flags == {"disable-radix-cache": True, "max-model-len": 1}
    assert served.notes == ["defaults.x (the original tool does not pass it on without a command)"]


def test_what_the_role_decides_is_no_field_of_a_recipe() -> None:
    assert {"host", "port", "nnodes", "dist-init-addr", "api-key"} <= DECIDED
    assert not {"served-model-name", "context-length", "tp-size"} & DECIDED
