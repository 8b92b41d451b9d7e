# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the trial of an SGLang runs that is not in use yet: it imports it, and loads nothing."""

from __future__ import annotations

#: runs under SGLang's Python; its ranks would be processes of their own, so no model is loaded
PROGRAM = r"""
import json, os, sys
from importlib.metadata import version
import torch, sglang
import sglang.srt.server_args, sglang.srt.entrypoints.engine
found = {**{name: version(name) for name in ("sglang", "torch")}, "gpu": "", "nccl": ""}
if torch.cuda.is_available():
    ones = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
    if float((ones @ ones).sum()) != 64.0 ** 3:
        sys.exit("the GPU multiplies wrongly")
    found["gpu"] = torch.cuda.get_device_name(0)
    found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
print("\n" + json.dumps(found), flush=True)
os._exit(0)
"""
