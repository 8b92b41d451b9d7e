# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published config.json files: the fields that decide sizes, as they are written there.

What a file leaves to its class's defaults is left out here too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: what the plan does not know, and says so
NOT_KNOWN = {
    "gpt-bigcode": "gpt_bigcode",
    "phi-3.5-vision": "phi3_v",
    "transformers-bitnet": "bitnet",
    "transformers-glm_ocr": "glm_ocr_text",
    "transformers-persimmon": "persimmon",
    "transformers-zamba2": "zamba2",
}
MODELS = Path(__file__).parents[1] / "fixtures" / "models"


def model(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((MODELS / f"{name}.json").read_text())
    return config
