# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # Where a module puts what it is given.
    DOCUMENTATION = r"""
options:
  root:
    description: Folder of the store.
    type: path
    required: true
"""
