#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_store
short_description: Copy models to a host and verify them
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller knows each model's files by size and SHA-256, and sends a host what it lacks. The host verifies each
    file. An incomplete or damaged file never has its final name, and a new model appears in one step.
  - An interrupted transfer resumes. Files that another model of the store already has are linked.
  - Each content of a model has a folder of its own, C(name@digest), and the name is a link to one of them. So a new
    revision never changes the files that are served (O(revisions)).
  - A second run sends nothing and reads no weights. It compares sizes and times with the recorded ones.
  - Before anything is sent, it checks that the disk has room for all models, with 5 % in reserve.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  root:
    description: Folder of the store on the host, an absolute path. It and all in it belong to root; anybody may read.
    type: path
    default: /var/lib/sparkthor/models
  models:
    description: Models that must be there. Others are left alone and returned as RV(unlisted).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the model's folder in the store.
        type: str
        required: true
      source:
        description:
          - An absolute path, or a path that begins with C(.) or C(~), is a folder on the controller.
          - A URL is downloaded once by the controller with C(fsspec); see docs/model-store.md.
          - Anything else is an id on the Hugging Face hub, downloaded once by the controller with C(huggingface_hub).
        type: str
        required: true
      layout:
        description:
          - V(flat) gives plain files in a folder of the model's name.
          - V(hub) gives the hub's own layout (C(models--owner--name) with blobs and links), so that the store is a
            cache of the hub's client.
        type: str
        choices: [flat, hub]
        default: flat
      files:
        description: Files to copy, if not all of the folder.
        type: list
        elements: str
      revision:
        description: Branch, tag or commit on the hub. The result names the commit.
        type: str
      manifest:
        description: Used by the controller's side of this module.
        type: list
        elements: list
        default: []
      links:
        description: Used by the controller's side of this module.
        type: list
        elements: list
        default: []
      commit:
        description: Used by the controller's side of this module.
        type: str
        default: ''
      folder:
        description: Used by the controller's side of this module, the folder of this revision.
        type: str
        default: ''
      revisions:
        description: Whether each content of the model gets a folder of its own, to which the name is a link.
        type: bool
        default: true
  verify:
    description: V(fast) compares sizes and times, V(full) reads every file again.
    type: str
    choices: [fast, full]
    default: fast
  hub_caches:
    description:
      - Folders on the host, as shell patterns, in which the hub's own client keeps models (C(.../huggingface/hub)).
        Large files that are wanted and lie there are copied instead of sent.
    type: list
    elements: str
    default: []
  stage:
    description:
      - V(apply) does everything for one host, over the connection of the task.
      - The other stages are the steps of a fan-out over the fabric. Each is one task for all hosts; the role uses them.
      - V(check) says what is missing and checks the disk space, V(seed) sends what no host has to the host that lacks
        least.
      - V(start) starts the copy on every host, V(watch) shows its progress, V(finish) gives the files their final
        names.
      - V(switch) makes each model's name lead to its new revision, once every host of the play has it whole, and
        removes revisions beyond O(revisions).
      - V(list) lists the store. With O(remove_unused) it also removes what is not in use, and what interrupted runs
        left.
      - V(receive) and V(parts) are used by the controller's side of this module.
    type: str
    choices: [apply, check, seed, parts, start, watch, finish, switch, list, receive]
    default: apply
  revisions:
    description:
      - How many revisions of a model a host keeps, the newest ones. Those beyond go when a new one comes. One that is
        served anywhere, or that served last and is kept to go back to, stays.
    type: int
    default: 2
  in_use:
    description: Used by the controller's side of this module.
    type: list
    elements: str
    default: []
  keep:
    description: Names that O(remove_unused) leaves alone.
    type: list
    elements: str
    default: []
  remove_unused:
    description: With O(stage=list), remove the models that are neither declared nor kept, and what interrupted runs
      left.
    type: bool
    default: false
  declared:
    description: Used by the controller's side of this module.
    type: list
    elements: str
    default: []
  results:
    description: Variable in which the results of O(stage=check) were registered.
    type: str
    default: __model_store_check
  run:
    description: Variable in which the results of O(stage=seed) were registered.
    type: str
    default: __model_store_run
  fabric:
    description: The fabric plan (C(sparkthor_fabric)).
    type: dict
    default: {}
  head:
    description: Host that the controller sends to if all lack the same.
    type: str
    default: ''
  shape:
    description:
      - With V(chain) each host sends to one other host.
      - With V(tree) each host sends to two others. This works on a switch only, and helps with many small files on many
        hosts.
    type: str
    choices: [chain, tree]
    default: chain
  streams:
    description: Connections for each half of the fabric between two hosts.
    type: int
    default: 2
  port:
    description: TCP port on the fabric addresses, open while a copy runs.
    type: int
    default: 29870
  patience:
    description: Seconds without new data after which a host gives up.
    type: int
    default: 60
  job:
    description: Used by the controller's side of this module; JSON.
    type: str
    default: ''
  key:
    description: Used by the controller's side of this module.
    type: str
    default: ''
  parts:
    description: Used by the controller's side of this module.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    details: A hub id that the controller has not fetched yet is not fetched in check mode.
