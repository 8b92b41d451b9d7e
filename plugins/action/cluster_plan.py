# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_plan``: documented in plugins/modules/cluster_plan.py."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    compare_parity,
    parity_table,
    releases,
    versions_across,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import (
    Finding,
    errors_and_others,
    nothing_changed,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_card, models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import (
    ansible_names,
    beside,
    installation,
    inventory,
    play_roles,
    role_specs,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import (
    groups as serving_groups,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import (
    Declared,
    Templated,
    ValueRefused,
    of_collection,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    changes,
    executor,
    fabric_speed,
    front,
    listed_models,
    revisions,
    runtime,
    virtual_address,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric as _fabric
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import assumed_nodes
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    ClusterError,
    plan_cluster,
    plan_parts,
    stated_gpu_problems,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import (
    compare,
    exposure_check,
    fabric_check,
    values,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import usage

Groups = dict[str, list[str]]
_STAGES = ("inventory", "facts", "hosts", "engine", "usage", "chosen")
#: roles that read what the plan says of serving
_SERVING_ROLES = frozenset(("engine", "model_store", "ray_node", "vllm_serve"))


def _placed(message: str, hosts: Sequence[str]) -> str:
    """What roles refuse, with the hosts that they would refuse it on."""
    named = message.startswith((f"{hosts[0]}: ", f"host {hosts[0]}: "))
    return message if named else f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}: {message}"


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "stage": {"type": "str", "choices": list(_STAGES), "default": "facts"},
        "nodes": {"type": "str"},
        "assumed": {"type": "bool", "default": False},
        "fabric": {"type": "dict"},
        "probes": {"type": "str"},
        "accept": {"type": "list", "elements": "str", "default": []},
        "replace_foreign": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["stage"] == "hosts":
            return self._hosts_stage(arguments)
        if arguments["stage"] == "engine":
            return self._engine_stage(arguments["nodes"])
        if arguments["stage"] == "usage":
            return self._usage_stage()
        if arguments["stage"] == "chosen":
            return self._chosen_stage()
        groups = {name: list(hosts) for name, hosts in self.vars["groups"].items()}
        hosts = inventory.cluster_hosts(groups)
        everything = self.vars["hostvars"]
        first = arguments["stage"] == "inventory"
        try:
            # templated once: host variables are lazy, and every access costs; what is refused is reported with the rest
            hostvars = {
                host: inventory.planned_by(Declared(everything[host], strict=not first), inventory.SECRETS)
                for host in hosts
            }
        except ValueRefused as error:
            raise AnsibleActionFail(nothing_changed([error])) from None
        if first:
            forks = int(self.vars.get("ansible_forks") or 5)
            self._inventory_stage(groups, hosts, hostvars, everything, forks, arguments["assumed"])
            twice = installation.warning(installation.copies([*constants.COLLECTIONS_PATHS, *sys.path]))
            return {
                "changed": False,
                "msg": f"the inventory of {len(hosts)} hosts is sound",
                "warnings": [twice] if twice else [],
            }
        if not arguments["nodes"] and not arguments["assumed"]:
            raise AnsibleActionFail("nodes: name the variable in which each host's facts were registered")
        outcome = self._facts_stage(groups, hosts, hostvars, arguments["nodes"], arguments["assumed"])
        by_group = {cluster["group"]: cluster for cluster in outcome["clusters"].values()}
        for cluster in by_group.values() or [outcome["cluster"]]:
            self.tell(f"sparkthor: {cluster['summary']}")
            if serving := cluster.get("serving"):
                engine = runtime.Runtime(serving["runtime"], serving["runtime_why"])
                starter = executor.sentence(serving, arguments["assumed"])
                for line in (engine.sentence(), starter, serving["outlook"], *serving["told"]):
                    self.tell(f"sparkthor: {line}")
        return outcome

    def _facts_stage(
        self,
        groups: Groups,
        hosts: list[str],
        hostvars: Mapping[str, dict[str, Any]],
        registered: str,
        assumed: bool,
    ) -> dict[str, Any]:
        everything = self.vars["hostvars"]
        missing = [host for host in hosts if host not in self.vars["ansible_play_hosts_all"]]
        if missing:
            raise AnsibleActionFail(
                f"--limit: hosts {', '.join(missing)} are left out of this run, but a plan needs the facts of every "
                "host of the cluster; run without --limit"
            )
        if assumed:
            nodes = assumed_nodes(groups, hosts, hostvars, str(hostvars[hosts[0]].get("fabric_topology") or ""))
        else:
            self._contact_stage(hosts, hostvars, everything, registered)
            nodes = {host: everything[host]["ansible_facts"]["sparkthor_node"] for host in hosts}
        try:
            cluster, fabric, warnings = plan_cluster(groups, hosts, hostvars, nodes)
        except ClusterError as error:
            raise AnsibleActionFail(nothing_changed(error.findings)) from None
        clusters: dict[str, dict[str, Any]] = {}
        if names := inventory.named_groups(hostvars, hosts):
            clusters = plan_parts(inventory.parts(groups, names), hostvars, nodes, fabric)
        for part in clusters.values() or [cluster]:
            warnings = [*warnings, *self._plan_served(part, nodes, assumed)]
        for own in clusters.values():
            warnings = [*warnings, *self._plan_beside(own, hostvars, nodes, fabric, assumed)]
        listed_models.agree(clusters.values())
        for part in clusters.values() or [cluster] if not assumed else ():
            self._plan_models(part, nodes)
        self._know_each_other(clusters)
        self._share_address([cluster, *clusters.values()], hostvars, nodes, fabric, assumed)
        cluster = next(iter(clusters.values()), cluster)
        return {
            "changed": False,
            "msg": cluster["summary"],
            "cluster": cluster,
            # of serving groups: the plan of the group of each host
            "clusters": {host: part for part in clusters.values() for host in part["hosts"]},
            "fabric": fabric,
            "warnings": list(dict.fromkeys(warnings)),
            **({"nodes": nodes} if assumed else {}),
        }

    def _plan_served(self, cluster: dict[str, Any], nodes: Mapping[str, Mapping[str, Any]], assumed: bool) -> list[str]:
        """Add to the plan of a cluster, or of one serving group, what it serves and by which engine. Its warnings."""
        head = Declared(self.vars["hostvars"][cluster["head"]])
        warnings = front.clear_text(
            head.get("vllm_serve_tls", role_specs.defaults()["vllm_serve_tls"]), front.network_of(cluster)
        )
        serving = self._serving(head, cluster, nodes, assumed)
        engine = runtime.choose(head, cluster["kinds"].values())
        if serving:
            cluster.update(
                serving=serving,
                tensor_parallel=serving["tensor_parallel"],
                pipeline_parallel=serving["pipeline_parallel"],
            )
            warnings = [*warnings, *serving["warnings"]]
            engine = runtime.Runtime(serving["runtime"], serving["runtime_why"])
            cluster["summary"] += f"; {serving['recipe']}: {serving['why']}"
        kinds = cluster["kinds"].values()
        image = serving["image"] if serving else runtime.image(engine, kinds, "", registry.DEFAULT.image)
        starter = serving.get("executor") or executor.choose(head, engine, image, cluster).name
        cluster.update(runtime=engine.name, image=image, executor=starter)
        return warnings

    def _plan_models(self, cluster: dict[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> None:
        """Add to the plan what the model store brings, once all that its hosts serve is known."""
        head, serving = Declared(self.vars["hostvars"][cluster["head"]]), cluster.get("serving") or {}
        here = {host: nodes[host] for host in revisions.holders(cluster)}
        cluster.update(self._models(head, serving, here))
        cluster["revisions"] = self._revisions(head, serving, here)

    def _plan_beside(
        self,
        head_group: dict[str, Any],
        hostvars: Mapping[str, dict[str, Any]],
        nodes: Mapping[str, Mapping[str, Any]],
        fabric: Mapping[str, Any],
        assumed: bool,
    ) -> list[str]:
        """Add to the plan of a serving group those beside it on its head, and split the memory there. Warnings."""
        host = str(head_group["head"])
        head = Declared(self.vars["hostvars"][host])
        given = beside.groups_beside(beside.named(hostvars, list(hostvars)), head)
        here = [one for one in given if one.host == host]
        if not here or not head_group.get("serving"):
            return []
        # a run of the network alone has no use for what knows models
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import sharing

        try:
            together = sharing.plan_together(
                head_group, here, head, hostvars, nodes, fabric, lambda *model: self._of_hub(head, assumed, *model)
            )
        except sharing.ServingError as error:
            raise AnsibleActionFail(f"Nothing was changed: {error}") from None
        self._fail(together.problems)
        self.tell(f"sparkthor: {together.line}")
        head_group.update(serving=together.serving, beside=together.beside)
        return together.warnings

    def _know_each_other(self, clusters: Mapping[str, dict[str, Any]]) -> None:
        """Give the plan of every serving group what the others offer, unless they do not go together."""
        everything = self.vars["hostvars"]
        heads = {name: Declared(everything[cluster["head"]]) for name, cluster in clusters.items()}
        fallbacks = {name: head.get("vllm_serve_fallback") for name, head in heads.items()}
        offers = [
            serving_groups.offer(cluster, fallbacks[name]) for name, cluster in clusters.items() if "serving" in cluster
        ]
        for cluster in clusters.values():
            for name, other in (cluster.get("beside") or {}).items():
                fallbacks[name] = other["given"].get("vllm_serve_fallback")
                offers.append(serving_groups.offer(other, fallbacks[name], int(other["given"]["vllm_serve_door_port"])))
        if not offers:
            return  # a run of the network alone
        problems = serving_groups.offer_problems(offers, fallbacks)
        for head in heads.values():
            problems += serving_groups.key_problems(head.get("vllm_serve_api_keys"), offers)
        self._fail(list(dict.fromkeys(problems)))
        for cluster in clusters.values():
            cluster["groups"] = [asdict(offer) for offer in offers]

    def _share_address(
        self,
        plans: Sequence[dict[str, Any]],
        hostvars: Mapping[str, dict[str, Any]],
        nodes: Mapping[str, Mapping[str, Any]],
        fabric: Mapping[str, Mapping[str, Any]],
        assumed: bool,
    ) -> None:
        """Give all plans the virtual address of the front proxies, where one is wanted and nothing is wrong with it."""
        everything = self.vars["hostvars"]
        virtual, problems = virtual_address.plan_shared(
            plans, lambda host: Declared(everything[host]), hostvars, nodes, fabric, assumed
        )
        self._fail(problems)
        for plan in plans if virtual else ():
            plan["virtual"] = asdict(virtual)

    def _serving(
        self,
        head: Mapping[str, Any],
        cluster: Mapping[str, Any],
        nodes: Mapping[str, Mapping[str, Any]],
        assumed: bool = False,
    ) -> dict[str, Any]:
        """What is served; not planned where the run's tags leave out all roles of this play that would read it."""
        if not any(head.get(name) for name in ("vllm_serve_recipe", "vllm_serve_model", "vllm_serve_degraded_after")):
            return {}
        readers = _SERVING_ROLES & play_roles.in_play(self.vars)
        if readers and not readers & play_roles.in_run(self.vars):
            return {}
        # a run of the network alone has no use for what knows models
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serving as serving_plan

        try:
            return serving_plan.plan_whole(head, cluster, nodes, lambda *model: self._of_hub(head, assumed, *model))
        except serving_plan.ServingError as error:
            raise AnsibleActionFail(f"Nothing was changed: {error}") from None

    def _of_hub(
        self, head: Mapping[str, Any], assumed: bool, repo: str, revision: str
    ) -> tuple[dict[str, Any], int] | None:
        """Config and weights of a model of the hub, which is asked unless that was done before."""
        revision = hub_card.recorded(repo, revision, Record(self.vars.get("inventory_dir")))
        alone = bool(head.get("vllm_serve_from_hub"))
        try:
            card = hub_card.card(repo, revision, token=(head.get("vllm_serve_hf_token") or None) if alone else None)
        except hub.Unreachable as error:
            known = hub_card.kept(repo, revision)
            if known is None and not (assumed or alone):
                raise AnsibleActionFail(f"Nothing was changed: vllm_serve_model: {error}") from None
            if known is None:
                # a plan without the model's size may do, and says so
                self._display.warning(printable(str(error)))
                return None
            card = known
        except (hub.HubError, ValueError) as error:
            raise AnsibleActionFail(f"Nothing was changed: vllm_serve_model: {error}") from None
        return card.config, card.weights

    def _usage_stage(self) -> dict[str, Any]:
        """Say where the API is and how it is used, from the variables of the role vllm_serve."""
        cluster, fabric = self.vars.get("sparkthor_cluster") or {}, self.vars.get("sparkthor_fabric") or {}
        serving = cluster.get("serving")
        if not serving:
            return {"changed": False, "lines": []}
        given = Declared(Templated(self.vars, self._templar))
        tls = front.effective_tls(given["vllm_serve_tls"], front.network_of(cluster))
        virtual = virtual_address.of_cluster(cluster)
        api = usage.Api(
            usage.endpoint(
                virtual.bare if virtual else str(fabric[cluster["head"]]["management_address"]),
                int(given["vllm_serve_api_port"]),
                tls,
                # the one address of all heads, whatever else their certificates name
                [] if virtual else [str(name) for name in given["vllm_serve_tls_names"]],
                [str(address) for address in given["vllm_serve_listen"]],
            ),
            serving_groups.names_of(serving["served_model_name"], str(serving.get("model") or "")),
            ""
            if "vllm_serve_api_key" in given
            else os.path.join(inventory.secrets_dir(self.vars, self._templar.template), "api_key"),
            tls,
            usage.pools(serving["args"]),
            # another role's, whose defaults are not at hand in this one
            bool(given.get("console_enabled", role_specs.defaults()["console_enabled"])),
            tuple(holder.address for holder in virtual.holders) if virtual else (),
        )
        lines = [*usage.lines(api), *usage.other_models(cluster.get("groups") or (), str(cluster.get("group")))]
        if not self._task.check_mode:
            for line in lines:
                self.tell(f"sparkthor: {line}")
        return {"changed": False, "lines": lines}

    def _chosen_stage(self) -> dict[str, Any]:
        """Say of each group what it serves, what that comes to, and what would be faster."""
        lines = list[str]()
        for host in self.vars["ansible_play_hosts"]:
            cluster = self.vars["hostvars"][host].get("sparkthor_cluster") or {}
            serving = cluster.get("serving") if cluster.get("head") == host else None
            if serving and "memory" in serving:
                # a run of the network alone has no use for what knows models
                from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue as shown

                lines += shown.chosen_lines(serving, cluster["hosts"], str(cluster["topology"]), cluster["kinds"])
        for line in lines:
            self.tell(f"sparkthor: {line}")
        return {"changed": False, "lines": lines}

    def _models(
        self, head: Mapping[str, Any], serving: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Bytes of each model that hosts are to have, or why one cannot be fetched, which the stage hosts reports."""
        if "model_store" not in play_roles.in_run(self.vars):
            return {}
        given = serving.get("models") or head.get("model_store_models") or []
        try:
            record, caches = Record(self.vars.get("inventory_dir")), hub_card.caches_of(nodes, head)
            found = hub_card.models_of(given, record, caches=caches, how=hub_card.how_of(head))
        except hub.HubError as error:
            return {"store_problems": [f"model_store_models: {error}"]}
        for download in found.downloads:
            self.tell(f"sparkthor: {download.line()}")
        return found.planned()

    def _revisions(
        self, head: Mapping[str, Any], serving: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, str]:
        """Which revision of each model is served: what this run brings, else what all hosts have."""
        in_run, declared = play_roles.in_run(self.vars), None
        if "model_store" in in_run:
            given = serving.get("models") or head.get("model_store_models") or []
            declared = models.revisions_here(given, Record(self.vars.get("inventory_dir")))
        smaller = serving.get("degraded") or {}
        served = [str(plan["model"]) for plan in (serving, smaller) if plan] if "vllm_serve" in in_run else []
        served += serving.get("beside", []) if "vllm_serve" in in_run else []
        found, torn = revisions.plan_revisions(nodes, declared, served)
        self._fail(torn)
        return found

    @staticmethod
    def _fail(problems: Sequence[Finding | str]) -> None:
        if problems:
            raise AnsibleActionFail(nothing_changed(problems))

    def _inventory_stage(
        self,
        groups: Groups,
        hosts: list[str],
        hostvars: Mapping[str, dict[str, Any]],
        everything: Mapping[str, Any],
        forks: int,
        assumed: bool,
    ) -> None:
        problems: list[Finding | str] = [*inventory.inventory_problems(groups, hostvars)]
        problems += inventory.forks_problems(hosts, hostvars, forks)
        names = inventory.named_groups(hostvars, hosts)
        problems += serving_groups.problems(groups, names)
        described = beside.named(hostvars, hosts)
        problems += beside.problems(groups, names, described, everything[hosts[0]] if hosts else {})
        if not inventory.group_problems(groups, names):
            first = hostvars[hosts[0]]
            if first.get("fabric_topology") in inventory.TOPOLOGIES:
                problems += fabric_problems(
                    first["fabric_topology"],
                    hosts,
                    cidr=first.get("fabric_cidr"),
                    cage=inventory.cages(hostvars),
                    mtu=first.get("fabric_mtu"),
                    reserved=first.get("fabric_reserved"),
                    nccl_patch=first.get("fabric_nccl_patch"),
                    lanes=first.get("fabric_lanes"),
                    overrides=inventory.overrides(hostvars),
                    # each serving group has a head; to the fabric all hosts are alike
                    groups={**groups, "ray_head": hosts[:1], "ray_workers": hosts[1:]},
                    management={host: str(hostvars[host].get("ansible_host", host)) for host in hosts},
                )
            problems += [*fabric_speed.problems(hostvars), *stated_gpu_problems(groups, hostvars)]
            given = {host: everything[host] for host in hosts}
            problems += virtual_address.virtual_address_problems(
                [part.hosts[0] for part in inventory.parts(groups, names) if part.hosts],
                hostvars,
                first.get("fabric_cidr"),
            )
            problems += ansible_names.problems(given)
            problems += of_collection().problems(given)
            problems += values.value_problems(given)
            if isinstance(described, Mapping):
                problems += values.value_problems(
                    {str(name): one for name, one in described.items() if isinstance(one, Mapping)}
                )
            problems += self._names_problems(inventory.parts(groups, names), described, assumed)
        self._fail(inventory.without_consequences(problems))

    def _names_problems(self, parts: Sequence[inventory.Part], described: Any, assumed: bool) -> list[Finding | str]:
        """What is wrong with the names of what groups with hosts serve, where this run comes to it."""
        if not assumed and not play_roles.serves(self.vars):
            return []
        # a run of the network alone has no use for what knows recipes
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import served_names

        findings: list[Finding | str] = []
        for part in (one for one in parts if one.hosts):
            head = Declared(self.vars["hostvars"][part.hosts[0]], strict=False)
            if assumed and not head.get("vllm_serve_recipe") and not head.get("vllm_serve_model"):
                continue  # the files of hosts that serve nothing are worth a look as well
            findings += served_names.problems(head, f"group_vars/{part.name or 'cluster'}.yml", len(part.hosts))
        for given in described.values() if isinstance(described, Mapping) else ():
            # one that says nothing is told of already
            if isinstance(given, Mapping) and (given.get("vllm_serve_recipe") or given.get("vllm_serve_model")):
                host = str(given.get("host"))
                known = Declared(self.vars["hostvars"][host], strict=False) if host in self.vars["hostvars"] else {}
                own = {"vllm_serve_executor": "mp", registry.PROGRAMS: known.get(registry.PROGRAMS)}
                findings += served_names.problems({**given, **own}, "serving_beside", 1)
        return list(dict.fromkeys(findings))

    def _contact_stage(
        self, hosts: Sequence[str], hostvars: Mapping[str, dict[str, Any]], everything: Mapping[str, Any], nodes: str
    ) -> None:
        problems = []
        for host in hosts:
            outcome = everything[host].get(nodes, {})
            if outcome.get("unreachable") or "sparkthor_node" not in (outcome.get("ansible_facts") or {}):
                problems.append(
                    inventory.explain_contact(
                        host,
                        str(hostvars[host].get("ansible_host", host)),
                        str(hostvars[host].get("ansible_user", "")),
                        " ".join(str(outcome.get(key, "")) for key in ("msg", "module_stderr")),
                    )
                )
        self._fail(problems)

    def _hosts_stage(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Compare what all hosts are with the plan."""
        for name in ("fabric", "probes"):
            if not arguments[name]:
                raise AnsibleActionFail(f"{name} is needed in the stage hosts")
        hostvars = self.vars["hostvars"]
        fabric = copy.deepcopy(arguments["fabric"])
        nodes = {host: hostvars[host]["ansible_facts"]["sparkthor_node"] for host in fabric}
        outcomes: dict[str, Mapping[str, Any]] = {
            host: hostvars[host].get(arguments["probes"]) or {} for host in fabric
        }
        probes = {host: outcome.get("probe") or {} for host, outcome in outcomes.items()}
        findings = fabric_check.check_facts(fabric, nodes, probes, arguments["accept"], arguments["replace_foreign"])
        findings += fabric_check.without_accepted(self._exposed(nodes, outcomes), arguments["accept"])
        errors, warnings = errors_and_others(findings)
        refused: dict[str, list[str]] = {}
        for host, outcome in outcomes.items():
            for message in outcome.get("refused") or ():
                refused.setdefault(str(message), []).append(host)
        own = self.vars.get("sparkthor_cluster") or {}
        plans = [hostvars[host].get("sparkthor_cluster") or {} for host in fabric] if own.get("group") else [own]
        store = dict.fromkeys(problem for plan in plans for problem in plan.get("store_problems") or ())
        refused = hub_card.with_controller(refused, plans)
        self._fail([*errors, *store, *(_placed(message, hosts) for message, hosts in refused.items())])
        for plan in {plan.get("group"): plan for plan in plans}.values():
            for line in changes.announced(plan, fabric, nodes, self.vars.get("fabric_cidr")) if plan else ():
                self.tell(f"sparkthor: {line}")
        _fabric.adopt_devices(fabric, fabric_check.devices(probes))
        renamed = fabric != arguments["fabric"]
        compared = next(iter(outcomes.values()), {}).get("compared") or []
        # hosts that were compared with a plan that has other device names in it were not compared
        converged = [] if renamed else compare.converged_everywhere(compared, outcomes)
        return {
            "changed": False,
            "msg": f"the facts of {len(fabric)} hosts agree with the plan",
            "fabric": fabric,
            "renamed": renamed,
            "converged": converged,
            "nothing_to_do": bool(converged) and converged == compared,
            "warnings": warnings,
            "findings": [finding.to_dict() for finding in findings],
        }

    def _exposed(self, nodes: Mapping[str, Any], outcomes: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
        """What the roles of this run would take from somebody, host by host."""
        findings: list[Finding] = []
        heads = self.vars["groups"].get("ray_head", [])
        for host, outcome in outcomes.items():
            everything = self.vars["hostvars"][host]
            given = {name: everything[name] for name in exposure_check.READS if name in everything}
            exposure, roles = outcome.get("exposure") or {}, outcome.get("compared") or []
            findings += exposure_check.exposure_problems(host, exposure, nodes[host], given, roles, host in heads)
        return findings

    def _engine_stage(self, registered: str | None) -> dict[str, Any]:
        """Fail if hosts that serve together have different engines, by what a task asked them or by their facts."""
        hosts = list(self.vars.get("ansible_play_hosts", []))
        if not (self.vars.get("sparkthor_cluster") or {}).get("group"):
            return {"changed": False, "engines": self._alike(hosts, registered)}
        by_group: dict[str, list[str]] = {}
        for host in hosts:
            by_group.setdefault(str(self.vars["hostvars"][host]["sparkthor_cluster"]["group"]), []).append(host)
        found: dict[str, Any] = {}
        for own in by_group.values():
            found.update(self._alike(own, registered))
        return {"changed": False, "engines": found}

    def _alike(self, hosts: Sequence[str], registered: str | None) -> dict[str, Any]:
        """The engines of these hosts, which need the same."""
        if registered:
            asked = {
                host: releases((self.vars["hostvars"][host].get(registered) or {}).get("versions") or {})
                for host in hosts
            }
            engines = {host: versions for host, versions in asked.items() if versions}
            if different := compare_parity(engines):
                raise AnsibleActionFail(
                    "Ray was not touched. All nodes of a cluster need the same Python, Ray, engine and torch, but they "
                    f"differ:\n{parity_table(engines, different)}\nRun the engine role on all hosts."
                )
            return engines
        facts = {
            host: (self.vars["hostvars"][host].get("ansible_facts") or {}).get("sparkthor_engine") for host in hosts
        }
        engines, shared = versions_across(facts)
        if "image" in shared:
            raise AnsibleActionFail(
                "engine_image: the hosts of one cluster need the same image, but they differ:\n"
                f"{parity_table(engines, shared)}\nA tag can move: set engine_image_digest, so that every host "
                "gets the same."
            )
        if shared:
            raise AnsibleActionFail(
                "engine_requirements: the hosts of one cluster need the same Python, Ray, engine and torch, but they "
                f"differ:\n{parity_table(engines, shared)}\nUse locks with the same versions for all hosts, and "
                "engine_python where the systems' Python differs."
            )
        return engines
