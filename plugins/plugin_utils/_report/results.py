# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller side of status, verify and report have in common: registered results and files beside the
inventory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable_data
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import beside, inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import groups as serving_groups
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import plan_cluster_beside, plan_parts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import status as _status
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.query import QueryError, pick


def gather(
    task_vars: Mapping[str, Any], name: str
) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]], dict[str, Mapping[str, Any]]]:
    """Groups, the variables that the plan reads, and what the task that registered ``name`` returned, by host."""
    groups = {group: list(hosts) for group, hosts in task_vars["groups"].items()}
    everything = task_vars["hostvars"]
    hosts = inventory.cluster_hosts(groups)
    hostvars = {host: inventory.planned_by(Declared(everything[host], strict=False)) for host in hosts}
    outcomes = {host: everything[host].get(name) or {} for host in hosts}
    return groups, hostvars, outcomes


class Seen(NamedTuple):
    """The cluster as its inventory means it and as its hosts were seen."""

    status: dict[str, Any]
    facts_by_host: dict[str, Mapping[str, Any]]  # of the hosts that answered
    cluster: dict[str, Any]
    fabric: dict[str, Any]
    plan_error: str


def see(task_vars: Mapping[str, Any], name: str) -> Seen:
    """Put the facts that a task registered as ``name`` beside the plan. Only groups that make no sense are an error."""
    groups, hostvars, outcomes = gather(task_vars, name)
    names = inventory.named_groups(hostvars, list(hostvars))
    problems = inventory.group_problems(groups, names) or serving_groups.problems(groups, names)
    if problems:
        raise AnsibleActionFail("; ".join(str(problem) for problem in problems))
    described = beside.named(hostvars, list(hostvars))
    chosen = _chosen(task_vars.get("serving_group"), [*names, *(described if isinstance(described, Mapping) else ())])
    status = _status.document(groups, hostvars, outcomes, time.time())
    facts_by_host = {host: outcome["status"] for host, outcome in outcomes.items() if outcome.get("status")}
    cluster, fabric, nodes, plan_error = _status.plan(groups, status["cluster"]["hosts"], hostvars, facts_by_host)
    if names and not plan_error:
        # of one group at a time a speed can be measured and a plan be shown
        everything = task_vars["hostvars"]
        others = {one.name: one for one in _groups_beside(groups, names, described, everything[next(iter(hostvars))])}
        parts = plan_parts(inventory.parts(groups, names), hostvars, nodes, fabric)
        if chosen not in status["groups"]:
            what = f"serving_group: {chosen} is not on {others[chosen].host}, or that host does not answer"
            raise AnsibleActionFail(f"{what}; run site.yml")
        cluster = parts.get(chosen) or {
            **plan_cluster_beside(chosen, others[chosen].host, hostvars, nodes, fabric),
            "given": others[chosen].settings,
        }
        status.update({key: status["groups"][chosen][key] for key in ("ray", "serving")})
    return Seen(status, facts_by_host, cluster, fabric, plan_error)


def _chosen(given: Any, known: Sequence[str]) -> str:
    """The serving group that is meant: the first one unless another is named; empty where the cluster has none."""
    if given and given not in known:
        what = (
            f"is not one of {', '.join(known)}; name one of them" if known else "no groups are declared; leave it out"
        )
        raise AnsibleActionFail(f"serving_group: {str(given)[:80]!r}{' ' if known else ': '}{what}")
    return str(given or next(iter(known), ""))


def _groups_beside(
    groups: Mapping[str, Sequence[str]], names: Sequence[str], described: Any, variables: Mapping[str, Any]
) -> list[beside.Beside]:
    given = Declared(variables, strict=False)
    if problems := beside.problems(groups, names, described, given):
        raise AnsibleActionFail("; ".join(str(problem) for problem in problems))
    return beside.groups_beside(described, given) if described else []


