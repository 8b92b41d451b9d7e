# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of SGLang's options a recipe or the inventory sets freely, and which only by the inventory's own word. Pure.

The list is of what does no more than choose kernels, sizes and the order of work. SGLang has some 500 options, which
load code, read and delete files, start programs, talk to hosts or open ports, and each release brings more of them: so
whatever is not on the list has to be acknowledged, and so has a beginning of a name, which its parser takes for the
whole.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.free_options import WORD, is_word

_FREE = re.compile(
    # kernels
    r"(?:(?:prefill-|decode-|mm-|speculative-draft-)?attention|sampling|grammar|moe-runner|moe-a2a|(?:fp4|fp8|bf16)-gemm"
    r"|(?:dsa|nsa)-(?:prefill|decode|topk)|linear-attn(?:-prefill|-decode|-verify)?|mamba|flashinfer-allreduce-fusion"
    r"|cuda-graph)-backend(?:-prefill|-decode)?|dsv4-(?:attn|prefill)-backend|speculative-moe-(?:runner|a2a)-backend"
    r"|(?:enable|disable|enforce-disable)-(?:aiter|flashinfer)-(?:allreduce-fusion|autotune)|flashinfer-mla-disable-ragged"
    r"|(?:enable|disable)-(?:custom-all-reduce|mscclpp|symm-mem|torch-symm-mem|nccl-nvls|shared-experts-fusion)"
    r"|(?:enable|disable)-(?:overlap-schedule|two-batch-overlap|single-batch-overlap|torch-compile|fp32-lm-head)"
    r"|flashinfer-mxfp4-moe-precision|enable-deterministic-inference|enable-p2p-check|model-impl"
    r"|triton-attention-(?:reduce-in-fp32|num-kv-splits|split-tile-size)|torch-compile-max-bs|torchao-config"
    # kinds of numbers
    r"|(?:kv-cache-|mamba-ssm-|speculative-draft-kv-cache-)?dtype|(?:speculative-draft-model-)?quantization|load-format"
    # sizes
    r"|mem-fraction-static|max-(?:total-tokens|running-requests|queued-requests|prefill-tokens|mamba-cache-size)"
    r"|chunked-prefill-size|page-size|context-length|cpu-offload-gb|swa-full-tokens-ratio|mamba-full-memory-ratio"
    r"|hybrid-kvcache-ratio|(?:enable|disable)-(?:piecewise-|prefill-|decode-)?cuda-graph(?:-padding)?"
    r"|cuda-graph-(?:max-)?bs(?:-prefill|-decode)?|enable-cudagraph-gc|num-continuous-decode-steps"
    r"|enable-hierarchical-cache|hicache-(?:ratio|size|write-policy|io-backend|mem-layout)"
    r"|(?:dp|ep|attn-dp|attn-cp|moe-dense-tp|moe-dp)-size|pp-max-micro-batch-size"
    r"|enable-(?:dp-attention|dp-lm-head|eplb)|ep-num-redundant-experts|deepep-mode|load-balance-method"
    r"|(?:tokenizer|detokenizer)-worker-num"
    # the order of work
    r"|schedule-(?:policy|conservativeness|low-priority-values-first)|enable-(?:priority-scheduling|mixed-chunk)"
    r"|radix-eviction-policy|retraction-policy|disable-(?:radix-cache|chunked-prefix-cache|hybrid-swa-memory)"
    r"|scheduler-recv-interval|sleep-on-idle|stream-interval|random-seed|(?:soft-)?watchdog-timeout|dist-timeout"
    r"|decode-log-interval|log-level(?:-http)?|weight-loader-(?:disable-mmap|prefetch-num-threads)"
    # drafts without a model of their own
    r"|speculative-(?:algorithm|num-steps|num-draft-tokens|eagle-topk|attention-mode|accept-threshold-(?:single|acc)"
    r"|ngram-(?:match-type|capacity|branch-length|(?:min|max)-(?:bfs-breadth|match-window-size)|max-trie-depth))"
    # answers
    r"|reasoning-parser|tool-call-parser|chat-template|sampling-defaults|is-embedding|enable-multimodal|language-model-only"
    r"|enable-cache-report|allow-auto-truncate|constrained-json-disable-any-whitespace|disable-fast-image-processor"
    r"|(?:enable|disable)-tokenizer-batch-(?:encode|decode)|enable-strict-thinking"
)
#: where other words lead to a file, a host or code
_WORDS = {
    "chat-template": re.compile(r"[A-Za-z0-9_-]*"),
    "load-format": re.compile(
        r"auto|safetensors|fastsafetensors|sharded_state|mistral|gguf|bitsandbytes|layered|npcache|dummy"
    ),
    "model-impl": re.compile(r"auto|sglang|transformers"),
}


def free_in_sglang(name: str, value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return bool(_FREE.fullmatch(name)) and all(is_word(part, _WORDS.get(name, WORD)) for part in parts)
