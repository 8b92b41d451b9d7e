# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold the memory plan against vLLM's own specification code, over all config.json files of tests/fixtures/models.

    python -m tools.judge                 ask the vLLM of the lab, compare with tests/truth/specs.json and the plan
    python -m tools.judge --write         and keep its answers there
    python -m tools.judge --plan          compare the kept answers with the plan; needs no vLLM
    python -m tools.judge NAME ...        only these models

Quantization is left out, so that weights count parameters. What a model is asked
and what vLLM answers for each stage: bytes of a token, of a window's token and of the states, one request of the whole
length, the longest that fits, and weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    max_context,
    text_config,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.known import TYPES, unknown_of
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

TOP = Path(__file__).resolve().parents[2]
MODELS = TOP / "tests" / "fixtures" / "models"
KEPT = TOP / "tests" / "truth" / "specs.json"
GIB = 2**30
AVAILABLE = 64 * GIB
LENGTH, BATCHED = 32768, 8192
SPLITS = ((1, 1), (2, 1), (1, 2))
#: asked as they are stored: DeepSeek V4 has no class without it, and experts of gpt-oss are padded for their kernel
NEEDS_QUANTIZATION = ("deepseek_v4", "deepseek_v41", "gpt_oss")
#: further questions: other dtypes of the cache, and tokens that the model predicts for itself
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("llama-3.1-8b", "fp8", {"kv": "fp8"}),
    ("llama-3.1-8b", "turboquant", {"kv": "turboquant_k8v4"}),
    ("qwen3.6-35b-a3b", "fp8", {"kv": "fp8"}),
    ("qwen3.6-35b-a3b", "mtp", {"engine": MTP}),
    ("deepseek-v3.2", "fp8", {"kv": "fp8"}),
    # one group of Mamba 2, which each rank needs
    ("transformers-falcon_h1", "tp4", {"tp": 4}),
)
#: at most so far from vLLM
CLOSE = 0.01


