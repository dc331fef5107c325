#!/bin/sh
# A daemon of a pretended machine: waits while the machine is off; with "own" in its own /sys/class and with its own boot id.
# machine.sh PLACE shared|own COMMAND...
place=$1 view=$2
shift 2
while [ -e "$place/off" ]; do sleep 0.2; done
[ "$view" = shared ] && exec "$@"
# shellcheck disable=SC2016 # the inner shell expands it: places may hold any character
exec unshare --mount sh -c '
mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id &&
mount --bind "$0/sysclass" /sys/class && exec "$@"' "$place" "$@"
