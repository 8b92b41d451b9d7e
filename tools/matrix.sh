#!/usr/bin/env bash
# Unit, border and sanity tests with every ansible-core that the collection supports, each in a virtual environment of
# its own below .lab/matrix.  SPARKTHOR_CORES="2.19" picks versions; a name as argument runs that lab scenario as well.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
scenario=${1:-}
cores=${SPARKTHOR_CORES:-2.19 2.20 2.21}
pins=.lab/matrix/requirements.txt
mkdir -p .lab/matrix
# the versions of the test tools are .venv's; only ansible-core and what is tied to its version differs
grep -vE '^(ansible-core|ansible-lint|ansible-compat|molecule)==' requirements/dev.txt >"$pins"

failed=()
stage() { # core, name, command...
  local core=$1 name=$2
  shift 2
  printf '\n=== ansible-core %s: %s (%s s so far)\n' "$core" "$name" "$SECONDS"
  "$@" || failed+=("$core $name")
}

for core in $cores; do
  venv=$top/.lab/matrix/$core
  quiet=(--quiet --disable-pip-version-check)
  wanted=ansible-core==$core.*
  # the newest one there is, released or not
  [ "$core" != devel ] || wanted="ansible-core>=2.22.0.dev0"
  [ -x "$venv/bin/python" ] || .venv/bin/python -m venv "$venv"
  if ! [ -e "$venv/.done" ] || [ "$pins" -nt "$venv/.done" ] && ! cmp -s "$pins" "$venv/.done"; then
    "$venv/bin/python" -m pip install "${quiet[@]}" "$wanted" -r "$pins"
    [ -z "$scenario" ] || "$venv/bin/python" -m pip install "${quiet[@]}" "$wanted" molecule
    "$venv/bin/python" -m pip install "${quiet[@]}" --no-deps -e lab/
    cp "$pins" "$venv/.done"
  fi
  site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  mkdir -p "$site/ansible_collections/sparkthor"
  ln -sfn "$top" "$site/ansible_collections/sparkthor/cluster"
  export PATH=$venv/bin:$PATH ANSIBLE_CONFIG=$top/ansible.cfg PYTHONDONTWRITEBYTECODE=1
  stage "$core" unit "$venv/bin/python" -m pytest -q -p no:cacheprovider --numprocesses=2 tests/unit
  stage "$core" border "$venv/bin/python" -m pytest -q -p no:cacheprovider --numprocesses=2 tests/integration/border
  stage "$core" sanity env SPARKTHOR_VENV="$venv" tools/sanity.sh
  [ -z "$scenario" ] || stage "$core" "molecule $scenario" molecule test --scenario-name "$scenario" --report
done

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed with ansible-core $cores"
