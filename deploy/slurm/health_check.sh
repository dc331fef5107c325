#!/bin/sh
# Slurm's HealthCheckProgram and Epilog, for a site where no remediator drains nodes and brings them back.
#
#   healthd calls the node unfit  -> HealthCheckProgram: drained, with the reason, unless it is already drained
#                                    Epilog: 1, and Slurm drains it
#   everything else               -> 0, also no answer; a line in the log if healthd did not answer
#
# A node returns when an operator resumes it. Only an unfit node queries slurmctld.
set -u
cd / || exit 0 # Python looks for modules where it stands: nobody but root may write there

BIN=/opt/gpu-healthd/bin
SOCKET=/run/gpu-healthd/healthd.sock
LOG="" # a file; empty: syslog

conf=${GPU_HEALTHD_PROLOG_CONF:-/etc/gpu-healthd/prolog.conf}
# shellcheck source=/dev/null
[ -r "$conf" ] && . "$conf"

node=${SLURMD_NODENAME:-$(hostname -s)}

say() {
    line="node $node: $*"
    if [ -n "$LOG" ]; then
        echo "$line" >>"$LOG"
    else
        logger -t gpu-healthd-check -- "$line" 2>/dev/null || echo "gpu-healthd-check: $line" >&2
    fi
}

said=$(timeout -k 2 10 "$BIN/healthctl" node check --type nagios --socket "$SOCKET" 2>&1)
code=$?
said=${said%% | age=*}
case $code-$said in
0-* | 1-*"WARNING - "* | 3-*"UNKNOWN - "*) exit 0 ;;
2-*"CRITICAL - "*) reason=${said##*CRITICAL - } ;; # both: a missing, broken or slow program must not drain a node
*)
    say "healthd could not be asked, healthctl ended with $code: $(echo "$said" | tail -n 1 | cut -c 1-400)"
    exit 0
    ;;
esac

if [ -n "${SLURM_JOB_ID:-}" ]; then # an epilog
    say "unfit after job $SLURM_JOB_ID: $reason"
    exit 1
fi

state=$(timeout -k 2 10 scontrol --oneliner show node "$node" 2>&1) || {
    say "unfit, and slurmctld could not be asked: $(echo "$state" | tail -n 1 | cut -c 1-400)"
    exit 0
}
state=${state#* State=}
case ${state%% *} in
*DRAIN*) exit 0 ;; # whose drain it is, and its reason, stay as they are
esac
# Words of a kernel log: nothing in them may end the reason.
reason=$(printf '%s' "$reason" | tr -c '[:alnum:] .,:;()/_-' ' ' | tr -s ' ' | cut -c 1-200)
if answer=$(timeout -k 2 10 scontrol update "NodeName=$node" State=DRAIN "Reason=healthd: $reason" 2>&1); then
    say "drained: $reason"
else
    say "unfit, and could not be drained: $(echo "$answer" | tail -n 1 | cut -c 1-400)"
fi
exit 0
