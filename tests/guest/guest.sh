#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What only other hardware shows: in a guest with a soft-RoCE card an agent of this build opens a `verbs;ofi_rxm` rail with
# the product's own settings (with libfabric's the card refuses the completion queue).
# guest.sh WEFT [run_guest.sh options]     exit code: 0 it does; 1 not; 125 no guest
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Every wait is bounded; an emulated processor on a busy machine is some hundred times slower.
inside() {
  local weft=$1 folder=$2 log=/tmp/node/log process
  mkdir -p /tmp/node/state
  cp -r "$folder/weights" /tmp/node/
  "$weft" agent --config "$folder/agent.toml" >"$log" 2>&1 &
  process=$!
  for ((i = 0; i < 200; ++i)); do
    if grep -q 'fabric_opened\|next:' "$log"; then break; fi
    sleep 2
  done
  { kill -KILL "$process" && wait "$process"; } 2>/dev/null || true
  grep -h 'fabric_opened\|^weft:' "$log" || echo "nothing within 400 s"
}

if [[ ${1:-} == --inside ]]; then
  inside "$2" "$3"
  exit
fi

weft=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debugging sections would be read through the emulated file system.
strip -o "$work/weft" "$weft"
"$weft" bench make-checkpoint "$work/model" --bytes 1MiB >"$work/made"
mv "$work/model/base" "$work/weights"
cat >"$work/agent.toml" <<'TOML'
fleet.coordinator = "127.0.0.1:7443"
weights.dir = "/tmp/node/weights"
state.dir = "/tmp/node/state"
fabric.provider = "verbs;ofi_rxm"
fabric.address = "10.99.0.1"
TOML
"$here/run_guest.sh" --rxe --timeout 1800 --verbose "$@" --scratch "$work" -- \
  "$here/guest.sh" --inside "$work/weft" "$work" | tee "$work/said"
if ! grep -q 'fabric_opened provider=verbs;ofi_rxm' "$work/said"; then
  echo "no rail by verbs;ofi_rxm"
  exit 1
fi
echo "verbs;ofi_rxm: a rail"
