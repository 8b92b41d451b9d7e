#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_secrets
short_description: Generate the cluster's secrets once and keep them on the controller
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Makes sure that the API key, the Ray token and the secret of the heads' own connections exist as files of mode 0600
    in the folder that the variable C(sparkthor_secrets_dir) names on the controller.
  - A secret that is set as a variable is left alone. One that the cluster's head already has (from another controller)
    is fetched and not replaced.
  - No secret is ever part of the result.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  names:
    description: Which secrets; all that were not given as variables by default.
    type: list
    elements: str
    choices: [api_key, peer_secret, ray_token]
  rotate:
    description:
      - Secrets to replace by new ones.  The former value is kept beside it as C(<name>.previous).
      - A secret that is set as a variable cannot be replaced here; the error names the variable.
    type: list
    elements: str
    choices: [api_key, peer_secret, ray_token]
    default: []
  once:
    description: Whether a secret whose former value is still kept stays as it is, as the last rotation has made it.
    type: bool
    default: false
  forget:
    description: Secrets whose former value is no longer wanted.
    type: list
    elements: str
    choices: [api_key, peer_secret, ray_token]
    default: []
attributes:
  diff_mode:
    details: A secret has no place in a diff; the result names the files.
"""

EXAMPLES = r"""
- name: Create the API key and the Ray token
  sparkthor.cluster.cluster_secrets:
  delegate_to: "{{ groups['ray_head'][0] }}"
  run_once: true
"""

RETURN = r"""
created:
  description: Files that were (in check mode, would be) created on the controller.
  returned: always
  type: list
  elements: str
  sample: ["/home/me/cluster/inventories/3spark/.secrets/api_key"]
rotated:
  description: Files whose secret was (in check mode, would be) replaced.
  returned: always
  type: list
  elements: str
forgotten:
  description: Files of former secrets that were (in check mode, would be) removed.
  returned: always
  type: list
  elements: str
"""

# The work is done by the action plugin of the same name, on the controller.
