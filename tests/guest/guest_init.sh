#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Process 1 of a guest of run_guest.sh.
#
# It runs from the initramfs under busybox, builds the guest's root file system
# out of what the host shares, brings up the devices that were asked for, runs
# the one command, stores its exit status and switches the machine off.
#
# What the host hands over (see run_guest.sh):
#   9p tag "root"     the host's file system, read-only
#   9p tag "ctl"      a private folder: settings (shell), cmd (shell); the guest
#                     writes started and status there
#   9p tag "scratch"  the one folder the guest may write to on the host
#   9p tag "kmod"     the module tree that belongs to the booted kernel
#   two virtio serial ports: the command's stdout and stderr

export PATH=/bin:/sbin:/usr/bin:/usr/sbin
R=/newroot

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev

# Writing to the kernel log is the only way to be heard before the serial ports
# are there. Level 3 (error), so that it also shows under "quiet".
say() { echo "<3>guest_init: $*" >/dev/kmsg; }
die() { say "FATAL: $*"; sync; poweroff -f; }

# --- modules needed to reach the shared folders, in dependency order ---------
while read -r ko; do
  insmod "/modules/$ko" || die "insmod $ko"
done </modules/order

# --- root = the host's tree (read-only) under a RAM layer (writable) ---------
# cache=loose is safe for the host's tree as long as the host does not change
# the files while the guest reads them; it makes program start several times
# faster, because directory look-ups are not sent again and again.
P9=trans=virtio,version=9p2000.L
mkdir -p /lower /ram "$R" /ctl
mount -t 9p -o "ro,$P9,msize=524288,cache=loose" root /lower || die "no root share"
mount -t 9p -o "$P9,msize=65536,cache=none" ctl /ctl || die "no ctl share"
# shellcheck disable=SC1091
. /ctl/settings
mount -t tmpfs -o "size=${G_RAMLAYER:-50%}" ram /ram
mkdir -p /ram/up /ram/work
mount -t overlay -o lowerdir=/lower,upperdir=/ram/up,workdir=/ram/work overlay "$R" ||
  die "no overlay"

mount -t proc proc "$R/proc"
mount -t sysfs sysfs "$R/sys"
mount -t devtmpfs dev "$R/dev"
mkdir -p "$R/dev/pts" "$R/dev/shm" "$R/run"
mount -t devpts devpts "$R/dev/pts"
mount -t tmpfs shm "$R/dev/shm"
mount -t tmpfs run "$R/run"
mkdir -p "$R/run/lock" "$R/run/guest"
for l in "fd /proc/self/fd" "stdin /proc/self/fd/0" \
  "stdout /proc/self/fd/1" "stderr /proc/self/fd/2"; do
  # shellcheck disable=SC2086
  set -- $l
  [ -e "$R/dev/$1" ] || ln -s "$2" "$R/dev/$1"
done

# The scratch folder appears under the path it has on the host. cache=mmap, so
# that programs may map files of it; it is written through.
mkdir -p "$R$G_SCRATCH"
mount -t 9p -o "$P9,msize=524288,cache=mmap" scratch "$R$G_SCRATCH" ||
  die "no scratch share"

# The other kernel modules: the host's tree has none for this kernel.
mkdir -p "$R/lib/modules/$(uname -r)"
mount -t 9p -o "ro,$P9,msize=524288,cache=loose" kmod "$R/lib/modules/$(uname -r)" ||
  die "no module share"
# Full paths only: by a bare name, busybox would run its own applet instead.
in_root() { chroot "$R" "$@"; }

# The kernel loads modules on demand by running a program in *this* root, not in
# the command's: send it over there. (mount -t ext4, crc32 for rxe, dm targets ...)
printf '#!/bin/sh\nexec /bin/chroot %s /sbin/modprobe "$@"\n' "$R" >/kmodprobe
chmod +x /kmodprobe
echo /kmodprobe >/proc/sys/kernel/modprobe

for m in $G_MODULES; do
  in_root /sbin/modprobe "$m" || die "modprobe $m"
done

# --- network -----------------------------------------------------------------
hostname "$G_HOSTNAME"
ip link set lo up
[ "$G_NICS" -gt 0 ] && { in_root /sbin/modprobe virtio_net || die "modprobe virtio_net"; }
# The kernel numbers the cards as it finds their buses. Name each after the index
# that run_guest.sh put into its address, so that eth0 is always the first asked for.
for n in /sys/class/net/eth*; do
  [ -e "$n" ] || continue
  idx=$(cut -d: -f5 <"$n/address")
  ip link set "${n##*/}" name "new$((0x$idx))" || die "cannot rename ${n##*/}"
done
# The default queue (fq_codel) drops what has waited for some milliseconds. On an
# emulated machine everything has, and rxe pays for each loss with a time-out.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
i=0
while [ "$i" -lt "$G_NICS" ]; do
  addr=''
  eval "addr=\$G_ADDR_$i"
  ip link set "new$i" name "eth$i" || die "no card $i"
  in_root /sbin/ip link set "eth$i" mtu "$G_MTU" txqueuelen 4096 up || die "eth$i did not come up"
  ip addr add "$addr" dev "eth$i" || die "eth$i address"
  i=$((i + 1))
done

# --- soft-RoCE: one rxe device on each network card --------------------------
if [ "$G_RXE" = 1 ]; then
  for m in rdma_rxe ib_uverbs rdma_ucm; do
    in_root /sbin/modprobe "$m" || die "modprobe $m"
  done
  i=0
  while [ "$i" -lt "$G_NICS" ]; do
    in_root /usr/bin/rdma link add "rxe$i" type rxe netdev "eth$i" || die "rxe$i"
    i=$((i + 1))
  done
fi

# --- disks -------------------------------------------------------------------
if [ "$G_DISKS" -gt 0 ]; then
  in_root /sbin/modprobe virtio_blk || die "modprobe virtio_blk"
  n=0
  # shellcheck disable=SC2012
  until [ "$(ls -d /sys/block/vd* 2>/dev/null | wc -l)" -ge "$G_DISKS" ]; do
    n=$((n + 1)); [ "$n" -gt 100 ] && die "not all disks appeared"
    sleep 0.1
  done
fi

# --- the command -------------------------------------------------------------
# A virtio serial port can be opened once only, so programs that open
# /dev/stdout again would fail on it: give them pipes, and let cat copy.
port() { grep -l "^$1\$" /sys/class/virtio-ports/*/name | head -n1 | xargs dirname | xargs basename; }
out=/dev/$(port guest.out)
err=/dev/$(port guest.err)
mkfifo /out /err
cat /out >"$out" & cat_out=$!
cat /err >"$err" & cat_err=$!

cp /ctl/cmd "$R/run/guest/cmd"
read -r up _ </proc/uptime
echo "$up" >/ctl/started
in_root /bin/bash /run/guest/cmd </dev/null >/out 2>/err
rc=$?
# All output has to be with the host before the switch goes off; a process that
# the command left behind may hold the pipes open for ever, so bounded.
n=0
while { [ -d "/proc/$cat_out" ] || [ -d "/proc/$cat_err" ]; } && [ "$n" -lt 40 ]; do
  n=$((n + 1)); sleep 0.05
done
read -r up2 _ </proc/uptime
echo "$rc $up $up2" >/ctl/status.new
mv /ctl/status.new /ctl/status
# File systems the command left mounted are its own to unmount: -n, no sync
# here, since one could hide that the command lacks it.
poweroff -n -f
