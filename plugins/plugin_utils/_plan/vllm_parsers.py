# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments of a recipe that vLLM would start with and never use, or would not find: parsers, names of a packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args

#: the parser that a plugin's file brings
_OF_PLUGINS = {"reasoning-parser-plugin": "reasoning-parser", "tool-parser-plugin": "tool-call-parser"}
_TOOLS, _SWITCH = "tool-call-parser", "enable-auto-tool-choice"
#: words for how a checkpoint is packed, which are none of vLLM's methods
_PACKINGS = ("nvfp4", "fp4")


def idle_parsers(flags: dict[str, Any], given: Mapping[str, Any], plain_image: bool) -> list[str]:
    """Takes out parsers that nothing would use, and says of each why.

    ``given``: the flags before files of the original were left out; ``plain_image``: nobody put such files into it.
    vLLM starts with a parser of tools whose switch is missing and reads no tool calls, so this serves what the original
    serves.
    """
    notes = []
    known = vllm_args.find_table(vllm_args.shipped_versions()[-1])[0]["value_lists"]
    for plugin, parser in _OF_PLUGINS.items():
        left_out = plain_image and plugin in given and plugin not in flags
        if left_out and parser in flags and flags[parser] not in known[parser]:
            notes.append(
                f"--{parser} {flags.pop(parser)} (of the plugin {given[plugin]}: copy it to the hosts and name both)"
            )
            if parser == _TOOLS:
                flags.pop(_SWITCH, None)
    if _TOOLS in flags and not flags.get(_SWITCH):
        notes.append(f"--{_TOOLS} {flags.pop(_TOOLS)} (has no effect without --{_SWITCH}, which the recipe lacks)")
    return notes


def idle_packing(flags: dict[str, Any]) -> list[str]:
    """Takes out a quantization that names a packing, and says so.

    vLLM puts the method that a ModelOpt checkpoint names in the place of any word (ModelConfig._verify_quantization),
    and starts with no other checkpoint so; without the argument it asks the checkpoint as well.
    """
    if str(flags.get("quantization")).lower() not in _PACKINGS:
        return []
    return [f"--quantization {flags.pop('quantization')} (no method of vLLM, which takes the checkpoint's own)"]
