#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recipe
short_description: List, show, check and export recipes
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads recipes of this collection, of the C(sparkrun) tool (versions 1 and 2) and
    of the vLLM project, says of each whether it can be served and what of it has no counterpart here, and writes one in
    the form of C(sparkrun).
  - Runs on the controller and contacts no host. Nothing that a recipe names is downloaded or run.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
options:
  action:
    description:
      - V(list) names the recipes of this collection. With O(hosts) it is a table of what these can run, all together or
        a part of them, the fastest first, and of what they cannot run.
      - V(show) prints one as it is understood, with a summary in words before it.
      - V(check) plans one, those of a folder, or those of a registry's checkout, and counts them.
      - V(export) writes one in the form of C(sparkrun).
    type: str
    choices: [list, show, check, export]
    default: list
  recipe:
    description:
      - Name of a recipe, path of a file, or for V(check) path of a folder. Needed by all actions but V(list).
      - C(FILE#VARIANT) chooses a variant of a recipe that has several.
    type: str
    default: ""
  hosts:
    description:
      - Names of the hosts that V(list), V(show) and V(check) plan for, the head first. If empty, V(check) looks for the
        smallest number of DGX Sparks that will do, and V(show) plans for each number of hosts that the recipe is for.
      - For V(export) their number chooses the split.
    type: list
    elements: str
    default: []
  topology:
    description: The C(fabric_topology) of O(hosts).
    type: str
    default: switch
  kinds:
    description: Kind of each of O(hosts) (C(spark), C(thor), C(generic)) by name.
    type: dict
    default: {}
  version:
    description: The engine's version whose options arguments are checked by. If not set, the newest that is known.
    type: str
  image:
    description: Image that V(export) writes, for a recipe that names none.
    type: str
    default: ""
  dest:
    description: File of the controller that V(export) writes. If not set, the text is only printed.
    type: path
seealso:
  - plugin: sparkthor.cluster.recipe
    plugin_type: filter
"""

EXAMPLES = r"""
- name: List the recipes of the collection
  sparkthor.cluster.recipe:
  register: recipes

- name: Say of each recipe of a registry whether it can be served
  sparkthor.cluster.recipe:
    action: check
    recipe: ~/recipe-registry

- name: Give a recipe to somebody who uses sparkrun
  sparkthor.cluster.recipe:
    action: export
    recipe: qwen3-30b-a3b-thinking-fp8
    dest: qwen3-30b.yaml
"""

RETURN = r"""
text:
  description: What is printed.
  returned: success
  type: str
rows:
  description: >-
    One dictionary for each recipe. V(list) gives C(name), C(model), C(hosts), C(kinds), C(topologies), C(summary);
    V(check) gives C(recipe), C(form), C(verdict) (V(planned), V(acknowledge) or V(refused)), and C(hosts), C(split),
    C(memory), C(acknowledge), C(untranslated), C(command) or C(kind), C(reason).
  returned: O(action=list) or O(action=check)
  type: list
  elements: dict
parts:
  description: >-
    One dictionary for each recipe that a part of O(hosts) can run, as V(check) gives it, and C(part): of
    how many hosts (C(of)), and of which kind where they are of several (C(kind)).
  returned: O(action=list) with O(hosts)
  type: list
  elements: dict
counts:
  description: How many recipes have which verdict, refused ones by the kind of reason.
  returned: O(action=check)
  type: dict
"""

# The work is done by the action plugin of the same name, on the controller.