"""

EXAMPLES = r"""
- name: A model from a folder of the controller
  sparkthor.cluster.model_store:
    models:
      - name: tiny
        source: /srv/models/tiny

- name: A model from the hub
  sparkthor.cluster.model_store:
    models:
      - name: qwen3-30b-a3b-thinking-2507-fp8
        source: Qwen/Qwen3-30B-A3B-Thinking-2507-FP8
        revision: main
"""

RETURN = r"""
models:
  description: What is where.
  returned: always
  type: dict
  sample:
    tiny:
      path: /var/lib/sparkthor/models/tiny@6f1ed002ab559585
      files: 5
      bytes: 12461234
      commit: ''
      wrong: []
      extra: []
behind:
  description: Models whose name does not lead to the declared revision yet.
  returned: where there are some
  type: list
  elements: str
named:
  description: Revisions that this host serves with, or served with last.
  returned: always
  type: list
  elements: str
unlisted:
  description: Models of the store that are not declared.
  returned: always
  type: list
  elements: str
sent_bytes:
  description: Bytes that the controller sent to this host.
  returned: when something was sent
  type: int
from_caches:
  description: What came out of O(hub_caches), as C(bytes) and the C(caches) that had it.
  returned: when something did
  type: dict
inventory:
  description: Of each folder of the store its name, size, number of files, use and a verdict.
  returned: by O(stage=list)
  type: list
  elements: dict
removed:
  description: Models that were removed.
  returned: by O(stage=list)
  type: list
  elements: str
received_bytes:
  description: Bytes that came to this host over the fabric.
  returned: by O(stage=finish)
  type: int
