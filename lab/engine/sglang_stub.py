# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package in which everything is there by name and nothing can be called.

SGLang imports ``sgl_kernel``, whose wheels need a GPU's driver, and ``torchvision``, whose wheels need CUDA. With a
text model on a CPU it computes by torch's own operations and calls neither. lab/engine/sglang.py makes both of it.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: of the kernels that SGLang 0.5.23 asks for
__version__ = "0.4.10"


class Named:
    """A function, class or namespace that is not there."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name: str) -> Named:
        return named(self.__name__, name)

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Whoever derives from it derives from nothing."""
        return ()

    def __call__(self, *_arguments: Any, **_options: Any) -> Any:
        raise RuntimeError(f"{self.__name__} is a name without a function: see the lab's sglang_stub.py")


def named(place: str, name: str) -> Named:
    if name.startswith("__"):
        raise AttributeError(name)
    return Named(f"{place}.{name}")


def __getattr__(name: str) -> Named:
    return named(__name__, name)


class Below(MetaPathFinder, Loader):
    """Finds whatever module is asked for below this package."""

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = lambda name: named(module.__name__, name)


sys.meta_path.append(Below())
