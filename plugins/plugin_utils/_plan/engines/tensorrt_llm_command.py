# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command line of TensorRT-LLM as others wrote it. Pure."""

from __future__ import annotations

import re

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import tensorrt_llm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.open_command import read_open
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import ServedModel

#: options that a recipe states as fields, by the names of those
_FIELDS = {
    **dict.fromkeys(("tp-size", "tensor-parallel-size"), "tensor-parallel-size"),
    **dict.fromkeys(("pp-size", "pipeline-parallel-size"), "pipeline-parallel-size"),
    "max-seq-len": "max-model-len",
    "served-model-name": "served-model-name",
}
#: what the role decides, so that a recipe of others cannot bring it
DECIDED = frozenset(tensorrt_llm_args.OWNED) - frozenset(_FIELDS)
#: with a path or without; a release takes the word behind it, or leaves it out
_STARTS = re.compile(r"(?:\S*/)?trtllm-serve(?: serve)?")


def read_tensorrt_llm(text: str, called: str) -> ServedModel:
    """The start of TensorRT-LLM in a shell command; what stands before and after it is named in the notes."""
    served, options = read_open(text, called, _STARTS, "trtllm-serve")
    for name, values in options:
        # what comes last counts, as there
        served.flags[_FIELDS.get(name, name)] = values[0] if len(values) == 1 else values or True
    return served
