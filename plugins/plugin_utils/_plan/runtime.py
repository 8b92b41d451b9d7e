# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the engine runs from a Python environment or a container image, and one sentence of why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

VENV, CONTAINER = "venv", "container"
#: variables that make sense with one of the two alone
_OF_IMAGE = ("engine_image", "engine_image_archive", "engine_image_digest")
_OF_VENV = ("engine_requirements", "engine_wheel_dir")


class Runtime(NamedTuple):
    name: str
    why: str

    def sentence(self) -> str:
        return f"engine in a {'container' if self.name == CONTAINER else 'venv'}: {self.why}"


def choose(given: Mapping[str, Any], kinds: Collection[str], recipe: Mapping[str, Any] | None = None) -> Runtime:
    """The inventory decides, then the recipe, then what the hosts are.

    ``given`` are the inventory's variables, ``kinds`` those of all hosts.
    """
    if given.get("engine_runtime"):
        return Runtime(str(given["engine_runtime"]), "engine_runtime of the inventory says so")
    images = [name for name in _OF_IMAGE if given.get(name)]
    locks = [name for name in _OF_VENV if given.get(name)]
    if images and not locks:
        return Runtime(CONTAINER, f"the inventory sets {images[0]}")
    if locks and not images:
        return Runtime(VENV, f"the inventory sets {locks[0]}")
    if recipe and recipe.get("runtime"):
        return Runtime(str(recipe["runtime"]), f"recipe {recipe.get('name')} says so")
    if kinds and set(kinds) == {"spark"}:
        why = "NVIDIA's image has what the engine compiles with on a Spark (engine_runtime: venv for the other)"
        return Runtime(CONTAINER, why)
    return Runtime(VENV, "one image does not serve hosts of other kinds than Spark")


def image(runtime: Runtime, kinds: Collection[str], named: str, default: str) -> str:
    """The image where the inventory names none; ``default`` is the engine's own for Sparks."""
    if named or runtime.name != CONTAINER or set(kinds) != {"spark"}:
        return named
    return default
