# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``store_fetch``: it believes no more of the answer than the module reads."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import HostAction


class ActionModule(HostAction):
    pass
