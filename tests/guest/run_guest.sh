#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one command in a throw-away virtual machine (QEMU, emulated: no KVM, no root needed).
#
#   run_guest.sh [options] -- COMMAND [ARG...]
#   run_guest.sh --prepare            only fetch and unpack the guest's kernel
#
# The guest runs Debian's stock kernel and sees the host's file system read-only (what is written to it stays in the guest's
# memory and is lost), and one writable folder. So a program built on the host runs in the guest as it is, with the host's
# libraries, on other hardware: several NUMA nodes, soft-RoCE devices, disks that lose power.
#
# Exit code: the command's own, or
#   124  the time limit ran out (the guest was killed)
#   125  the guest itself failed: no boot, kernel panic, bad option, no QEMU
#   137  somebody ended QEMU with SIGKILL: the power cut
#
# Machine
#   --smp N             virtual CPUs (2)
#   --memory MIB        memory (2048)
#   --numa N            NUMA nodes, 6 at most; CPUs and memory are split evenly (1)
#   --cpu MODEL         QEMU's name of a processor (max)
# RDMA and network: cards are cut off from the host, packets end in QEMU
#   --nics N            virtio network cards eth0..; with --numa N > 1, card i sits on node i mod N (0, or 1 with --rxe)
#   --rxe               a soft-RoCE device rxeI on each card
#   --mtu BYTES         of the cards (4200: room for a RoCE MTU of 4096)
#   --host-id N         last byte of the cards' addresses, 10.99.I.N/24 (1)
#   --link-listen PATH[,nic=I], --link-connect PATH[,nic=I]
#                       joins card I (0) to a card of another guest through the Unix socket PATH
# Disks
#   --disk FILE[,cache=MODE]  a raw image, or an nbd+unix: address; /dev/vda, ... MODE is QEMU's (writeback)
#   --disk-log FILE     records every write and flush that the first disk (a file) gets, in order, in the kernel's log-writes format (tests/powercut/write_log.py reads it)
#   --pid-file FILE     where QEMU's process id is written: SIGKILL to it is a power cut
# Run
#   --scratch DIR       the writable folder, same path in the guest, also in $GUEST_SCRATCH (a fresh one, removed afterwards)
#   --cwd DIR           where the command starts (the scratch folder)
#   --env NAME[=VALUE]  passed to the command; repeatable. PATH, HOME, LD_*, FI_*, HWLOC_*, RDMAV_* and WEFT_* are passed by
#                       themselves; LANG is C (loading a locale doubles a program's start-up here)
#   --modules "M..."    further kernel modules to load
#   --timeout SEC       whole run, boot included (120)
#   --kernel-log FILE   the guest's console (printed if the guest fails)
#   --verbose           times on stderr at the end
#   --cache DIR         where the kernel is kept ($WEFT_GUEST_CACHE, else ~/.cache/weft-guest)

set -u -o pipefail
me=$(basename "$0")
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "$me: $*" >&2; exit 125; }

# ------------------------------------------------------------------ options --
smp=2 memory=2048 numa=1 cpu=max
nics=0 rxe=0 mtu=4200 host_id=1 links=()
disks=() disk_log='' pid_file=''
scratch='' cwd='' envs=() modules='' timeout=120 klog='' verbose=0
cache=${WEFT_GUEST_CACHE:-${HOME:-/root}/.cache/weft-guest} prepare_only=0

