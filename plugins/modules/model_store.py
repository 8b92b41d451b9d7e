#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_store
short_description: Have models on a host, whole and verified, under names the engine reads
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller knows each model's files by size and SHA-256 and sends a host what it lacks. A file is verified where
    it arrives; nothing half or wrong is ever visible under a final name, and a new model appears in one step.
  - A broken transfer continues where it stopped. Contents that another model of the store already has are linked.
  - A second run moves nothing and reads no weights; sizes and times are compared with what was recorded.
  - Room on the disk is checked for all models together, with 5 % in reserve, before a byte moves.
options:
  root:
    description: Folder of the store on the host.
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
          - Anything else is an id on the Hugging Face hub, fetched once by the controller with C(huggingface_hub).
        type: str
        required: true
      revision:
        description: Branch, tag or commit of a hub id. The commit it stands for is returned.
        type: str
      manifest:
        description: Used by the controller's side of this module.
        type: list
        elements: list
        default: []
      commit:
        description: Used by the controller's side of this module.
        type: str
        default: ''
  owner:
    description: Owner of the files.
    type: str
    default: sparkthor
  group:
    description: Group of the files.
    type: str
    default: sparkthor
  verify:
    description: V(fast) trusts sizes and times, V(full) reads every file again.
    type: str
    choices: [fast, full]
    default: fast
  stage:
    description: Used by the controller's side of this module.
    type: str
    choices: [apply, receive]
    default: apply
  parts:
    description: Used by the controller's side of this module.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
    details: A hub id that the controller has not fetched yet is not fetched in check mode.
  diff_mode:
    description: Returns details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: full
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
      path: /var/lib/sparkthor/models/tiny
      files: 5
      bytes: 12461234
      commit: ''
      wrong: []
      extra: []
unlisted:
  description: Models of the store that are not declared.
  returned: always
  type: list
  elements: str
sent_bytes:
  description: Bytes sent to this host.
  returned: when something was sent
  type: int
"""

import grp
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import (
    Owner,
    Store,
    StoreError,
    check_name,
    human,
    parse_manifest,
)


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
                "manifest": {"type": "list", "elements": "list", "default": []},
                "commit": {"type": "str", "default": ""},
            },
        },
        "owner": {"type": "str", "default": "sparkthor"},
        "group": {"type": "str", "default": "sparkthor"},
        "verify": {"type": "str", "choices": ["fast", "full"], "default": "fast"},
        "stage": {"type": "str", "choices": ["apply", "receive"], "default": "apply"},
        "parts": {"type": "list", "elements": "dict", "default": []},
    }


def find_owner(owner: str, group: str, check_mode: bool) -> Owner:
    try:
        return Owner(pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid)
    except KeyError as error:
        if check_mode:
            # an earlier role of the same run would have made them
            return Owner(0, 0)
        raise StoreError(
            f"owner {owner!r} with group {group!r} is not on this host: run the role engine first"
        ) from error


def apply(module: AnsibleModule, store: Store) -> dict[str, Any]:
    full = module.params["verify"] == "full"
    report: dict[str, Any] = {}
    plans, before, after = [], [], []
    for model in module.params["models"]:
        name = check_name(model["name"])
        entries = parse_manifest(model["manifest"])
        plan = store.plan(name, entries, full)
        plans.append((name, entries, plan))
        size = sum(entry.size for entry in entries)
        report[name] = {
            "path": store.folder(name),
            "files": len(entries),
            "bytes": size,
            "commit": model["commit"],
            "wrong": plan.wrong,
            "extra": plan.extra,
        }
        line = f"{name}: {len(entries)} files, {human(size)}"
        after.append(line)
        right = len(entries) - len(plan.wrong)
        before.append(
            line if plan.right else f"{name}: {right} of {len(entries)} files, {len(plan.modes)} owners wrong"
        )
    need = {item["sha256"]: item for _name, _entries, plan in plans for item in plan.need}
    changed = any(not plan.right for _name, _entries, plan in plans)
    result: dict[str, Any] = {
        "changed": changed,
        "models": report,
        "unlisted": [name for name in store.names() if name not in report],
    }
    if changed:
        result["diff"] = {
            "before_header": store.root,
            "after_header": store.root,
            "before": "\n".join(before) + "\n",
            "after": "\n".join(after) + "\n",
        }
    missing = sum(item["size"] - item["have"] for item in need.values())
    if need:
        store.check_space(missing, "model_store_models: " + ", ".join(report))
    if module.check_mode:
        return result
    if need:
        result["need"] = list(need.values())
        return result
    for name, entries, plan in plans:
        if not plan.right:
            store.commit(name, entries, plan.wrong)
        else:
            store.refresh_record(name, entries)
    if changed:
        store.clean_incoming()
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    try:
        store = Store(params["root"], find_owner(params["owner"], params["group"], module.check_mode))
        if params["stage"] == "receive":
            store.receive(params["parts"])
            module.exit_json(changed=True)
        module.exit_json(**apply(module, store))
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['root']}: {error}")


if __name__ == "__main__":
    main()
