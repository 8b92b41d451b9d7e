# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of what each module answers, as far as the controller reads it; checked before anybody does.

What a module documents under RETURN is here with the same types (a test compares them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.registry import ENGINES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape, told, told_measured
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.shape import Form

#: what Ansible itself reads of every answer
COMMON: Form = {
    "failed?": bool,
    "changed?": bool,
    "skipped?": bool,
    "unreachable?": bool,
    "msg?": object,
    "warnings?": [object],
    "deprecations?": [object],
}
_LISTS = [str]
_FINDING: Form = {"what": str, "fix": str, "id?": str, "host?": str, "where?": str, "value?": object, "severity?": str}
_CONTENT: Form = {"sha256": str, "size?": told.a_count, "have?": told.a_count, "held?": told.a_count}
_ENGINE: Form = {
    "path?": str,
    "digest?": str,
    "python?": str,
    "machine?": str,
    "versions?": {str: str},
    "runtime?": str,
    "image?": str,
    "image_id?": str,
    "command?": _LISTS,
}
_LINK: Form = {
    "netdev?": str,
    "address?": str,
    "mtu?": (int, None),
    "carrier?": (bool, None),
    "ok": bool,
    "problems": _LISTS,
    "peers?": [{"host?": str, "address?": str, "reachable?": bool, "error?": str}],
}
_LISTENERS = [{"address": str, "port": told.a_count, "program": str}]
_NEIGHBOUR: Form = {"host": str, "netdev": str}
_PROBE: Form = {
    "ports": {
        str: {
            **{"present": bool, "up": (bool, None), "carrier": (bool, None), "mtu": (int, None)},
            **{"rate?": (float, None)},
        },
    },
    "neighbours?": {str: [_NEIGHBOUR]},
    "cabled?": {str: _LISTS},
    "switches?": {str: str},
    "raised?": _LISTS,
    "errors?": {str: str},
    "rdma?": told.RDMA,
    "netplan?": {"findings?": [_FINDING], "adoptable?": bool, "own?": _LISTS},
    "seconds?": told.a_time,
}
_SEEN: Form = {
    "name": str,
    "ports": {
        str: {
            **{"cage?": (int, None), "half?": (int, None), "up?": (bool, None), "carrier?": (bool, None)},
            **{"plugged?": (bool, None), "rate?": (float, None)},
        },
    },
    "neighbours": {str: [_NEIGHBOUR]},
    "lldp?": {str: {"name": str, "port": str, "bridge": bool}},
    "raised?": _LISTS,
    "errors?": {str: str},
    "seconds?": told.a_time,
}
_MODEL: Form = {
    **{"path?": str, "files?": told.a_count, "bytes?": told.a_count, "commit?": str},
    **{"wrong?": _LISTS, "extra?": _LISTS},
}
_SHELF: Form = {"name?": str, "bytes?": told.a_count, "files?": told.a_count}
_COPIED: Form = {
    "models": {str: _MODEL},
    **dict.fromkeys(("behind", "named", "unlisted"), _LISTS),
    "need": [_CONTENT],
    "from_caches": {"bytes": told.a_count, "caches": _LISTS},
}

#: by module, of keys that may be absent
FORMS: Mapping[str, Mapping[str, Form]] = {
    "node_info": {
        "ansible_facts": {"sparkthor_node?": told.NODE},
        "status": told.STATUS,
    },
    "evidence_info": {
        "evidence": told.EVIDENCE,
        "capture": {"bundle": {}, "evidence": {}},
        "before": told.a_time,
        "after": told.a_time,
    },
    "os_update": {
        "updates": [{"name": str, "old": str, "new": str}],
        "new": [{"name": str, "new": str}],
        "removed": [{"name": str, "old": str}],
        "kept_back": _LISTS,
        "reboots": bool,
        "no_way_back": _LISTS,
        "firmware": {str: str},
        "problems": _LISTS,
    },
    "ray_info": {
        **{name.removesuffix("?"): form for name, form in told.RAY.items()},
        "problems": [{"code": str, "node?": (str, None), "cause": str, "fix": str}],
        "obstacles": _LISTS,
        "versions": {str: str},
    },
    "rdma_info": {"links": [told.PORT], "source": str},
    "fabric_neighbors": {"neighbours_seen": _SEEN},
    "host_compare": {
        "converged": _LISTS,
        "compared": _LISTS,
        "refused": _LISTS,
        **dict.fromkeys(("drift", "unknown", "renamed"), str),
        "compiled": bool,
        "probe": _PROBE,
        "exposure": {
            "firewall": bool,
            "listeners": _LISTENERS,
            "udp": _LISTENERS,
            "others": _LISTS,
            "wifi": ({"netdev": str, "uuid": str, "name": str, "users": _LISTS, "asks": bool}, told.nothing),
        },
        "ansible_facts": {"sparkthor_engine?": _ENGINE},
    },
    "host_state": {
        **dict.fromkeys(("changed_paths", "changed_units", "restarted_units", "changed_sysctls"), _LISTS),
        **dict.fromkeys(("changed_accounts", "skipped_groups"), _LISTS),
        "deferred_units": {str: str},
        "daemon_reloaded": bool,
        "units": {str: {"active?": str, "sub?": str, "enabled?": str, "load?": str, "main_pid?": int}},
    },
    "host_packages": {"packages": _LISTS, "kept": _LISTS},
    "controller_lock": {"since": str},
    "firewall_apply": {
        "changed_paths": _LISTS,
        "changed_units": _LISTS,
        "table_changed": bool,
        "ssh_ports": [int],
        "confirmed": bool,
        "started": bool,
    },
    "nccl_conf": {
        "changed_paths": _LISTS,
        "backup": str,
        "sources": [
            {
                **{"name": str, "rank": str, "exists": bool, "settings": {str: str}, "differs": {str: {}}},
                "ineffective": [{}],
            },
        ],
    },
    "netplan_apply": {
        "links": [_LINK],
        **dict.fromkeys(("needs_change", "verified", "adopted", "armed", "held", "started", "deferred"), bool),
        "findings": [_FINDING],
        "blocking": [_FINDING],
        "restored": _LISTS,
        "kept": _LISTS,
        "backup": str,
        "renderer": str,
        "rollback": {"status?": (str, None), "reason?": (str, None), "steps?": [object]},
    },
    "memory_plan": {"plan": {}},
    "cluster_verify": {"found": {}},
    "vllm_options": {
        "table": {**{f"{name}?": str for name in ENGINES}, "options": {str: {}}, "value_lists?": {str: object}},
        "cached": bool,
        "path": str,
    },
    "vllm_service": {
        "steps": _LISTS,
        "in_flight": told.a_count,
        "ready": bool,
        "state": str,
        "executor": re.compile("ray|mp"),
        "line": str,
        "deadline_problem": str,
        "latency": (told.a_time, None),
        "waited": told.a_time,
        "answers": ({"asked?": int, "right?": int, "wrong?": (str, None)}, None),
        "certificate": str,
        "loaded": str,
        "stale": _LISTS,
        "files": _LISTS,
        "names": str,
        "beside": _LISTS,
        "beside_since": _LISTS,
        "digest": str,
        "machine": str,
        "configurations": [{"name": str, "digest": str, "about": (str, {})}],
    },
    "engine_venv": {
        "ansible_facts": {"sparkthor_engine?": _ENGINE},
        **dict.fromkeys(("problems", "command"), _LISTS),
        "target": told.TARGET,
        "need": [_CONTENT],
    },
    "engine_image": {
        "ansible_facts": {"sparkthor_engine?": _ENGINE},
        **dict.fromkeys(("digests", "pulled", "nccl", "actions", "command"), _LISTS),
        "lacks": str,
        "unbuilt": str,
        "need": [_CONTENT],
        "what": str,
        "wanted": [[str]],
        "probe": told.TARGET,
    },
    "engine_compiled": {
        **dict.fromkeys(("files", "bytes"), told.a_count),
        "saved": object,
        # the fan-out's, of model_copy
        **{"giver": str, "model": object},
    },
    "engine_image_build": {"built": str, "need": [_CONTENT], "saved": object},
    "engine_image_pull": {"pulled": _LISTS, "pulling": bool, "saved": object},
    "engine_trial": {"trial": {}, "left_out": str},
    "store_fetch": {"have": told.a_count, "problem": str},
    "store_receive": {},
    "model_copy": _COPIED,
    "model_fanout": {**_COPIED, "received_bytes": told.a_count, "parts": object},
    "model_prune": {**dict.fromkeys(("named", "removed"), _LISTS), "inventory": [_SHELF]},
    "model_switch": {},
}
#: by module, and by what it was asked where that makes a difference: keys without which its answer is none
NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "node_info": {
        "facts": ("ansible_facts",),
        "status": ("status",),
    },
    "evidence_info": {"False": ("evidence",), "True": ("capture",)},
    "engine_image_pull": {"False": ("pulling",), "True": ("pulled",)},
    "model_fanout": {"parts": ("parts",)},
    "controller_lock": {"": ("since",)},
    "fabric_neighbors": {"": ("neighbours_seen",)},
    "vllm_options": {"": ("table", "path")},
    "cluster_verify": {"": ("found",)},
}
#: the argument that makes it, with its default
ASKED: Mapping[str, tuple[str, str]] = {
    "node_info": ("gather", "facts"),
    "evidence_info": ("capture", "False"),
    "engine_image_pull": ("begun", "False"),
    "model_fanout": ("step", ""),
}


