#!/bin/sh
# The main job on real input: the log directory of a stopped Kafka 4.3.1 broker that took 4,000 records.
set -eu

logs=$(mktemp -d)/kafka-logs
python -m fixtures.checkout broker "$logs"
now=1700086400000 # The clock of the day that the records are from, so that the result is the same each time.

run() {
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}

cd "$logs"
run kcompact inspect inventory-0 --now $now
run kcompact plan . --now $now
run kcompact clean . --now $now --dry-run
cp -a . ../one-process
run kcompact clean . --now $now --yes --engine spark
run kcompact verify inventory-0 --now $now
printf '\nThe same in one process leaves the same bytes:\n'
run kcompact clean ../one-process --now $now --yes --engine in-process --quiet
run diff -r . ../one-process
printf '\nThe cleaned log directory is %s\n' "$logs"