while [ $# -gt 0 ]; do
  opt=$1
  case $opt in
    --rxe) rxe=1; shift; continue ;;
    --verbose) verbose=1; shift; continue ;;
    --prepare) prepare_only=1; shift; continue ;;
    --help) sed -n '3,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; break ;;
    --*) [ $# -ge 2 ] || fail "$opt needs a value" ;;
    *) break ;;
  esac
  val=$2
  case $opt in
    --smp) smp=$val ;;           --memory) memory=$val ;;
    --numa) numa=$val ;;         --cpu) cpu=$val ;;
    --nics) nics=$val ;;         --pid-file) pid_file=$val ;;
    --mtu) mtu=$val ;;           --host-id) host_id=$val ;;
    --link-listen) links+=("on:$val") ;;
    --link-connect) links+=("off:$val") ;;
    --disk) disks+=("$val") ;;   --disk-log) disk_log=$val ;;
    --scratch) scratch=$val ;;   --cwd) cwd=$val ;;
    --env) envs+=("$val") ;;     --modules) modules="$modules $val" ;;
    --timeout) timeout=$val ;;   --kernel-log) klog=$val ;;
    --cache) cache=$val ;;
    *) fail "unknown option $opt" ;;
  esac
  shift 2
done
for n in "$smp" "$memory" "$numa" "$nics" "$mtu" "$host_id" "$timeout"; do
  [[ $n =~ ^[0-9]+$ ]] || fail "'$n' is not a whole number"
done
if [ "$numa" -lt 1 ] || [ "$numa" -gt 6 ] || [ $((smp % numa)) != 0 ] || [ "$smp" = 0 ]; then
  fail "--numa takes 1 to 6, and --smp must be a multiple of it"