def served(facts: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a head says of the group that was chosen, which may be one beside its own."""
    serving_there: Mapping[str, Any] = facts["serving"]
    if "given" not in cluster:
        return serving_there
    return {**serving_there, **serving_there["beside"][cluster["group"]]}


def group_of(cluster: Mapping[str, Any]) -> str:
    """The name of the group that was chosen; empty where the inventory names none."""
    return str(cluster.get("group") or "")


def runs_of_group(runs: Sequence[dict[str, Any]], cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Earlier results of the same serving group; all where there is no plan. Those of earlier versions do not say of
    which one they are."""
    group = group_of(cluster)
    return [run for run in runs if not cluster or run.get("group", group) == group]


def save(path: str, content: str | Mapping[str, Any], variable: str) -> str:
    """Write text, or a document as JSON; where that fails, the error names the variable to change."""
    path = local(path)
    try:
        text = content if isinstance(content, str) else json.dumps(printable_data(content), indent=1) + "\n"
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o755, exist_ok=True)
        files.write_atomic(path, text)
    except OSError as error:
        raise AnsibleActionFail(f"{variable}: {path} cannot be written: {error.strerror}") from error
    return path


def show_picked(document: Mapping[str, Any], query: str, variable: str, tell: Callable[[str], None]) -> Any:
    """Show, as JSON, and return what a query finds in a document."""
    try:
        picked = pick(document, query, variable)
    except QueryError as error:
        raise AnsibleActionFail(str(error)) from error
    tell(json.dumps(picked, indent=1, ensure_ascii=False))
    return picked


def results_folder(task_vars: Mapping[str, Any], given: str | None = None) -> str:
    """Where verify, doctor and report keep what they found: beside the inventory, like the secrets."""
    if given:
        return local(given)
    base = task_vars.get("inventory_dir") or os.getcwd()
    return os.path.join(str(base), ".results")


def read_all(folder: str, newest: int) -> list[str]:
    """The texts of the newest JSON files of a folder, oldest first; none where there is no folder."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))[-newest:]
    except OSError:
        return []
    texts = []
    for name in names:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as handle:
                texts.append(handle.read(4_000_000))
        except (OSError, UnicodeDecodeError):
            continue
    return texts


def told(seen: Seen) -> dict[str, float]:
    """By which arguments the engine knows its part of the memory of a host that several groups share."""
    facts = seen.facts_by_host.get(seen.cluster["head"])
    if facts is None or not facts["serving"].get("beside"):
        return {}
    options = served(facts, seen.cluster)["options"]
    return {
        name: float(options[name]) for name in ("gpu-memory-utilization", "kv-cache-memory-bytes") if name in options
    }


def serving_plan(
    everything: Mapping[str, Any],
    cluster: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    args: Mapping[str, float] | None = None,
) -> tuple[dict[str, Any], str]:
    """What the recipe comes to on these hosts, with its memory plan; empty, with the reason, where it cannot.

    ``args`` of the engine are those that the plan of all groups of a host has given it.
    """
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import beside as sharing
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serving

    head = cluster["hosts"][0]
    if any(host not in nodes for host in cluster["hosts"]):
        return {}, "a host did not answer"
    variables: Mapping[str, Any] = Declared(everything[head], strict=False)
    if "given" in cluster:
        variables = sharing.variables_of(cluster["given"], variables)
    variables = sharing.with_args(variables, args) if args else variables
    first = {name: variables[name] for name in serving.READ_OF_HEAD if name in variables}
    try:
        base = str(variables.get("inventory_dir") or "")
        found = serving.plan_serving(first, cluster, nodes, base or ".", lambda *model: _known(base, *model))
    except ValueError as error:
        return {}, " ".join(str(error).split())
    return found, "" if found else "no vllm_serve_recipe"


def _known(inventory: str, repo: str, revision: str) -> tuple[dict[str, Any], int] | None:
    """What the run that served the model learned of it from the hub."""
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub_card
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record

    card = hub_card.kept(repo, hub_card.recorded(repo, revision, Record(inventory)))
    return (card.config, card.weights) if card else None


def decode_bound(
    everything: Mapping[str, Any], cluster: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[float | None, str]:
    """Tokens a second that memory bandwidth allows one stream, and why there is none."""
    found, why = serving_plan(everything, cluster, nodes)
    bound = (found.get("memory") or {}).get("decode_tokens_per_second_bound")
    return (float(bound), "") if bound else (None, why or "the model's plan has none")
