#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_options
short_description: Read the options of the installed engine from its own declarations
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Builds vLLM's argument parser under the engine's Python, or reads SGLang's source there, and returns its options and
    value lists as the table that O(arguments) are checked against.
  - vLLM's takes some 15 seconds, so the table is kept in O(cache_dir), one file for each version of the engine.
  - Reads no model, uses no GPU and starts no process that stays.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  engine_name:
    description: Which engine it is, by its name in C(serving_engine).
    type: str
    default: vllm
  command:
    description:
      - Command that runs the engine's Python, as a list. It gets a script on its standard input.
      - For a container this is the container tool with C(run), C(--interactive), C(--rm), C(--entrypoint) and image.
    type: list
    elements: str
    default: [/opt/sparkthor/venv/bin/python]
  version:
    description:
      - The installed version of the engine. The cache has one file for each version.
      - Asked from the engine's Python if not given, which takes a fraction of a second in a virtual environment.
    type: str
  cache_dir:
    description: Folder of the cache, which must exist; nothing is kept if it is an empty string.
    type: str
    default: /opt/sparkthor
  timeout:
    description: Seconds that building the parser may take.
    type: int
    default: 300
  engine:
    description:
      - Name of the installed engine, such as its digest. If set, the controller also keeps the table, and each
        host is asked only once for each of its engines.
    type: str
  arguments:
    description: Arguments of the engine to check against the table, on the controller.
    type: dict
  acknowledged:
    description: Dangerous arguments that are used on purpose, by name.
    type: list
    elements: str
    default: []
  environment:
    description: Environment of the engine, checked for variables that do nothing or hold secrets.
    type: dict
    default: {}
  needs:
    description: What the plan needs of the engine's version, checked against the table's.
    type: dict
    default: {}
attributes:
  check_mode:
    details: The table is read and returned, and not kept.
  diff_mode:
    details: The cache is not a state that anyone declares.
"""

EXAMPLES = r"""
- name: Read the options of the installed vLLM
  sparkthor.cluster.vllm_options:
  register: options

- name: Check arguments against them
  sparkthor.cluster.vllm_options:
    engine: "{{ ansible_facts['sparkthor_engine'].digest }}"
    arguments:
      max-model-len: 32768
"""

RETURN = r"""
table:
  description: The option table.
  returned: success, but not in check mode before there is an engine, unless a table of O(version) is shipped
  type: dict
  contains:
    vllm:
      description: Version of vLLM, where it is that.
      type: str
    sglang:
      description: Version of SGLang, where it is that.
      type: str
    options:
      description: Options by name.
      type: dict
    value_lists:
      description: Values of options for which the parser takes any string.
      type: dict
cached:
  description: Whether the table came from the cache.
  returned: success
  type: bool
path:
  description: File of the cache.
  returned: success
  type: str
"""

import inspect
import json
import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import option_table, sglang_options
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import TIMED_OUT, run_limited

#: what runs under the engine's Python, by the engine
READERS = {"vllm": option_table, "sglang": sglang_options}


def cache_path(folder: str, version: str, engine: str = "vllm") -> str:
    """One file for each version; the name cannot leave the folder."""
    if not folder or not version:
        return ""
    return os.path.join(folder, f"{engine}-options-{re.sub(r'[^0-9A-Za-z.+_-]', '_', version)}.json")


def read_cache(path: str) -> dict[str, Any] | None:
    """The cached table, or None if there is none or it is not one of ours."""
    try:
        table = json.loads(files.read_own(path))
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) and table.get("schema") == option_table.SCHEMA else None


def run_python(module: AnsibleModule, command: list[str], script: str, timeout: int) -> str:
    """Standard output of a script under the engine's Python; the module fails with the last line of its error."""
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "LC_ALL": "C"}
    code, out, err = run_limited([*command, "-"], timeout, script, environment=environment)
    if code:
        lines = [line for line in (err or out).strip().splitlines() if line.strip()]
        reason = f"no answer within {timeout} s" if code == TIMED_OUT else (lines[-1] if lines else f"exit code {code}")
        name = module.params["engine_name"]
        module.fail_json(msg=f"command={' '.join(command)!r}: the engine's {name} cannot be asked: {reason}", rc=code)
    return out


def find_table(text: str) -> dict[str, Any] | None:
    """The table in the output, which may begin with messages of libraries."""
    start = text.find('{\n "schema"')
    try:
        table = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None
    return table if isinstance(table, dict) else None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine_name": {"type": "str", "default": "vllm"},
            "command": {"type": "list", "elements": "str", "default": ["/opt/sparkthor/venv/bin/python"]},
            "version": {"type": "str"},
            "cache_dir": {"type": "str", "default": "/opt/sparkthor"},
            "timeout": {"type": "int", "default": 300},
            # for the controller's side, which takes them out before the module runs
            "engine": {"type": "str"},
            "arguments": {"type": "dict"},
            "acknowledged": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "needs": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    command, timeout = module.params["command"], module.params["timeout"]
    name = module.params["engine_name"]
    if name not in READERS:
        module.fail_json(msg=f"engine_name={name!r}: options are read of {' and '.join(READERS)} alone")
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    version = module.params["version"] or run_python(module, command, ask, timeout).strip()
    path = cache_path(module.params["cache_dir"], version, name)
    table = read_cache(path) if path else None
    if table is not None:
        module.exit_json(changed=False, table=table, cached=True, path=path)
    output = run_python(module, command, inspect.getsource(READERS[name]), timeout)
    table = find_table(output)
    if table is None:
        module.fail_json(msg=f"command={' '.join(command)!r}: the engine's Python printed no option table")
    if path and not module.check_mode and os.path.isdir(os.path.dirname(path)):
        try:
            files.write_atomic(path, option_table.render(table))
        except OSError as error:
            module.warn(f"cannot keep the option table: {error}")
    module.exit_json(changed=False, table=table, cached=False, path=path)


if __name__ == "__main__":
    main()
