# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the serving groups of one host serve there, planned one after the other (``beside.py`` splits the memory)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import USUAL_UTILIZATION
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.beside import Beside
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import beside, listed_models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    plan_cluster_beside as cluster_beside,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import DEFAULT_UTILIZATION
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import (
    Ask,
    ServingError,
    available_bytes,
    plan_whole,
)

Nodes = Mapping[str, Mapping[str, Any]]


def refused(head_group: Mapping[str, Any], names: Sequence[str], variables: Mapping[str, Any]) -> list[Finding]:
    """Why no other group can be beside this one on its head, whatever the memory."""
    host, findings = str(head_group["head"]), []
    if head_group["gpus"][host] != 1:
        beside_it = f"{', '.join(names)} beside {head_group['group']}"
        what = f"it has {head_group['gpus'][host]} GPUs, and {beside_it} needs a host with one"
        findings.append(Finding("beside", what, "give the group a host of its own", host))
    if (engine := head_group["serving"].get("engine") or registry.DEFAULT.name) != registry.DEFAULT.name:
        what = f"it serves with {engine}, whose memory is not planned beside {', '.join(names)}"
        findings.append(Finding("beside", what, "give the group a host of its own", host, where=registry.VARIABLE))
    if int(variables.get("vllm_serve_degraded_after") or 0) > 0:
        what = f"the smaller recipe of group {head_group['group']} is not planned beside {', '.join(names)}"
        fix = "set vllm_serve_degraded_after to 0, or give the group a host of its own"
        findings.append(Finding("beside", what, fix, host, where="vllm_serve_degraded_after"))
    return findings


def plan_beside(
    cluster: dict[str, Any],
    given: Mapping[str, Any],
    head_group: Mapping[str, Any],
    variables: Mapping[str, Any],
    nodes: Nodes,
    ask: Ask | None = None,
    others: Sequence[beside.Share] = (),
) -> beside.Share:
    """Put into the plan of a group what it serves beside the group ``head_group``, and say what it takes of the memory.

    ``variables`` are those of the host. One on demand takes what ``others`` leave, as the own group does that it takes
    turns with.  Raises ServingError, which names the group.
    """
    name, host = str(cluster["group"]), str(cluster["head"])
    memory = int(nodes[host]["mem_total_bytes"])
    # the engine is that of the host
    engine = {
        "engine_runtime": head_group["runtime"],
        "engine_vllm_version": variables.get("engine_vllm_version") or head_group["serving"].get("engine_version"),
    }
    wanted = beside.variables_of({**given, **engine}, variables)
    # what is free is compared with all groups together
    here = {host: {**nodes[host], "mem_available_bytes": 0}}
    by_programs = _by_programs(name, host, wanted, head_group)
    try:
        if by_programs:
            serving = plan_whole(wanted, cluster, here, ask)
            share = beside.whole_of(name, serving["memory"])
        else:
            serving, share = _with_a_share(
                cluster, wanted, here, ask, beside.left_for_own(others, memory, USUAL_UTILIZATION)
            )
    except ServingError as error:
        raise ServingError(f"serving_beside: group {name} on {host}: {error}") from error
    _in_store(name, host, str(serving["model"]), variables)
    cluster.update(
        serving=serving,
        tensor_parallel=1,
        pipeline_parallel=1,
        runtime=head_group["runtime"],
        image=head_group.get("image", ""),
        executor=serving["executor"],
        given=dict(given),
    )
    return share


def _with_a_share(
    cluster: Mapping[str, Any], wanted: Mapping[str, Any], here: Nodes, ask: Ask | None, usual: float
) -> tuple[dict[str, Any], beside.Share]:
    """The plan of a group that is told its share of the memory, of which it may have the ``usual`` one."""
    name, memory = str(cluster["group"]), int(here[str(cluster["head"])]["mem_total_bytes"])
    alone = plan_whole(beside.with_args(wanted, {beside.UTILIZATION: max(usual, 0.001)}), cluster, here, ask)
    args: dict[str, Any] = {}
    if beside.PINNED not in alone["args"] and not wanted.get("on_demand"):
        cache = beside.needed_cache(alone["memory"], beside.UTILIZATION in beside.given_args(wanted))
        if not cache:
            raise ServingError(
                f"what its model needs is not known; add {beside.PINNED} to the vllm_serve_args of the group"
            )
        args[beside.PINNED] = cache
        alone = plan_whole(beside.with_args(wanted, args), cluster, here, ask)
    share = beside.share_of(name, alone["memory"], memory, usual)
    if share.weights is None:
        raise ServingError(
            "the size of its model is not known, so no memory can be planned beside another; use a "
            "recipe that has the model's config, or give the group a host of its own"
        )
    whole = wanted.get("on_demand") and beside.PINNED not in alone["args"]
    args[beside.UTILIZATION] = usual if whole else beside.fraction(share.total, memory)
    return plan_whole(beside.with_args(wanted, args), cluster, here, ask), share


