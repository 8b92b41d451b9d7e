#!/usr/bin/env bash
# The tests, by stage: lint (with mypy) | mypy | unit | border | nginx | sanity | docs | molecule NAME | all.  `make` calls it with .venv/bin on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 ANSIBLE_CONFIG=$PWD/ansible.cfg
# scenarios of the CI tier; the others belong to `make test-full`
CI_SCENARIOS="default ring mixed ray_short"
# each pytest run leaves its counts here, and the last line adds them up
export SPARKTHOR_RESULTS=${SPARKTHOR_RESULTS:-$PWD/.lab/results/last}
begin() { printf '\n=== %s (%s s so far)\n' "$1" "$SECONDS"; }

# Runs its lines of stages at the same time; what each of them said follows when all have ended.
beside() {
  begin "side by side: $(printf '[%s] ' "$@")"
  local logs line pid failed=0 pids=()
  logs=$(mktemp -d)
  # jobs in the background do not hear of Ctrl-C
  trap 'trap - INT TERM; kill 0' INT TERM
  for line in "$@"; do
    (set -e; eval "$line") >"$logs/${#pids[@]}" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  trap - INT TERM
  for line in "${!pids[@]}"; do cat "$logs/$line"; done
  rm -r "$logs"
  return "$failed"
}

lint() {
  begin "ruff"
  ruff check .
  ruff format --check .
  begin "layout: which package imports which"
  python -m tools.house >/dev/null || { python -m tools.house; return 1; }
  types
  begin "yamllint"
  yamllint --strict .
  begin "workflows and templates of the forge"
  check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
  check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
  check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
  check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
  begin "ansible-lint"
  ansible-lint --offline --strict
  begin "every playbook and every inventory: syntax and task list"
  # whatever a syntax check sees, a list of tasks does; how a playbook reads does not depend on the inventory
  ansible-playbook site.yml playbooks/*.yml -i inventories/3spark/ --list-tasks >/dev/null
  for inventory in inventories/*/ examples/*/; do
    ansible-playbook site.yml -i "$inventory" --list-tasks >/dev/null
  done
}

types() {
  begin "mypy"
  mkdir -p .lab/mypy/ansible_collections/sparkthor
  ln -sfn "$PWD" .lab/mypy/ansible_collections/sparkthor/cluster
  mypy
}

unit() {
  begin "unit tests"
  mkdir -p "$SPARKTHOR_RESULTS"
  pytest -q --numprocesses=2 --junitxml="$SPARKTHOR_RESULTS/unit.xml" tests/unit lab/tests "$@"
}

border() {
  begin "hosts that lie, with Ansible's default configuration"
  mkdir -p "$SPARKTHOR_RESULTS"
  pytest -q --numprocesses=2 --junitxml="$SPARKTHOR_RESULTS/border.xml" tests/integration/border "$@"
}

# nginx as the distribution has it, or below NGINX_ROOT (tools/nginx_root.sh makes one). Its own service would take port
# 80, so it is masked while the package comes, and disabled afterwards; one that somebody else masked stays so.
nginx() {
  begin "the front proxy under a real nginx, and the page in a real browser"
  mkdir -p "$SPARKTHOR_RESULTS"
  if [ -z "${NGINX_ROOT:-}" ] && { ! [ -x /usr/sbin/nginx ] || ! [ -e /usr/lib/nginx/modules/ngx_http_js_module.so ]; }; then
    local masked='' failed=0
    if ! [ -x /usr/sbin/nginx ] && command -v systemctl >/dev/null &&
       [ "$(systemctl is-enabled nginx.service 2>/dev/null)" != masked ]; then
      systemctl --quiet mask nginx.service
      masked=1
    fi
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends \
      nginx-light libnginx-mod-http-js >/dev/null; } || failed=$?
    [ -z "$masked" ] || systemctl --quiet unmask nginx.service
    [ "$failed" = 0 ] || return "$failed"
    [ -z "$masked" ] || systemctl --quiet disable nginx.service
  fi
  pytest -q --numprocesses=2 --junitxml="$SPARKTHOR_RESULTS/nginx.xml" tests/integration/nginx \
    tests/integration/page "$@"
}

sanity() {
  begin "ansible-test sanity $*"
  tools/sanity.sh "$@"
}

docs() {
  begin "the site"
  tools/docs.sh
  pytest -q tests/integration/site
}

scenario() {
  begin "molecule $1"
  mkdir -p "$SPARKTHOR_RESULTS"
  local log=$SPARKTHOR_RESULTS/$1.log
  if ! molecule test --scenario-name "$1" --report 2>&1 | tee "$log"; then
    # the removal of the hosts comes after the error: what matters is said once more where everybody looks, at the end
    begin "why $1 failed"
    sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -aE -A4 'fatal: |failed: |\[ERROR\]|sparklab: |│ +(E  |FAILED )' | tail -60
    return 1
  fi
}

case ${1:-all} in
  lint) lint ;;
  mypy) types ;;
  unit) shift; unit "$@" ;;
  border) shift; border "$@" ;;
  nginx) shift; nginx "$@" ;;
  sanity) shift; sanity "$@" ;;
  docs) docs ;;
  molecule) scenario "${2:-default}" ;;
  all)
    rm -rf "$SPARKTHOR_RESULTS"
    mkdir -p "$SPARKTHOR_RESULTS"
    # ansible-test runs one test after the other, and pylint takes as long as all others together
    beside "lint; docs" "sanity --test pylint" "sanity --skip-test pylint"
    # the browser waits half of its time
    beside "unit" "nginx"
    border
    # the first one serves a model and needs the cores for itself; two of the others fill them, and the last is the
    # longest
    read -r first others <<<"$CI_SCENARIOS"
    scenario "$first"
    # shellcheck disable=SC2086  # one word a scenario
    beside "$(printf 'scenario %s; ' ${others% *})" "scenario ${others##* }"
    # what CI runs also takes one of the other scenarios in turn, so that none stays unseen
    for turn in $([ -z "${CI:-}" ] || python -m tools.turn); do scenario "$turn"; done
    begin "all stages"
    python -m tools.summary "$SPARKTHOR_RESULTS"
    ;;
  *) echo "usage: tools/test.sh lint | mypy | unit | border | nginx | sanity | docs | molecule NAME | all" >&2; exit 2 ;;
esac
