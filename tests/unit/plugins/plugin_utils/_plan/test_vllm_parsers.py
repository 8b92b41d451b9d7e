# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers that nothing would use."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_parsers import idle_parsers


def left(
    flags: dict[str, Any], given: dict[str, Any] | None = None, plain: bool = True
) -> tuple[dict[str, Any], list[str]]:
    kept = dict(flags)
    return kept, idle_parsers(kept, {**flags, **(given or {})}, plain)


def test_a_parser_of_tools_without_its_switch() -> None:
    """vLLM serves MiMo-V2-Flash's recipe, which lacks the switch, and reads no tool calls."""
    assert left({"tool-call-parser": "qwen3_xml", "reasoning-parser": "qwen3"}) == (
        {"reasoning-parser": "qwen3"},
        ["--tool-call-parser qwen3_xml (has no effect without --enable-auto-tool-choice, which the recipe lacks)"],
    )
    both = {"tool-call-parser": "qwen3_xml", "enable-auto-tool-choice": True}
    assert left(both) == (both, [])


def test_parsers_go_with_the_plugins_that_bring_them() -> None:
    flags = {"reasoning-parser": "nano_v3", "tool-call-parser": "t", "enable-auto-tool-choice": True, "seed": 1}
    plugins = {"reasoning-parser-plugin": "nano_v3.py", "tool-parser-plugin": "t.py"}
    assert left(flags, plugins) == (
        {"seed": 1},
        [
            "--reasoning-parser nano_v3 (of the plugin nano_v3.py: copy it to the hosts and name both)",
            "--tool-call-parser t (of the plugin t.py: copy it to the hosts and name both)",
        ],
    )
    assert left(flags, plugins, plain=False) == (flags, [])
    # a plugin that stayed, and a parser of vLLM's own
    assert left({**flags, **plugins}) == ({**flags, **plugins}, [])
    own = {"reasoning-parser": "nemotron_v3"}
    assert left(own, plugins) == (own, [])
