#!/bin/sh
# Install the services that tests and demo run for real, or say loudly what will be missing and why.
# With arguments: these packages only. With CI=true a missing one is an error.
set -eu

NEEDED="munged:munge slurmctld:slurmctld slurmd:slurmd slurmrestd:slurmrestd scontrol:slurm-client systemd-analyze:systemd groff:groff-base
 ip:iproute2 tc:iproute2 iptables:iptables
 chromium:chromium chromedriver:chromium-driver pg_ctl:postgresql prometheus-alertmanager:prometheus-alertmanager amtool:prometheus-alertmanager prometheus:prometheus promtool:prometheus"
PATH="$PATH:/usr/sbin:/sbin"
ONLY="$*"

with_postgresql() { # Debian keeps the server's programs out of the way, a directory a version
    for directory in /usr/lib/postgresql/*/bin; do PATH="$PATH:$directory"; done
}

missing_packages() {
    with_postgresql
    for pair in $NEEDED; do
        case " ${ONLY:-${pair##*:}} " in *" ${pair##*:} "*) ;; *) continue ;; esac
        command -v "${pair%%:*}" >/dev/null 2>&1 || printf '%s ' "${pair##*:}"
    done
}

missing=$(missing_packages)
[ -n "$missing" ] || exit 0

why=""
if [ "$(id -u)" -ne 0 ]; then
    why="not root"
elif ! command -v apt-get >/dev/null 2>&1; then
    why="not Debian (no apt-get)"
else
    echo "installing Debian packages: $missing"
    # The packages' own services must not start: tests bring up private ones.
    policy=/usr/sbin/policy-rc.d
    ours=""
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        ours=yes
    fi
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of package names
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing; } >"$log" 2>&1; then
        why="apt-get failed: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
    [ -z "$ours" ] || rm -f "$policy"
    missing=$(missing_packages)
    [ -n "$missing" ] || exit 0
    why=${why:-"installed, but the programs are still not found"}
fi

cat >&2 <<MESSAGE
************************************************************************
NOT AVAILABLE: $missing
because:       $why
skipped:       every test that needs them; without Slurm the demo uses its local scheduler
to have them:  apt-get install $missing (as root)
************************************************************************
MESSAGE
[ "${CI:-}" != true ] || exit 1