fi
if [ $rxe = 1 ] || [ ${#links[@]} -gt 0 ]; then [ "$nics" -ge 1 ] || nics=1; fi

# ------------------------------------------------------- the guest's kernel --
# The package is only unpacked, never installed: the host's boot stays as it is.
# linux-image-amd64 is the full flavour; the "cloud" one has neither rdma_rxe nor 9p.
prepare() {
  local tmp deb pkg kver img off
  for t in dpkg-deb depmod cpio xz busybox; do
    command -v $t >/dev/null || fail "$t is missing (see the package list in $me)"
  done
  mkdir -p "$cache" || fail "cannot make $cache"
  exec 9>"$cache/lock" && flock 9          # two runs at once prepare only once
  if [ ! -e "$cache/kernel/ready" ]; then
    pkg=${WEFT_GUEST_KERNEL:-$(apt-cache --no-all-versions show linux-image-amd64 |
      sed -n 's/^Depends: *\(linux-image-[^ ,]*\).*/\1/p' | head -n1)}
    [ -n "$pkg" ] || fail "no kernel package known: run apt-get update"
    tmp=$(mktemp -d "$cache/tmp.XXXXXX") || exit 125
    (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$pkg") ||
      fail "cannot download $pkg"
    deb=$(echo "$tmp"/*.deb)
    # What no guest of ours has (display, sound, radio ...) stays packed: it
    # is two thirds of the module tree.
    mkdir "$tmp/kernel"
    dpkg-deb --fsys-tarfile "$deb" | tar -C "$tmp/kernel" -x \
      --exclude='./usr/*' --exclude='*/kernel/sound/*' \
      --exclude='*/kernel/drivers/gpu/*' --exclude='*/kernel/drivers/media/*' \
      --exclude='*/kernel/drivers/net/wireless/*' \
      --exclude='*/kernel/drivers/staging/*' --exclude='*/kernel/drivers/iio/*' \
      --exclude='*/kernel/drivers/usb/*' --exclude='*/kernel/drivers/hid/*' ||
      fail "cannot unpack $deb"
    kver=$(ls "$tmp/kernel/lib/modules") || exit 125
    depmod -b "$tmp/kernel" "$kver" 2>/dev/null || fail "depmod failed"
    # Boot the unpacked ELF image (PVH entry): unpacking it by emulated
    # instructions would cost seconds at every boot.
    img=$tmp/kernel/boot/vmlinuz-$kver
    off=$(LC_ALL=C grep -abo -m1 $'\xfd7zXZ' "$img" | head -n1 | cut -d: -f1)
    if [ -n "$off" ]; then
      tail -c "+$((off + 1))" "$img" | xz -dc --single-stream 2>/dev/null \
        >"$tmp/kernel/vmlinux"
    fi
    [ "$(head -c4 "$tmp/kernel/vmlinux" 2>/dev/null)" = $'\x7fELF' ] ||
      cp "$img" "$tmp/kernel/vmlinux"      # works as well, only slower
    echo "$kver" >"$tmp/kernel/version"
    touch "$tmp/kernel/ready"
    mv "$tmp/kernel" "$cache/kernel"
    rm -rf "$tmp"
  fi
  kver=$(cat "$cache/kernel/version")
  if [ ! -e "$cache/initrd" ] || [ "$here/guest_init.sh" -nt "$cache/initrd" ]; then
    tmp=$(mktemp -d "$cache/tmp.XXXXXX") || exit 125
    mkdir -p "$tmp"/{bin,modules,proc,sys,dev}
    cp "$(command -v busybox)" "$tmp/bin/busybox"
    ln -s busybox "$tmp/bin/sh"
    cp "$here/guest_init.sh" "$tmp/init" && chmod +x "$tmp/init"
    local m ko
    for m in virtio_pci 9pnet_virtio 9p overlay virtio_console; do
      modprobe -d "$cache/kernel" -S "$kver" --show-depends "$m" ||
        fail "the kernel has no module $m"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$tmp/list"
    while read -r ko; do
      cp "$ko" "$tmp/modules/" && basename "$ko"
    done <"$tmp/list" >"$tmp/modules/order"
    rm "$tmp/list"
    (cd "$tmp" && find . | cpio -o -H newc --quiet) >"$cache/initrd.new" ||
      fail "cannot pack the initramfs"
    mv "$cache/initrd.new" "$cache/initrd"
    rm -rf "$tmp"
  fi
  exec 9>&-
}
prepare
[ $prepare_only = 1 ] && exit 0
[ $# -ge 1 ] || fail "no command (try --help)"
kver=$(cat "$cache/kernel/version")
command -v qemu-system-x86_64 >/dev/null || fail "qemu-system-x86_64 is missing"

# ------------------------------------------------- what the guest gets told --
work=$(mktemp -d "${TMPDIR:-/tmp}/run_guest.XXXXXX") || exit 125
ctl=$work/ctl
mkdir "$ctl"
qemu_pid='' copy_pids=''
# shellcheck disable=SC2317  # run by the trap
cleanup() {
  [ -n "$qemu_pid" ] && kill -KILL "$qemu_pid" 2>/dev/null
  # shellcheck disable=SC2086
  [ -n "$copy_pids" ] && kill $copy_pids 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ -z "$scratch" ]; then scratch=$work/scratch; mkdir "$scratch"; fi
scratch=$(realpath -e "$scratch") || fail "no scratch folder"
case $scratch in *[!A-Za-z0-9_./+-]*) fail "odd characters in $scratch" ;; esac
[ -n "$cwd" ] || cwd=$scratch
[ -n "$klog" ] || klog=$work/console

{
  echo "G_SCRATCH=$scratch G_HOSTNAME=guest$host_id G_NICS=$nics G_RXE=$rxe"
  echo "G_MTU=$mtu G_DISKS=${#disks[@]} G_MODULES='$modules'"
  for ((i = 0; i < nics; i++)); do echo "G_ADDR_$i=10.99.$i.$host_id/24"; done
} >"$ctl/settings"
{
  printf 'export PATH=%q HOME=%q LANG=%q GUEST_SCRATCH=%q\n' \
    "$PATH" "${HOME:-/root}" C "$scratch"
  for v in $(compgen -e | grep -E '^(LD_|FI_|HWLOC_|RDMAV_|WEFT_)'); do
    printf 'export %s=%q\n' "$v" "${!v}"
  done
  for v in ${envs[@]+"${envs[@]}"}; do
    case $v in *=*) ;; *) v=$v=${!v-} ;; esac
    printf 'export %s=%q\n' "${v%%=*}" "${v#*=}"
  done
  printf 'cd %q || exit 125\nulimit -l unlimited\nexec' "$cwd"
  printf ' %q' "$@"
  echo
} >"$ctl/cmd"

# ------------------------------------------------------- QEMU's command line --
q=(qemu-system-x86_64 -nodefaults -no-user-config -display none -monitor none
  -no-reboot -m "$memory" -cpu "$cpu"
  -kernel "$cache/kernel/vmlinux" -initrd "$cache/initrd")
# One translation thread per virtual CPU, and room for the translated code.
# shellcheck disable=SC2054  # the commas are QEMU's
q+=(-machine pc,usb=off,vmport=off -accel tcg,thread=multi,tb-size=256)

# NUMA: one socket per node, so that no node's CPUs share a package.
if [ "$numa" -gt 1 ]; then
  q+=(-smp "$smp,sockets=$numa,cores=$((smp / numa)),threads=1")
  for ((i = 0; i < numa; i++)); do
    m=$((memory / numa))
    [ $i = 0 ] && m=$((memory - (numa - 1) * m))
    q+=(-object "memory-backend-ram,id=mem$i,size=${m}M"
      -numa "node,nodeid=$i,memdev=mem$i,cpus=$((i * smp / numa))-$(((i + 1) * smp / numa - 1))")
  done
  for ((i = 0; i < numa; i++)); do
    for ((j = i + 1; j < numa; j++)); do q+=(-numa "dist,src=$i,dst=$j,val=21"); done
  done
  # A root bus per node, so that a card's "numa_node" tells where it sits.
  for ((i = 0; i < numa && i < nics; i++)); do
    q+=(-device "pxb,id=bus$i,bus=pci.0,bus_nr=$((64 + 32 * i)),numa_node=$i")
  done
else
  q+=(-smp "$smp")
fi

share() { # tag, folder, options
  q+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap$3"
    -device "virtio-9p-pci,bus=pci.0,fsdev=$1,mount_tag=$1")
}
share root / ,readonly=on
share ctl "$ctl" ""
share scratch "$scratch" ""
share kmod "$cache/kernel/lib/modules/$kver" ,readonly=on

# The console goes to a file; the command's output has its own two ports. QEMU
# writes them into pipes, so that ours may be anything (file, pipe, socket).
mkfifo "$work/out" "$work/err"
# shellcheck disable=SC2054
q+=(-chardev "file,id=console,path=$klog" -serial chardev:console
  -device virtio-serial-pci,bus=pci.0
  -chardev "file,id=out,path=$work/out" -device virtserialport,chardev=out,name=guest.out
  -chardev "file,id=err,path=$work/err" -device virtserialport,chardev=err,name=guest.err)

# No packet ever enters the host's network stack. A card with one link is wired to
# it directly. Any other hangs on a hub of QEMU's own: with no link that is the
# hub's only port, so the card has a carrier and its packets go nowhere; with
# several the hub joins them (it reorders packets under load, the wire does not).
nlinks=()
for l in ${links[@]+"${links[@]}"}; do
  n=0; case $l in *,nic=*) n=${l##*,nic=} ;; esac
  if [[ ! $n =~ ^[0-9]+$ ]] || [ "$n" -ge "$nics" ]; then fail "no card $n for a link"; fi
  nlinks[n]=$((${nlinks[n]:-0} + 1))
done
for ((i = 0; i < nics; i++)); do
  [ "${nlinks[i]:-0}" = 1 ] || q+=(-netdev "hubport,id=net$i,hubid=$i")
done
for ((i = 0; i < ${#links[@]}; i++)); do
  path=${links[i]#*:} n=0
  case $path in *,nic=*) n=${path##*,nic=}; path=${path%,nic=*} ;; esac
  if [ "${links[i]%%:*}" = off ]; then
    for ((k = 0; k < 300; k++)); do [ -S "$path" ] && break; sleep 0.1; done
    [ -S "$path" ] || fail "nobody listens at $path"
  fi
  id=link$i
  [ "${nlinks[n]}" = 1 ] && id=net$n
  q+=(-netdev "stream,id=$id,server=${links[i]%%:*},addr.type=unix,addr.path=$path")
  [ "${nlinks[n]}" = 1 ] || q+=(-netdev "hubport,id=port$i,hubid=$n,netdev=link$i")
done
for ((i = 0; i < nics; i++)); do
  bus=,bus=pci.0; [ "$numa" -gt 1 ] && bus=,bus=bus$((i % numa))
  q+=(-device "$(printf 'virtio-net-pci,netdev=net%d,host_mtu=%d,rx_queue_size=1024,romfile=,mac=52:54:00:99:%02x:%02x%s' \
    "$i" "$mtu" "$i" "$host_id" "$bus")")
done
for ((i = 0; i < ${#disks[@]}; i++)); do
  file=${disks[i]%%,*} opts=${disks[i]#"${disks[i]%%,*}"}
  if [ "$i" = 0 ] && [ -n "$disk_log" ]; then
    : >"$disk_log" || fail "cannot write $disk_log"
    q+=(-drive "if=none,id=disk0,driver=blklogwrites,log-super-update-interval=1$opts,\
file.driver=raw,file.file.driver=file,file.file.filename=$file,\
log.driver=raw,log.file.driver=file,log.file.filename=$disk_log")
  else
    q+=(-drive "file=$file,if=none,id=disk$i,format=raw$opts")
  fi
  q+=(-device "virtio-blk-pci,bus=pci.0,drive=disk$i")
done
# ACPI's tables are interpreted by the emulated processor; on a busy machine the kernel gives up on the card slots' one.
irq=''; [ "$numa" -gt 1 ] || irq='acpi=noirq'
# panic=-1 with -no-reboot ends QEMU at once. The rest only makes booting faster.
q+=(-append "console=ttyS0 quiet loglevel=4 panic=-1 net.ifnames=0 random.trust_cpu=on no_timer_check \
mitigations=off nokaslr cryptomgr.notests audit=0 nowatchdog i8042.noaux i8042.nokbd \
8250.nr_uarts=1 rcupdate.rcu_expedited=1 tsc=reliable $irq")

# ---------------------------------------------------------------------- run --
now() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }   # milliseconds
# Held open here, so that the readers do not wait for a QEMU that failed early;
# they end when this script and QEMU have both let go.
exec 7<>"$work/out" 8<>"$work/err"
cat <"$work/out" 7>&- 8>&- &
copy_pids=$!
cat <"$work/err" >&2 7>&- 8>&- &
copy_pids="$copy_pids $!"

t0=$(now) t_cmd='' end=''
"${q[@]}" </dev/null >"$work/qemu.log" 2>&1 7>&- 8>&- &
qemu_pid=$!
[ -z "$pid_file" ] || echo "$qemu_pid" >"$pid_file"
while kill -0 "$qemu_pid" 2>/dev/null; do
  t=$(now)
  if [ $((t - t0)) -ge $((timeout * 1000)) ]; then end='timeout'; break; fi
  [ -z "$t_cmd" ] && [ -s "$ctl/started" ] && t_cmd=$t
  sleep 0.02
done
[ -n "$end" ] && kill -KILL "$qemu_pid" 2>/dev/null
wait "$qemu_pid" 2>/dev/null
qemu_rc=$?
exec 7>&- 8>&-
qemu_pid=''
# shellcheck disable=SC2086
wait $copy_pids 2>/dev/null
copy_pids=''
t1=$(now)

if [ $verbose = 1 ]; then
  echo "$me: kernel $kver, boot $((${t_cmd:-$t1} - t0))ms, command $((t1 - ${t_cmd:-$t1}))ms" >&2
fi
case $end in
  timeout) echo "$me: no end after ${timeout}s, killed" >&2; tail -n 20 "$klog" >&2; exit 124 ;;
esac
if [ -s "$ctl/status" ]; then
  read -r rc _ <"$ctl/status"
  exit "$rc"
fi
[ "$qemu_rc" != 137 ] || exit 137
echo "$me: the guest ended without a status (QEMU's: $qemu_rc); QEMU and the guest's console said:" >&2
cat "$work/qemu.log" >&2
tail -n 40 "$klog" >&2
exit 125
