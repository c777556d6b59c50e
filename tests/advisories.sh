#!/bin/sh
# What is known against the crates (rustsec.org): an advisory fails this. Where the data base
# cannot be fetched, the copy of an earlier day is asked; where there is none, that is said, and
# is no failure: a machine without GitHub is to build as well.
set -eu

# cargo-deny's own place.
copies=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs

if why=$(timeout 300 cargo deny --locked fetch db 2>&1); then
    exec cargo deny --locked --offline check advisories
fi
printf '%s\n' "$why" | tail -n 3 >&2
for copy in "$copies"/*/crates; do
    if [ -d "$copy" ]; then
        echo "advisories: the data base cannot be fetched, so its copy in $copies is asked"
        exec cargo deny --locked --offline check advisories
    fi
done
echo 'advisories: NOT CHECKED: the data base (https://github.com/rustsec/advisory-db) cannot be fetched, and there is no copy of it'
