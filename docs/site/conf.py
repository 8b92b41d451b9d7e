# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sphinx settings of the site; ``make docs`` collects its pages and passes the version."""

project = "sparkthor.cluster"
copyright = "sparkthor.cluster contributors"
html_title = "sparkthor.cluster"
extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["collections/environment_variables.rst"]

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
# pages are put together from several places, so a link to edit one would lead to the wrong file
html_theme_options = {"top_of_page_buttons": []}
html_static_path = ["static"]
html_css_files = ["site.css"]

# options begin with two hyphens, which are no dash
smartquotes = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"
# the pages of modules refer to those of ansible-core, which this site does not have
suppress_warnings = ["ref.ref"]
