#!/bin/sh
# Slurm's Prolog: checks whether a job may start on this node. Setup: docs/how-to/preflight-gate.md.
#
#   healthd calls the node unfit, or a test proves it bad  -> 1: Slurm drains the node and puts the job back into the queue
#   everything else, also no answer and no conclusion      -> 0: the job begins, and a line in the log says why
#
# It changes nothing in Slurm and asks slurmctld nothing: a prolog runs on every node at once. What a test found is told to
# healthd, and so to the remediator, which tests the node again and brings it back.
set -u
cd / || exit 0 # Python looks for modules where it stands: nobody but root may write there

BIN=/opt/gpu-healthd/bin
SOCKET=/run/gpu-healthd/healthd.sock
PREFLIGHT="--level gate" # nothing: healthd alone is asked
SECONDS_MAX=90           # less than Slurm's own PrologTimeout and BatchStartTimeout
LOG=""                   # a file; empty: syslog

conf=${GPU_HEALTHD_PROLOG_CONF:-/etc/gpu-healthd/prolog.conf}
# shellcheck source=/dev/null
[ -r "$conf" ] && . "$conf"

node=${SLURMD_NODENAME:-$(hostname)}
export HEALTHD_NODE="$node"

say() {
    line="node $node, job ${SLURM_JOB_ID:-none}: $*"
    if [ -n "$LOG" ]; then
        echo "$line" >>"$LOG"
    else
        logger -t gpu-healthd-prolog -- "$line" 2>/dev/null || echo "gpu-healthd-prolog: $line" >&2
    fi
}

last_line() { tail -n 1 "$1" | cut -c 1-400; }

said=$(timeout -k 2 10 "$BIN/healthctl" node check --type nagios --socket "$SOCKET" 2>&1)
code=$?
said=${said%% | age=*}
answers=yes
case $code-$said in
0-* | 1-*"WARNING - "*) ;;
2-*"CRITICAL - "*) # both: a missing, broken or slow program must not drain a node
    say "refused, healthd calls it unfit: ${said##*CRITICAL - }"
    exit 1
    ;;
3-*"UNKNOWN - "*)
    answers=no
    say "healthd says nothing of it: ${said##*UNKNOWN - }"
    ;;
*)
    answers=no
    say "healthd could not be asked, healthctl ended with $code: $(echo "$said" | tail -n 1 | cut -c 1-400)"
    ;;
esac

[ -n "$PREFLIGHT" ] || exit 0

place=$(mktemp -d) || {
    say "not tested: no room for a preflight's output"
    exit 0
}
trap 'rm -rf "$place"' EXIT

# shellcheck disable=SC2086 # its words are options
timeout -k 5 "$SECONDS_MAX" "$BIN/python" -m preflight run $PREFLIGHT -o json --tell --socket "$SOCKET" \
    >"$place/out" 2>"$place/err" </dev/null
code=$?
read_out='import json, sys
sys.stdout.reconfigure(errors="replace")
said = json.load(sys.stdin.buffer)
print(said["verdict"], said["reason"][:400])'
said=$("$BIN/python" -c "$read_out" <"$place/out" 2>/dev/null)
verdict=${said%% *}
reason=${said#"$verdict"}
reason=${reason# }

# Where healthd does not answer at all, that is said above, and again only if a failure is lost by it.
untold=$(grep -m 1 -E 'no healthd to tell at|does not take it:' "$place/err" | cut -c 1-400)
if [ -n "$untold" ] && [ "$answers-$verdict" != no-pass ]; then
    say "healthd was not told${verdict:+ of the $verdict}: $untold"
fi

case $code-$verdict in
0-*) exit 0 ;;
1-fail) # both, and the whole document: a full disk or a missing library must not drain a node
    say "refused, its preflight failed: ${reason:-$(last_line "$place/err")}"
    exit 1
    ;;
2-*) say "begins untested, something is to be put right: ${reason:-$(last_line "$place/err")}" ;;
3-*) say "begins without a verdict: ${reason:-$(last_line "$place/err")}" ;;
124-* | 137-*) say "begins without a verdict: the preflight did not end within $SECONDS_MAX s" ;;
*) say "begins untested, the preflight ended with $code: $(last_line "$place/err")" ;;
esac
exit 0
