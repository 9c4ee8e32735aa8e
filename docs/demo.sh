#!/bin/sh
# The main job on real input: a copy of a log directory that a Kafka 4.3.1 broker's code wrote, cleaned by kcompact.
set -eu

logs=$(mktemp -d)/kafka-logs
python -m fixtures.checkout mixed "$logs"
now=1700004668341 # The clock of the day that the log is from, so that the result is the same each time.
config="--config events:cleanup.policy=compact --config events:segment.bytes=16384"

run() {
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}

cd "$logs"
# shellcheck disable=SC2086
{
    run kcompact inspect events-0 $config --now $now
    run kcompact plan . $config --now $now
    run kcompact clean . $config --now $now --dry-run
    run kcompact clean . $config --now $now --yes
    run kcompact inspect events-0 $config --now $now --verify
}
printf '\nThe cleaned log directory is %s\n' "$logs"