def _without_quantization(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("model_type") in NEEDS_QUANTIZATION:
        return config
    kept = {key: value for key, value in config.items() if key not in ("quantization_config", "compression_config")}
    return {key: _without_quantization(value) if isinstance(value, dict) else value for key, value in kept.items()}


def cases(names: list[str]) -> list[dict[str, Any]]:
    configs = []
    for path in sorted(MODELS.glob("*.json")):
        if names and path.stem not in names:
            continue
        config = _without_quantization(json.loads(path.read_text()))
        text = config.get("text_config") or config
        length = min(LENGTH, max_context(config) or LENGTH)
        for tensor, pipeline in SPLITS:
            case_id = f"{path.stem} tp{tensor} pp{pipeline}"
            configs.append(
                {"id": case_id, "config": config, "tp": tensor, "pp": pipeline, "length": length, "batched": BATCHED}
            )
            if text.get("dtype") == "float32":
                # as its recipe asks; by itself vLLM makes bfloat16 of it
                configs[-1]["engine"] = {"dtype": "float32"}
        one = next(case for case in configs if case["id"] == f"{path.stem} tp1 pp1")
        configs += [{**one, "id": f"{one['id']} {what}", **more} for name, what, more in VARIANTS if name == path.stem]
    return configs


def ask(wanted: list[dict[str, Any]]) -> dict[str, Any]:
    """vLLM's answers, from the environment that the lab prepares."""
    sys.path.insert(0, str(TOP / "lab" / "engine"))
    import prepare

    venv = prepare.prepare(None, venv=True)["venv"]
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "cases.json", Path(folder) / "answers.json"
        asked.write_text(json.dumps(wanted))
        subprocess.run(
            [f"{venv}/bin/python", "-B", str(Path(__file__).with_name("ask.py")), str(asked), str(answered)],
            check=True,
            env={"HOME": folder, "PATH": os.environ["PATH"]},
        )
        answers: dict[str, Any] = json.loads(answered.read_text())
    return answers


@dataclass(frozen=True)
class Difference:
    case: str
    what: str
    planned: float
    asked: float

    def __str__(self) -> str:
        share = self.planned / self.asked - 1 if self.asked else float("inf")
        return f"{self.case}: {self.what} {self.planned:,.0f}, vLLM {self.asked:,.0f} ({100 * share:+.2f} %)"


def compare(case: dict[str, Any], answer: dict[str, Any]) -> list[Difference] | str:
    """What of the plan is more than 1 % from vLLM's answer, or why the plan does not know the model."""
    options = {
        "tensor_parallel": case["tp"],
        "pipeline_parallel": case["pp"],
        "max_model_len": case["length"],
        "max_num_batched_tokens": case["batched"],
        "kv_cache_dtype": case.get("kv", "auto"),
        "dtype": case.get("engine", {}).get("dtype", "auto"),
        "speculative_config": (drafting := case.get("engine", {}).get("speculative_config")),
        "memory_bytes": 1024 * GIB,
        "kv_cache_memory_bytes": AVAILABLE,
        "overhead_bytes": 0,
    }
    try:
        result = plan(case["config"], **options)
    except SizingError as error:
        return str(error)
    if result["unknown"]:
        return "; ".join(result["unknown"])
    ranks = result["ranks"]
    found = []
    for stage, theirs in enumerate(answer["stages"]):
        rank = stage * case["tp"]
        ours = {
            "bytes of a token": ranks["kv_bytes_of_token"][rank],
            "bytes of a window's token": ranks["window_bytes_of_token"][rank],
            "state": ranks["state_bytes_per_sequence_per_rank"][rank],
            "one request": ranks["request_bytes"][rank],
            "weights": ranks["weights_bytes_per_rank"][rank],
        }
        asked = dict(
            zip(ours, (theirs[k] for k in ("token", "window_token", "state", "request", "weights")), strict=True)
        )
        if drafting:
            del ours["weights"]  # vLLM's answer is of the model without what drafts
        for what, value in ours.items():
            if abs(value - asked[what]) > CLOSE * max(asked[what], 1):
                found.append(Difference(f"{case['id']} stage {stage}", what, value, asked[what]))
    return found


def tally(answers: dict[str, Any]) -> str:
    """What is held against vLLM, in the words of docs/developers.md."""
    configs = {case["id"].partition(" ")[0]: case["config"] for case in cases([]) if case["id"] in answers}
    architectures = {config["architectures"][0] for config in configs.values()}
    strange = {text_config(config)["model_type"] for config in configs.values() if unknown_of(text_config(config))}
    judged = {kind for config in configs.values() for kind in (config["model_type"], text_config(config)["model_type"])}
    return (
        f"{len(answers)} answers for {len(configs)} models of {len(architectures)} architectures are kept. "
        f"The plan does not know {len(strange)} of these, and says so: {', '.join(sorted(strange))}. "
        f"It knows these by their fields alone, without an answer: {', '.join(sorted(TYPES - judged))}."
    )


def kept() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(KEPT.read_text())
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.judge", description=__doc__)
    parser.add_argument("names", nargs="*", help="models (default: all)")
    parser.add_argument("--write", action="store_true", help="keep vLLM's answers")
    parser.add_argument("--plan", action="store_true", help="compare kept answers alone")
    arguments = parser.parse_args()
    wanted = cases(arguments.names)
    answers = kept() if arguments.plan else ask(wanted)
    if arguments.write:
        answered = {name: answer for name, answer in answers.items() if "error" not in answer}
        whole = {**(kept() if arguments.names else {}), **answered}
        KEPT.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
    bad = 0
    for case in wanted:
        answer = answers.get(case["id"], {"error": "was not asked"})
        if "error" in answer:
            print(f"{case['id']}: vLLM makes no specification of it: {answer['error'].strip().splitlines()[-1]}")
            continue
        result = compare(case, answer)
        if isinstance(result, str):
            print(f"{case['id']}: not known: {result}")
            continue
        bad += len(result)
        for difference in result:
            print(difference)
        if not arguments.plan and not arguments.write and kept().get(case["id"]) != answer:
            print(f"{case['id']}: vLLM answers differently from tests/truth/specs.json")
            bad += 1
    print(f"{len(wanted)} cases, {bad} differences; {tally(kept())}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