#: of Ansible's own modules, what the controller reads of an answer
BUILTIN: Mapping[str, Mapping[str, Form]] = {
    "slurp": {"content": told.a_text_in_base64},
    "command": {**dict.fromkeys(("stdout", "stderr"), str), "stdout_lines": _LISTS, "rc": int},
}


def wrong(module: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Why an answer cannot be used; empty if it can."""
    name = module.rpartition(".")[2] if module.startswith("sparkthor.cluster.") else ""
    try:
        shape.bounded(answer)
        shape.check(answer, COMMON)
        if answer.get("failed") or answer.get("unreachable"):
            return ""
        forms = FORMS[name] if name else BUILTIN.get(module.rpartition(".")[2], {})
        # what was skipped, and what check mode cannot know, is none
        given = {key: value for key, value in answer.items() if value is not None}
        for key in _needed(name, arguments) if not answer.get("skipped") else ():
            if key not in given:
                raise shape.Misshapen(key, "absent", shape.described(forms[key]))
        for key, form in forms.items():
            if key in given:
                shape.check(given[key], form, key)
        if name == "node_info" and "ansible_facts" in answer and _needed(name, arguments) == ("ansible_facts",):
            shape.check(answer, told.FACTS)
        if name == "cluster_verify" and "found" in given:
            told_measured.check_measured(str(arguments.get("stage")), given["found"])
    except shape.Misshapen as error:
        return unusable(module, error)
    return ""


def unusable(module: str, why: object) -> str:
    """What to say of an answer that nobody can read."""
    return (
        f"what it answered to {module.rpartition('.')[2]} cannot be used: {why}. No module of this collection "
        "answers so: look at what Python runs there and who changed it, and leave the host out (--limit) until then"
    )


def _needed(name: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    by = NEEDED.get(name) or {}
    argument, default = ASKED.get(name, ("", ""))
    return by.get(str(arguments.get(argument) or default) if argument else "", ())
