# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vllm_args
short_description: Check arguments of vllm serve against the options of one vLLM version
version_added: 0.1.0
author: sparkthor.cluster contributors (@sparkthor)
description:
  - Unknown and removed options, wrong values, missing companions and dangerous settings are one error that names each
    option, its value and the mend.
  - Names may be written with dashes or underscores, with or without leading dashes; C(no-) negates a switch; a field
    of a structured option may be given as C(compilation-config.mode).
positional: _input
options:
  _input:
    description: Arguments by vLLM's own flag names.
    type: dict
    required: true
  version:
    description: The vLLM version that will serve; a shipped table of the same minor version is used.
    type: str
  table:
    description: An option table dumped on the host by M(sparkthor.cluster.vllm_options), preferred to O(version).
    type: dict
  acknowledged:
    description: Names of dangerous options that are meant.
    type: list
    elements: str
    default: []
  environment:
    description: Environment of the engine, checked for variables that do nothing or hold secrets.
    type: dict
    default: {}
  fail:
    description: Whether a fatal problem is an error; otherwise it is returned.
    type: bool
    default: true
seealso:
  - module: sparkthor.cluster.vllm_options
"""

EXAMPLES = r"""
- name: Check the arguments for the version that is installed
  ansible.builtin.debug:
    msg: "{{ vllm_serve_args | sparkthor.cluster.vllm_args(table=options.table, acknowledged=['trust-remote-code']) }}"
"""

RETURN = r"""
_value:
  description: What was found.
  type: dict
  contains:
    args:
      description: The arguments under their full names.
      type: dict
    warnings:
      description: Findings that do not stop a run.
      type: list
      elements: str
    errors:
      description: Findings that stop a run; only without O(fail).
      type: list
      elements: str
    version:
      description: Version of the table.
      type: str
    exact:
      description: Whether the table is of exactly the asked version.
      type: bool
"""

from collections.abc import Collection, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args as _vllm_args


def vllm_args(
    args: Mapping[str, Any],
    version: str | None = None,
    table: Mapping[str, Any] | None = None,
    acknowledged: Collection[str] = (),
    environment: Mapping[str, Any] | None = None,
    fail: bool = True,
) -> dict[str, Any]:
    try:
        if table:
            options, exact = _vllm_args.valid_table(dict(table), "table"), True
        elif version:
            options, exact = _vllm_args.find_table(version)
        else:
            raise SizingError("version", version, "and table are both missing", "Give one of them.")
    except SizingError as error:
        raise AnsibleFilterError(f"vllm_args: {error}") from error
    problems = _vllm_args.check(args, options, acknowledged) + _vllm_args.check_environment(environment or {})
    errors = _vllm_args.fatal(problems)
    if errors and fail:
        raise AnsibleFilterError(str(_vllm_args.VllmArgsError(errors, options["vllm"])))
    return {
        "args": _vllm_args.normalise(args, options) if isinstance(args, Mapping) else {},
        "warnings": [str(problem) for problem in problems if problem.severity == _vllm_args.WARNING],
        "errors": [str(problem) for problem in errors],
        "version": options["vllm"],
        "exact": exact,
    }


class FilterModule:
    """The filter's door to module_utils/_vllm_args."""

    def filters(self) -> dict[str, Any]:
        return {"vllm_args": vllm_args}
