# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan has to know of an engine, whichever it is: what it can do, and what it puts on a host.

An engine is one file beside this one with a :class:`PlannedEngine`, its line in :mod:`registry`, one file for hosts
(``module_utils/_onhost/engines``), and the templates of its files in the role. Runs on the controller only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving


@dataclass(frozen=True)
class Abilities:
    """What an engine can do here. What it cannot is refused before a host is contacted, or when facts are known."""

    #: ``vllm_serve_executor``: what may start its ranks
    executors: frozenset[str]
    #: ``engine_runtime``: ways to have it on a host
    runtimes: frozenset[str]
    #: kinds of machines
    kinds: frozenset[str]
    #: ``safetensors`` (a folder of the hub's form) or ``gguf`` (one file, or its parts)
    formats: frozenset[str]
    #: most hosts of one serving group; None without a limit
    hosts: int | None = None
    #: why not more, in words; empty where there is no more to say
    alone: str = ""
    #: whether the parts of each layer, and whole layers, can be on several hosts
    tensor: bool = True
    pipeline: bool = True
    #: whether a smaller model may serve while a host stays away
    degraded: bool = False
    #: whether parsers of tool calls and thoughts can be named, and adapters (LoRA) served beside a model
    parsers: bool = True
    adapters: bool = True
    #: whether each host needs the model; else the head alone does
    everywhere: bool = True
    #: whether the engine that is installed says which options it takes, before anything is stopped
    checked: bool = True


@dataclass(frozen=True)
class PortGuard:
    """A port of the engine on which others must not be: on the loopback, or with others between hosts."""

    port: int
    #: on a host that listens: addresses from which it is asked
    clients: list[str] = field(default_factory=list)
    #: on a host that asks: addresses that listen
    servers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EngineDemands:
    """What an inventory wants of an engine, as far as it says so; None or empty where it does not."""

    hosts: int
    executor: str = ""
    runtime: str = ""
    kinds: frozenset[str] = frozenset()
    format: str = ""
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    degraded: bool = False
    #: variables that name parsers, and one that names adapters
    parsers: tuple[str, ...] = ()
    adapters: str = ""


class PlannedEngine(ABC):
    """An engine as the planners see it."""

    on_host: EngineOnHost
    can: Abilities
    #: for Sparks, where neither the inventory nor a recipe names one; empty where this collection chooses none
    image: str = ""
    #: the version in that image
    image_version: str = ""
    #: variable of its environment that says how many layers each pipeline stage gets; empty without one
    partition: str = ""

    @property
    def name(self) -> str:
        """The value of ``serving_engine``."""
        return self.on_host.name

    @property
    def title(self) -> str:
        """As people write it."""
        return self.on_host.title

    def lacks(self, wanted: EngineDemands) -> list[tuple[str, str]]:
        """What of this it cannot do: the variable that says so, and the thing in words."""
        can, hosts = self.can, wanted.hosts
        asked = (
            (
                "vllm_serve_executor",
                bool(wanted.executor) and wanted.executor not in can.executors,
                f"{wanted.executor} as executor",
            ),
            ("engine_runtime", bool(wanted.runtime) and wanted.runtime not in can.runtimes, f"a {wanted.runtime}"),
            ("", bool(wanted.kinds - can.kinds), f"hosts of kind {', '.join(sorted(wanted.kinds - can.kinds))}"),
            ("vllm_serve_model", bool(wanted.format) and wanted.format not in can.formats, f"{wanted.format} models"),
            ("", can.hosts is not None and hosts > can.hosts, f"{hosts} hosts{f' ({can.alone})' if can.alone else ''}"),
            (
                "vllm_serve_tensor_parallel_size",
                not can.tensor and (wanted.tensor_parallel or 1) > 1,
                f"TP={wanted.tensor_parallel}",
            ),
            (
                "vllm_serve_pipeline_parallel_size",
                not can.pipeline and (wanted.pipeline_parallel or 1) > 1,
                f"PP={wanted.pipeline_parallel}",
            ),
            ("vllm_serve_degraded_after", wanted.degraded and not can.degraded, "a smaller model while a host is away"),
            *((name, not can.parsers, "parsers, which it takes from the chat template") for name in wanted.parsers),
            (wanted.adapters, bool(wanted.adapters) and not can.adapters, "LoRA adapters here"),
        )
        return [(variable, words) for variable, holds, words in asked if holds]

    @abstractmethod
    def plan(self, recipe: Mapping[str, Any] | str, hosts: Sequence[str], **known: Any) -> dict[str, Any]:
        """What a recipe comes to on these hosts; keys and arguments are those of the default engine.

        Raises RecipeError or SizingError when it cannot be served there.
        """

    def merged_arguments(self, *layers: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of several layers in one spelling; the last one wins."""
        return {option_name(name): value for layer in layers for name, value in layer.items()}

    @abstractmethod
    def config(self, serving: Serving) -> dict[str, Any]:
        """Its configuration file (``on_host.config``) here. Raises ServeConfigError, which names the variable."""

    def smaller_config(self, serving: Serving) -> dict[str, Any]:
        """The same while a host stays away; an engine that ``can.degraded`` has one."""
        raise ServeConfigError(f"vllm_serve_degraded_after: {self.title} has no smaller model; set it to 0")

    @abstractmethod
    def environment(self, serving: Serving) -> dict[str, Any]:
        """Its environment file; what recipe and user want wins. Raises ServeConfigError, which names the variable."""

    @abstractmethod
    def option_arguments(self, serving: Serving) -> dict[str, Any]:
        """Arguments of the module that checks its options by the engine that is installed."""

    @abstractmethod
    def to_acknowledge(self, args: Mapping[str, Any]) -> list[str]:
        """Names for ``vllm_serve_acknowledged`` with which none of these arguments is refused as dangerous."""

    def needed(self, plan: Mapping[str, Any], strange: bool) -> list[str]:
        """Names of this plan's arguments that have to be acknowledged; ``strange``: others' image may know more."""
        return self.to_acknowledge(plan["args"])

    def version_to_check_by(self, recipe: Mapping[str, Any], version: str) -> str:
        """The version whose options a recipe is checked by, where ``version`` may be asked for."""
        return version

    @abstractmethod
    def option_problems(self, asked: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
        """What is wrong with those arguments by the table of the engine that is installed, as a host told it."""

    def refusal(self, errors: Iterable[str], version: str) -> str:
        """One message of all findings that stop a run; the version may be unknown, and empty."""
        by = f" ({self.title} {version})" if version else ""
        return f"vllm_serve_args{by}: {'. '.join(errors)}."

    @abstractmethod
    def command(self, serving: Serving) -> list[str]:
        """The whole command of this host's rank, without what gives it its environment."""

    def socket(self, serving: Serving) -> str:
        """Where it listens, as serving.json has it."""
        return serving.places.socket

    def trial(self, serving: Serving) -> list[str]:
        """A command that ends with 0 if the options of the engine that is installed are right; empty without one."""
        return []

    def listens(self, serving: Serving) -> str:
        """``ADDRESS:PORT`` on which a worker's part has to listen before the head's begins; empty without one."""
        return ""

    def guard(self, serving: Serving) -> PortGuard | None:
        """The port that a firewall rule of the engine's unit keeps to those who need it; None without one."""
        place = self.socket(serving)
        return None if place.startswith("/") else PortGuard(int(place.rpartition(":")[2]))
