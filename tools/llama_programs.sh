#!/usr/bin/env bash
# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# tools/llama_programs.sh FOLDER [SUITE]: llama-server, ggml-rpc-server and llama-fit-params of a newer Debian, each one
# file that brings its libraries and its loader. Nothing is installed. The lab and the tests of the real llama.cpp take
# them by LLAMA_PROGRAMS=FOLDER. They compute on CPUs.
set -euo pipefail

folder=$(realpath -m "${1:?a folder}")
suite=${2:-sid}
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/all/lib "$folder"
"$(dirname "$0")/debian_packages.sh" "$state/root" "$suite" llama.cpp-tools llama.cpp-tools-extra libllama0 libggml0 \
  libggml0-backend-rpc libc6 libgcc-s1 libstdc++6 libgomp1 libssl3t64 zlib1g libzstd1

libraries=$(dirname "$(ls "$state"/root/usr/lib/*/libc.so.6)")
cp -L "$libraries"/lib{c,m,gcc_s,stdc++,gomp,ssl,crypto,z,zstd,llama,llama-common,mtmd,ggml,ggml-base}.so.[0-9]* \
  "$libraries"/llama/*.so "$state/all/lib/"
# computing parts are looked for beside the program, which is the loader here
cp "$libraries"/ggml/backends0/*.so "$state/all/"
for program in llama-server ggml-rpc-server llama-fit-params; do
  cp "$(find "$state/root" -type f -path "*/bin/$program")" "$state/all/lib/$program"
  # under the program's name, by which processes are found
  cp "$libraries"/ld-linux-*.so.* "$state/all/$program"
done
tar -C "$state/all" --sort=name --mtime=@0 --owner=0 --group=0 -cf - . | gzip -n >"$state/all.tar.gz"
size=$(stat -c %s "$state/all.tar.gz")
name=llama-$(sha256sum "$state/all.tar.gz" | cut -c1-12)
for program in llama-server ggml-rpc-server llama-fit-params; do
  script="#!/bin/sh
# $program of Debian $suite, unpacked below the first of these folders that takes it
set -e
# a folder that is not there, or not ours to write, is no fault: the next one is tried
for place in \"\${LLAMA_CACHE:-/none}\" \"\${TMPDIR:-/tmp}\"; do
  own=\$place/$name-\$(id -u)
  [ -O \"\$own\" ] && break
  new=\$(mktemp -d \"\$place/.llama-XXXXXX\" 2>/dev/null) || continue
  tail -c +@@@@@ \"\$0\" | head -c $size | tar -xzf - -C \"\$new\"
  # whoever started at the same time may have been first
  mv -T \"\$new\" \"\$own\" 2>/dev/null || rm -rf \"\$new\"
  break
done
exec \"\$own/$program\" --library-path \"\$own/lib\" \"\$own/lib/$program\" \"\$@\"
"
  { printf '%s' "${script/@@@@@/$(printf '%05d' $((${#script} + 1)))}" && cat "$state/all.tar.gz"; } >"$folder/$program"
  chmod +x "$folder/$program"
done
"$folder/llama-server" --version