"""

import json
import os
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content, fanout_job, hub_caches, revisions
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    Entry,
    Link,
    StoreError,
    base_of,
    check_folder,
    check_name,
    parse_links,
    parse_manifest,
    revision_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Plan, Store, private_store, to_come


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/var/lib/sparkthor/models"},
        "models": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "source": {"type": "str", "required": True},
                "revision": {"type": "str"},
                "layout": {"type": "str", "choices": ["flat", "hub"], "default": "flat"},
                "files": {"type": "list", "elements": "str"},
                "manifest": {"type": "list", "elements": "list", "default": []},
                "links": {"type": "list", "elements": "list", "default": []},
                "commit": {"type": "str", "default": ""},
                "folder": {"type": "str", "default": ""},
                "revisions": {"type": "bool", "default": True},
            },
        },
        "verify": {"type": "str", "choices": ["fast", "full"], "default": "fast"},
        "hub_caches": {"type": "list", "elements": "str", "default": []},
        "stage": {
            "type": "str",
            "choices": ["apply", "check", "seed", "parts", "start", "watch", "finish", "switch", "list", "receive"],
            "default": "apply",
        },
        "revisions": {"type": "int", "default": 2},
        "in_use": {"type": "list", "elements": "str", "default": []},
        "keep": {"type": "list", "elements": "str", "default": [], "no_log": False},
        "remove_unused": {"type": "bool", "default": False},
        "declared": {"type": "list", "elements": "str", "default": []},
        "results": {"type": "str", "default": "__model_store_check"},
        "run": {"type": "str", "default": "__model_store_run"},
        "fabric": {"type": "dict", "default": {}},
        "head": {"type": "str", "default": ""},
        "shape": {"type": "str", "choices": ["chain", "tree"], "default": "chain"},
        "streams": {"type": "int", "default": 2},
        "port": {"type": "int", "default": 29870},
        "patience": {"type": "int", "default": 60},
        # the key is an option of its own: what is hidden goes from every sentence that has it, as "{}" or a name
        "job": {"type": "str", "default": "", "no_log": False},
        "key": {"type": "str", "default": "", "no_log": True},
        "parts": {"type": "list", "elements": "dict", "default": []},
    }


class Model(NamedTuple):
    name: str
    entries: list[Entry]
    links: list[Link]
    commit: str
    folder: str  # of this revision; the name itself where the model has none

    @property
    def revised(self) -> bool:
        return self.folder != self.name


def read_models(module: AnsibleModule) -> list[Model]:
    found = []
    for model in module.params["models"]:
        entries = parse_manifest(model["manifest"])
        links, name = parse_links(model["links"], entries), check_name(model["name"])
        folder = check_folder(model["folder"] or name)
        if folder not in (name, revision_folder(name, entries, links)):
            raise StoreError(f"manifest: {folder} is not a revision of {name} with these contents")
        found.append(Model(name, entries, links, model["commit"], folder))
    return found


def apply(module: AnsibleModule, store: Store) -> dict[str, Any]:
    params = module.params
    full = params["verify"] == "full" and params["stage"] != "finish"
    report: dict[str, Any] = {}
    adopted = False
    plans, before, after = [], [], []
    for model in read_models(module):
        if model.revised and not module.check_mode:
            adopted |= revisions.adopt(store, model.folder)
        plan = store.plan(_folder(store, model), model.entries, full, model.links)
        if not module.check_mode:
            store.remember(model.folder, plan.read)
        plans.append((model, plan))
        size = sum(entry.size for entry in model.entries)
        report[model.name] = {
            "path": store.folder(model.folder),
            "files": len(model.entries),
            "bytes": size,
            "commit": model.commit,
            "wrong": plan.wrong,
            "extra": plan.extra,
        }
        line = f"{model.name}: {len(model.entries)} files, {human(size)}"
        after.append(line)
        right = len(model.entries) - len(plan.wrong)
        before.append(
            line
            if plan.right
            else f"{model.name}: {right} of {len(model.entries)} files, {len(plan.modes)} owners wrong"
        )
    need = {item["sha256"]: item for _model, plan in plans for item in plan.need}
    behind = [model for model, _plan in plans if model.revised and revisions.current(store, model.name) != model.folder]
    changed = adopted or bool(behind) or any(not plan.right for _model, plan in plans)
    result: dict[str, Any] = {
        "changed": changed,
        "models": report,
        "unlisted": [name for name in store.names() if (base_of(name) or name) not in report],
        "named": kept.revisions_needed(),
    }
    if behind:
        result["behind"] = [model.name for model in behind]
    if changed:
        result["diff"] = {
            "before_header": store.root,
            "after_header": store.root,
            "before": "\n".join(before) + "\n",
            "after": "\n".join(after) + "\n",
        }
    if need:
        missing = sum(to_come(item) for item in need.values())
        store.check_space(missing, "model_store_models: " + ", ".join(report))
    if module.check_mode:
        return result
    if lacking := _lacking(params, store, need, result):
        result["need"] = lacking
        return result
    _publish(store, plans, params["stage"] == "apply")
    if params["stage"] == "apply":
        result.pop("behind", None)
    return result


def _lacking(
    params: dict[str, Any], store: Store, need: dict[str, dict[str, Any]], result: dict[str, Any]
) -> list[dict[str, Any]]:
    """What has to be sent, once all is taken that this host has in a cache of the hub's client."""
    taken = hub_caches.take_for(store, need, params["hub_caches"])
    if taken.sha256:
        result["from_caches"] = {"bytes": taken.size, "caches": taken.caches}
    return [item for sha256, item in need.items() if sha256 not in taken.sha256]


def _publish(store: Store, plans: list[tuple[Model, Plan]], alone: bool) -> None:
    """Nothing is lacking: give the files their names. ``alone``: no other host is to have them as well."""
    for model, plan in plans:
        if not plan.right:
            store.commit(model.folder, model.entries, plan.wrong, model.links)
        else:
            store.refresh_record(model.folder, model.entries, model.links)
        if model.revised and alone:
            revisions.lead_to(store, model.folder)
    # also where all was right: a run killed after its last rename left second names there
    store.clean_incoming([entry for model, _plan in plans for entry in model.entries])


def _folder(store: Store, model: Model) -> str:
    """Where the model's files are looked for: in check mode a folder of an earlier version is still to be adopted."""
    new = not os.path.isdir(store.folder(model.folder)) and revisions.is_plain(store, model.name)
    return model.name if new else model.folder


