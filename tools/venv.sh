#!/usr/bin/env bash
# Make .venv: a Python that all pinned tools run on, these tools, the lab tool, and the link that makes this
# checkout importable as ansible_collections.sparkthor.cluster.  Repeating it costs well under a second.
# With "all" the programs of the lab and the tests have to be there; a controller of real machines needs none of them.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
venv=$top/.venv
stamp=$venv/.sparkthor-requirements
wanted=$(cat requirements/dev.txt lab/pyproject.toml tools/venv.sh | sha256sum | cut -c1-16)

# Programs and their Debian packages; installed only where one is missing and we may.
lab="rsync:rsync ip:iproute2 mkfs.ext4:e2fsprogs losetup:mount dpkg-deb:dpkg openssl:openssl"
missing=()
for pair in ssh:openssh-client git:git $lab; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null 2>&1 ||
    missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "venv: installing ${missing[*]}"
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" \
      >/dev/null
  elif [ "${1:-}" != all ] && command -v ssh >/dev/null && command -v git >/dev/null; then
    echo "venv: make up and the tests also need these Debian packages: ${missing[*]}"
  else
    echo "venv: these Debian packages are missing: ${missing[*]} (as root: apt-get install ${missing[*]})" >&2
    exit 2
  fi
fi

if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted $top" ]; then
  exit 0
fi

suitable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(0 if (3, 12) <= sys.version_info[:2] <= (3, 13) else 1)' \
  >/dev/null 2>&1; }
python=
for candidate in "${SPARKTHOR_PYTHON:-}" python3.13 python3.12 python3 \
                 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13*/bin/python "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python \
                 "${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-$HOME/.local/share}/uv/python}"/cpython-3.1[32]*/bin/python3 \
                 /usr/local/bin/python3.13 /usr/local/bin/python3.12; do
  if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 && suitable "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  cat >&2 <<'M'
venv: no Python 3.12 or 3.13 with venv found, and the pinned tools need one.  Any of these brings one:
  Ubuntu 24.04, Debian 13:   apt-get install python3 python3-venv
  elsewhere:                 uv python install 3.13    or    pyenv install 3.13
then run again, or name one: SPARKTHOR_PYTHON=/path/to/python3.13 make venv
M
  exit 2
fi

echo "venv: $("$python" -V) -> .venv"
if ! [ -x "$venv/bin/python" ] || ! suitable "$venv/bin/python"; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
quiet=(--quiet --disable-pip-version-check)
"$venv/bin/python" -m pip install "${quiet[@]}" -r requirements/dev.txt
"$venv/bin/python" -m pip install "${quiet[@]}" --no-deps -e lab/
site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$site/ansible_collections/sparkthor"
ln -sfn "$top" "$site/ansible_collections/sparkthor/cluster"
echo "$wanted $top" >"$stamp"
