#!/usr/bin/env bash
# Downloads NVIDIA's run-time compiler (NVRTC) into target/nvrtc, where the kernel tests look for
# it. NVRTC needs no GPU. If the download fails, the script prints one line and succeeds. The tests
# then report the skipped CUDA compilation.
set -euo pipefail
cd "$(dirname "$0")/.."

# Releases before 13.5 find their second library only through LD_LIBRARY_PATH.
version=13.5.37
# Wheels for x86-64 and AArch64. pip refuses any other file, because the tests load what it
# contains.
hashes=(
    --hash=sha256:86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc
    --hash=sha256:36e4fa2a8ada293f5693d308e531c196ab6f91cf7a0ff479bf96a537d43a6096
)
folder=target/nvrtc
done=$folder/$version
[ -e "$done" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "nvidia-cuda-nvrtc==$version ${hashes[*]}" >"$work/requirements.txt"
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --retries 1 --no-deps --only-binary :all: \
        --require-hashes --dest "$work" --requirement "$work/requirements.txt"; } >"$work/log" 2>&1; then
    echo "nvrtc: the download failed ($(tail -n 1 "$work/log")): the tests do not compile kernels for CUDA"
    exit 0
fi
rm -rf "$folder"
mkdir -p "$folder"
python3 -m zipfile -e "$work"/*.whl "$folder"
touch "$done"
echo "nvrtc: $version is in $folder"
