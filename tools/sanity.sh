#!/usr/bin/env bash
# ansible-test sanity without containers, on the interpreter of .venv or of SPARKTHOR_VENV.
# It wants to see the collection below ansible_collections/, which is where `make venv` links the checkout.  It
# bootstraps pip with a get-pip file that it would download; Python's own ensurepip does the same without a download.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=${SPARKTHOR_VENV:-$PWD/.venv}/bin:$PATH LC_ALL=C.UTF-8
python_version=$(python -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
site=$(python -c 'import site; print(site.getsitepackages()[0])')
pip_version=$(sed -nE "s/^ +pip='([0-9.]+)',.*/\1/p" "$site/ansible_test/_internal/python_requirements.py" | head -n 1)
bootstrap=$HOME/.ansible/test/cache/get_pip_${pip_version//./_}.py
if [ ! -e "$bootstrap" ]; then
  mkdir -p "$(dirname "$bootstrap")"
  cat >"$bootstrap" <<'P'
# Stands in for the downloaded get-pip file: installs the pip that Python ships.
import ensurepip

ensurepip.bootstrap(default_pip=True)
P
fi
collection=$site/ansible_collections/sparkthor/cluster
cd "$collection"
export ANSIBLE_TEST_CONTENT_ROOT=$collection
exec ansible-test sanity --python "$python_version" "$@"
