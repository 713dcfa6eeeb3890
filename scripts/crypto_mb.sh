#!/usr/bin/env bash
# Provides Intel crypto_mb (eight RSA, ECDSA and Ed25519 operations at once) where the distribution
# does not package it, as on Debian 12. The script fetches the package of Debian 13 with apt, which
# checks its signatures, and compares its SHA-256. It then copies the library to target/crypto_mb,
# where Godwit finds it. The system's apt lists and settings stay unchanged.
#
#   scripts/crypto_mb.sh            copies to target/crypto_mb
#   scripts/crypto_mb.sh FOLDER     copies to FOLDER, such as /usr/local/lib (then run ldconfig)
set -euo pipefail
cd "$(dirname "$0")/.."

package=libcrypto-mb11
version=2021.12.1-1
sha256=ca3d60b7eb5ba9ce200ff1ee47ac52b903a4b14753ee379ea42a1524ace31da7
library=libcrypto_mb.so.11
folder=${1:-${CARGO_TARGET_DIR:-target}/crypto_mb}

if [ "$(uname -m)" != x86_64 ]; then
    echo "crypto_mb: needs x86-64 with AVX-512 IFMA; Godwit signs one job at a time on this machine"
    exit 0
fi
if [ $# -eq 0 ] && ldconfig -p | grep -q "$library"; then
    exit 0
fi
[ -e "$folder/$library" ] && exit 0

# The repository of this machine's base packages, with the suite of Debian 13.
uri=$(apt-cache madison libc6 2>/dev/null | awk -F ' *[|] *' '{ split($3, at, " "); print at[1]; exit }')
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -z "$uri" ] || [ ! -e "$keyring" ]; then
    echo "crypto_mb: no Debian repository or keyring was found: install libcrypto_mb.so.11 by hand, or sign without lanes" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb [signed-by=$keyring] $uri trixie main" >"$work/sources.list"
private=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
if ! { apt-get -qq "${private[@]}" update && cd "$work" && apt-get -qq "${private[@]}" download "$package=$version"; } >"$work/log" 2>&1; then
    echo "crypto_mb: apt could not fetch $package $version: $(tail -n 1 "$work/log")" >&2
    exit 1
fi
cd "$OLDPWD"
echo "$sha256  $(echo "$work"/*.deb)" | sha256sum --check --quiet
dpkg-deb -x "$work"/*.deb "$work/files"
mkdir -p "$folder"
install -m 644 "$work/files/usr/lib/x86_64-linux-gnu/$library" "$folder/$library"
install -m 644 "$work/files/usr/share/doc/$package/copyright" "$folder/$library.copyright"
echo "crypto_mb: $library of $package $version is in $folder"
