# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which vLLM serves: what an image's name tells of it before the image is there, and what is needed of it then."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import RAY_MINIMUM
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release

#: the vLLM in nvcr.io/nvidia/vllm by release, where its notes were at hand; a newer release has no older one
NVIDIA: Mapping[str, str] = {
    **{"25.10": "0.10.2", "26.01": "0.11.1", "26.03": "0.17.1", "26.05": "0.20.1", "26.10": "0.31.0"},
}
_NOTES = "docs.nvidia.com/deeplearning/frameworks/vllm-release-notes"
_NVIDIA_TAG = re.compile(r"nvcr\.io/nvidia/vllm:(\d\d\.\d\d)(?:[.-]\S*)?")
_VLLM_TAG = re.compile(r"(?:docker\.io/)?vllm/vllm-openai:v(\d+\.\d+\.\d+)(?:[.-]\S*)?")
#: vLLM's own images have a Ray up to 0.19, and in those of 0.15 it is older than Ray 2.54
_WITH_OLDER_RAY = (0, 16)
_WITHOUT_RAY = (0, 20)
#: NVIDIA's have none from this release on; which one the older have, their notes do not say
_NVIDIA_WITHOUT_RAY = "26.04"

#: from here on vLLM's parser qwen3 takes an answer without the opening tag (tests/truth/reasoning_parsers.json)
QWEN3_WITHOUT_TAG = "0.17"
#: models whose template writes the opening tag into the prompt
_TAG_IN_PROMPT = re.compile(r"qwen3.*thinking|qwen3\.[5-9]", re.IGNORECASE)


class Known(NamedTuple):
    """The oldest and the newest vLLM that an image may have, empty where nothing is known, and what says so."""

    least: str = ""
    most: str = ""
    source: str = ""

    @property
    def exact(self) -> str:
        return self.most if self.least == self.most else ""


def of_image(image: str) -> Known:
    """What the name of an image tells of its vLLM."""
    if found := _VLLM_TAG.fullmatch(image):
        return Known(found[1], found[1], "its tag")
    found = _NVIDIA_TAG.fullmatch(image)
    if found is None:
        return Known()
    older = [one for one in NVIDIA if one <= found[1]]
    newer = [one for one in NVIDIA if one >= found[1]]
    return Known(
        NVIDIA[max(older)] if older else "",
        NVIDIA[min(newer)] if newer else "",
        f"{_NOTES}, releases {' and '.join(dict.fromkeys([*older[-1:], *newer[:1]]))}",
    )


def too_old_for_ray(image: str) -> str:
    """Why an image's Ray cannot be used; empty where its name does not tell it."""
    found = _VLLM_TAG.fullmatch(image)
    if found is None or release(found[1])[:2] >= _WITH_OLDER_RAY:
        return ""
    return (
        f"engine_image: {image} is too old: it has a Ray from before {RAY_MINIMUM}, without token authentication. "
        "Choose vLLM 0.16 or later, or vllm_serve_executor: mp, which needs no Ray."
    )


def ray_in(image: str) -> tuple[bool, str]:
    """Whether an image is known by its name to have a Ray that can be used, and what is known."""
    if found := _VLLM_TAG.fullmatch(image):
        if release(found[1])[:2] >= _WITHOUT_RAY:
            return False, f"{image} has no Ray, as vLLM's images from 0.20 on"
        if too_old_for_ray(image):
            return False, f"the Ray of {image} is from before {RAY_MINIMUM}, without token authentication"
        return True, f"{image} has Ray"
    if (found := _NVIDIA_TAG.fullmatch(image)) and found[1] >= _NVIDIA_WITHOUT_RAY:
        return False, f"{image} has no Ray, as NVIDIA's images from {_NVIDIA_WITHOUT_RAY} on"
    return (
        False,
        f"nobody knows whether {image or 'the image'} has a Ray of {RAY_MINIMUM} or later before it is on a host",
    )


def unknown(image: str, known: Known) -> str:
    """What is said in preflight of an image whose vLLM is not known yet."""
    bounds = [f"{words} {number}" for words, number in (("from", known.least), ("at most", known.most)) if number]
    told = f" ({', '.join(bounds)}, by {known.source})" if bounds else ""
    return (
        f"The vLLM of {image} is not known before the image is there{told}: arguments are planned for a new one, and "
        "checked by the image's own before it serves. engine_vllm_version names it."
    )


def needs(recipe: Mapping[str, Any], model: str, given: Collection[str], taken: Mapping[str, bool]) -> dict[str, Any]:
    """What a plan needs of the engine that serves it, to be checked where the engine is.

    ``given`` are the arguments that the user gives, ``taken`` says by version whether the arguments of older ones were
    taken.
    """
    below = [
        {"version": str(rule["version"]), "args": args, "taken": taken[str(rule["version"])]}
        for rule in recipe["args_below"]
        if (args := {key: value for key, value in rule["args"].items() if key not in given})
    ]
    minimum = str(recipe["vllm"].get("minimum") or "")
    return {"recipe": recipe["name"], "model": model, "minimum": minimum, "below": below}


def problems(needed: Mapping[str, Any], version: str, arguments: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with serving the plan that ``needed`` is of by this version of vLLM."""
    minimum = str(needed.get("minimum") or "")
    if minimum and release(version) < release(minimum):
        what = f"recipe {needed['recipe']} needs vLLM {minimum} or later, and the engine has {version}"
        yield Finding("engine", what, "choose an image or a lock that has it")
    for rule in needed.get("below") or ():
        older = release(version) < release(rule["version"])
        if older != rule["taken"]:
            shown = ", ".join(f"{key}: {value}" for key, value in rule["args"].items())
            what = (
                f"the engine has vLLM {version}, and recipe {needed['recipe']} was planned for one "
                f"{'from' if older else 'before'} {rule['version']} ({shown} before it)"
            )
            yield Finding("engine", what, f"set engine_vllm_version: {version}")
    yield from parser_problems(str(needed.get("model") or ""), arguments, version)


def parser_problems(model: str, arguments: Mapping[str, Any], version: str) -> Iterator[Finding]:
    """A parser that takes the thoughts of this model for its answer."""
    older = bool(version) and release(version) < release(QWEN3_WITHOUT_TAG)
    if older and arguments.get("reasoning-parser") == "qwen3" and _TAG_IN_PROMPT.search(model):
        yield Finding(
            "parser",
            f"waits for an opening <think> before vLLM {QWEN3_WITHOUT_TAG}, which {model} does not write, so its "
            "thoughts stand in the answer",
            "give vllm_serve_reasoning_parser: deepseek_r1, or a newer vLLM",
            where="reasoning-parser",
            value="qwen3",
            severity=WARNING,
        )