def _by_programs(name: str, host: str, wanted: Mapping[str, Any], head_group: Mapping[str, Any]) -> bool:
    """Whether a group beside another is served by programs that lie beside the host's engine, in turns with it.

    Raises ServingError for one that wants another engine.
    """
    named = str(wanted.get(registry.VARIABLE) or registry.DEFAULT.name)
    if named == registry.DEFAULT.name:
        return False
    other = registry.ENGINES.get(named)
    if other and other.on_host.programs:
        if wanted.get("on_demand"):
            return True
        raise ServingError(
            f"serving_beside: group {name} on {host}: the memory of {other.title} is not planned beside "
            f"{head_group['group']}; add on_demand, with which they take turns, or give the group a host of its own"
        )
    raise ServingError(
        f"serving_beside: group {name} on {host}: {registry.VARIABLE}={named}: the engine of a "
        f"host is one, and {head_group['group']} has another; leave it out, or give the group a host of its own"
    )


def _in_store(name: str, host: str, model: str, variables: Mapping[str, Any]) -> None:
    """Raises ServingError if the model store would not bring the model of a group beside another."""
    # vllm_serve's own revision of it is brought by the model store of the host's own group
    listed = [str(model["name"]) for model in variables.get("model_store_models") or []]
    if listed and model not in listed:
        raise ServingError(
            f"serving_beside: group {name} on {host}: model_store_models lacks its model {model}; add it"
        )


def plan_own(
    cluster: Mapping[str, Any],
    others: Sequence[beside.Share],
    variables: Mapping[str, Any],
    nodes: Nodes,
    ask: Ask | None = None,
) -> tuple[dict[str, Any], list[Finding], str]:
    """What the host's own group serves beside ``others``, what is wrong with all of them together, and a line of it.

    ``cluster`` has the plan that it would have alone.  Raises ServingError.
    """
    host, serving = str(cluster["head"]), dict(cluster["serving"])
    memory = int(nodes[host]["mem_total_bytes"])
    alone = float(serving["args"].get(beside.UTILIZATION, DEFAULT_UTILIZATION))
    share_here = beside.share_of(str(cluster["group"]), serving["memory"], memory, alone)
    pinned = beside.PINNED in serving["args"]
    share = beside.fraction(share_here.total, memory) if pinned else beside.left_for_own(others, memory, alone)
    if beside.UTILIZATION not in beside.given_args(variables) and (pinned or share < alone):
        taken = sum(other.total for other in others)
        here = {**nodes, host: _without(nodes[host], taken)}
        try:
            serving = plan_whole(
                beside.with_args(variables, {beside.UTILIZATION: max(share, 0.001)}), cluster, here, ask
            )
        except ServingError as error:
            raise ServingError(
                f"{error} It shares {host} with {', '.join(map(str, others))}: lower {beside.PINNED} or "
                "vllm_serve_max_model_len there, or give that group a host of its own."
            ) from error
        share_here = beside.share_of(str(cluster["group"]), serving["memory"], memory, share)
    shares = [share_here, *others]
    available = (available_bytes([host], nodes) or {}).get(host)
    return serving, beside.too_much(host, memory, available, shares), beside.told(host, memory, shares)


def _without(node: Mapping[str, Any], taken: int) -> dict[str, Any]:
    """Facts of a host of which others take this much."""
    available = int(node.get("mem_available_bytes") or 0)
    return {**node, "mem_available_bytes": max(1, available - taken) if available else available}


def with_models(serving: dict[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The plan of a host's own group, whose model store brings the models of the others as well."""
    models = listed_models.as_served(serving, others)
    for other in others:
        models += [model for model in other["models"] if model["name"] not in {known["name"] for known in models}]
    return {**serving, "models": models, "beside": [str(other["model"]) for other in others]}


@dataclass(frozen=True)
class Together:
    """What all serving groups of a host serve: its own one, those beside it by name, and a line for people."""

    serving: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, dict[str, Any]] = field(default_factory=dict)
    line: str = ""
    problems: list[Finding] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        return [warning for other in self.beside.values() for warning in other["serving"]["warnings"]]


def plan_together(
    head_group: Mapping[str, Any],
    others: Sequence[Beside],
    variables: Mapping[str, Any],
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Nodes,
    fabric: Mapping[str, Any],
    ask: Ask | None = None,
) -> Together:
    """The plan of a serving group and of those beside it on its head, which share the memory there.

    ``head_group`` has the plan that it would have alone, ``variables`` are those of the host.  Raises ServingError.
    """
    host = str(head_group["head"])
    if problems := refused(head_group, [group.name for group in others], variables):
        return Together(problems=problems)
    shares: list[beside.Share] = []
    planned, memory = {}, int(nodes[host]["mem_total_bytes"])
    turns = [group for group in others if group.settings.get("on_demand")]
    for group in others:
        planned[group.name] = cluster_beside(group.name, host, hostvars, nodes, fabric)
        if group not in turns:
            shares.append(plan_beside(planned[group.name], group.settings, head_group, variables, nodes, ask))
    serving, problems, line = plan_own(head_group, shares, variables, nodes, ask)
    for group in turns:
        share = plan_beside(planned[group.name], group.settings, head_group, variables, nodes, ask, shares)
        # what is available now is what the own group leaves or has: either of the two counts, not both
        problems += beside.too_much(host, memory, None, [share, *shares])
        line += f"; on demand instead of {head_group['group']}: {share}"
    return Together(with_models(serving, [other["serving"] for other in planned.values()]), planned, line, problems)