def switch(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Every host has all of it: the names mean the new revisions from here on, and the oldest ones go."""
    params, before, after = module.params, [], []
    changed = False
    for model in read_models(module):
        if not model.revised:
            continue
        was = revisions.current(store, model.name)
        if not revisions.switch(store, model.folder, model.entries, model.links, module.check_mode):
            continue
        changed = True
        before.append(f"{model.name} -> {was}\n" if was else "")
        after.append(f"{model.name} -> {model.folder}\n")
        if not module.check_mode:
            for folder in revisions.superfluous(store, model.name, params["revisions"], params["in_use"]):
                before.append(f"{folder}\n")
                store.remove(folder)
    result: dict[str, Any] = {"changed": changed}
    if changed:
        if not module.check_mode:
            # the lock made it
            store.clean_incoming([])
        texts = {"before": "".join(before), "after": "".join(after)}
        result["diff"] = {"before_header": store.root, "after_header": store.root, **texts}
    return result


def parts(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Digests of the parts of contents that this host has and the controller has not."""
    asked = json.loads(module.params["job"] or "{}")
    here: dict[str, str] = {}
    for model in read_models(module):
        here.update(store.whole(model.folder, model.entries, store.plan(model.folder, model.entries).wrong))
    if any(sha256 not in here for sha256 in asked["wanted"]):
        raise StoreError("what this host was to pass on is not here whole any more: run again")
    return {
        "changed": False,
        "parts": {sha256: content.hash_parts(here[sha256], asked["size"]) for sha256 in asked["wanted"]},
    }


def start(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Start this host's part in a fan-out; it goes on without this module and its connection."""
    job = json.loads(module.params["job"] or "{}")
    wanted = {sha256 for sha256, _size, _digests in job["contents"]}
    local: dict[str, str] = {}
    spare: list[str] = []
    names: dict[str, str] = {}
    for model in read_models(module):
        plan = store.plan(model.folder, model.entries)
        store.remember(model.folder, plan.read)
        local.update(store.whole(model.folder, model.entries, plan.wrong))
        folder = store.folder(model.folder)
        spare += [path for path in (os.path.join(folder, name) for name in plan.wrong) if os.path.isfile(path)]
        names.update({entry.sha256: f"{model.name}/{entry.path}" for entry in model.entries})
    job.update(
        key=module.params["key"],
        # only a host that lacks something has a use for the folder
        incoming=store.incoming if wanted - set(local) else "",
        local={sha256: path for sha256, path in local.items() if sha256 in wanted},
        spare=spare,
        names={sha256: name for sha256, name in names.items() if sha256 in wanted},
    )
    fanout_job.start(job)
    return {"changed": False}


def finish(module: AnsibleModule, store: Store) -> dict[str, Any]:
    # the first host may be gone while this one still tries to get something: what it says in the end is wanted
    report = fanout_job.outcome(str(json.loads(module.params["job"] or "{}")["run"]), module.params["patience"] + 30)
    last_word = report.get("error") or fanout_job.ended()
    fanout_job.tidy()
    if report.get("state") == "failed":
        raise StoreError(last_word)
    result = apply(module, store)
    if need := result.pop("need", None):
        missing = sum(to_come(item) for item in need)
        raise StoreError(
            f"{len(need)} contents ({human(missing)}) did not arrive: {last_word}. What arrived is kept and nothing "
            "incomplete is visible: run again"
        )
    result["received_bytes"] = int(report.get("received", 0))
    return result


def _use(params: dict[str, Any], folder: str, now: bool) -> str:
    """What a folder of the store is for; ``now`` says that it is the revision its model's name leads to."""
    name = base_of(folder)
    for use, names in (("declared", params["declared"]), ("kept", params["keep"])):
        if (now or not name) and (name or folder) in names:
            return use
    return "to go back to" if folder in params["in_use"] else "unused"


def listing(module: AnsibleModule, store: Store) -> dict[str, Any]:
    """Every folder of the store with its size and a verdict; unused ones go if that was asked for."""
    params = module.params
    rows = store.inventory()
    removed = []
    for row in rows:
        name = row["name"]
        row["use"] = _use(params, name, revisions.current(store, base_of(name)) == name)
        if row["use"] == "unused" and params["remove_unused"]:
            if not row["ours"]:
                row["verdict"] += "; not removed, because this store did not bring it"
                continue
            removed.append(name)
            if not module.check_mode:
                revisions.part(store, name)
                store.remove(name)
    if params["remove_unused"] and not module.check_mode:
        store.clean_incoming()
    lines = [f"{row['name']}  {human(row['bytes'])}" for row in rows]
    left = [f"{row['name']}  {human(row['bytes'])}" for row in rows if row["name"] not in removed]
    result: dict[str, Any] = {"changed": bool(removed), "inventory": rows, "removed": removed, "root": store.root}
    result["named"] = kept.revisions_needed()
    if removed:
        result["diff"] = {
            "before_header": store.root,
            "after_header": store.root,
            "before": "".join(f"{line}\n" for line in lines),
            "after": "".join(f"{line}\n" for line in left),
        }
    return result


#: what a stage does; those that are not here compare and publish
STEPS = {"parts": parts, "start": start, "finish": finish, "switch": switch, "list": listing}


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    try:
        store = private_store(params["root"])
        if params["stage"] == "receive":
            store.receive(params["parts"])
            module.exit_json(changed=True)
        module.exit_json(**STEPS.get(params["stage"], apply)(module, store))
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['root']}: {error}")


if __name__ == "__main__":
    main()
