#!/usr/bin/env bash
# Build the site into .lab/docs/html; its tools have a virtual environment of their own, because no test needs them.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
venv=$top/.lab/docs-venv
if ! cmp -s requirements/docs.txt "$venv/.done"; then
  mkdir -p .lab
  .venv/bin/python -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
  cp requirements/docs.txt "$venv/.done"
fi
# antsibull-docs asks ansible-doc; the collection is this checkout
collections=$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')
export PATH=$venv/bin:$PATH ANSIBLE_COLLECTIONS_PATH=$collections ANSIBLE_CONFIG=$top/ansible.cfg PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -m tools.docs "$@"
