# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of llama.cpp's options a recipe or the inventory sets freely, and which only by the inventory's own word. Pure.

The lists are of what does no more than choose kernels, sizes, samplers and the order of work. Of the rest, many read or
write files, fetch models, start programs, or hand files to whoever asks. Switches and options with a value are apart:
one that is given as the other takes the next word for its own.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.free_options import WORD, is_word

_SWITCH = re.compile(
    r"(?:no-)?(?:kv-unified|cache-idle-slots|context-shift|perf|escape|warmup|kv-offload|repack|cont-batching|op-offload"
    r"|cache-prompt|jinja|reasoning-preserve|skip-chat-parsing|prefill-assistant|mmap|direct-io|mmproj-offload"
    r"|spec-draft-backend-sampling)"
    r"|no-(?:host|slots|mmproj)|swa-full|spm-infill|ignore-eos|backend-sampling|cpu-moe|check-tensors|mlock"
    r"|embeddings?|rerank(?:ing)?|spec-draft-cpu-moe|cpu-moe-draft"
)
_VALUE = re.compile(
    # processors and memory
    r"(?:spec-draft-)?(?:threads|cpu-mask|cpu-range|cpu-strict|prio|poll)(?:-batch)?(?:-draft)?|threads-http|numa"
    r"|(?:batch|ubatch)-size|parallel|keep|cache-ram|cache-reuse|ctx-checkpoints|checkpoint-min-step"
    r"|kv-unified-per-slot|defrag-thold|flash-attn|load-mode|lazy-mode|device|override-tensor|split-mode|main-gpu"
    r"|(?:n-)?gpu-layers(?:-draft)?|n-cpu-(?:moe|ffn)(?:-draft)?|moe-cache-mib|slot-prompt-similarity|sleep-idle-seconds"
    r"|cache-type-[kv](?:-draft)?|timeout|sse-ping-interval"
    # what the model was trained for
    r"|rope-(?:scaling|scale|freq-base|freq-scale)|yarn-(?:orig-ctx|ext-factor|attn-factor|beta-slow|beta-fast)"
    r"|grp-attn-[nw]|pooling|attention|embd-normalize|image-(?:min|max)-tokens|mtmd-batch-max-tokens|video-fps"
    # samplers
    r"|predict|n-predict|seed|samplers|sampl(?:er|ing)-seq|temp(?:erature)?|top-[kp]|min-p|top-n-?sigma|typical(?:-p)?"
    r"|xtc-(?:probability|threshold)|repeat-(?:last-n|penalty)|(?:presence|frequency)-penalty"
    r"|dry-(?:multiplier|base|allowed-length|penalty-last-n)|adaptive-(?:target|decay)|dynatemp-(?:range|exp)"
    r"|mirostat(?:-lr|-ent)?"
    # drafts without a model of their own
    r"|spec-type|spec-draft-(?:type-[kv]|n-max|n-min|p-split|p-min|ngl|n-cpu-moe|device|override-tensor)"
    r"|spec-ngram-(?:(?:mod|simple|map-k|map-k4v)-)?(?:n-(?:min|max|match)|size-[nm]|min-hits)|draft(?:-max|-min|-n|-n-min|-p-min|-p-split)?"
    # answers
    r"|chat-template(?:-kwargs)?|reasoning(?:-format|-effort|-budget)?"
)
#: where the value is more than the word of a choice
_WORDS = {
    # the name of one that it has; other text is a template
    "chat-template": re.compile(r"[A-Za-z0-9_.-]{1,64}"),
    "chat-template-kwargs": re.compile(r"\{[A-Za-z0-9_.,:\"\[\]{} +-]{0,512}\}"),
    "samplers": re.compile(r"[a-z_;-]{1,256}"),
    **dict.fromkeys(
        ("override-tensor", "spec-draft-override-tensor"), re.compile(r"[\w.,:=*+?|()\[\]^$\\-]{1,256}", re.A)
    ),
}


def free_in_llama_cpp(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return bool(_SWITCH.fullmatch(name))
    return bool(_VALUE.fullmatch(name)) and is_word(value, _WORDS.get(name, WORD))
