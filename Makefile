# The two commands: `make demo` and `make test`. Both install what is missing first (scripts/install.sh).

.PHONY: demo test check install-build install-test nvrtc peers help

help:
	@echo 'make demo    build Godwit and run generated traffic through a chain of functions (5 seconds)'
	@echo 'make test    everything that must hold: format, lints, documentation, all tests'
	@echo 'make check   format, lints and documentation alone'
	@echo 'make peers   what benches are measured against (DPDK, ipsec-mb)'

demo: install-build
	cargo run --release --locked --package godwit -- demo $(DEMO)

# The tests come last: what they say is the last thing to read.
test: install-test nvrtc check
	cargo build --locked --workspace --all-targets
	$${CARGO_TARGET_DIR:-target}/debug/godwit demo --seconds 1
	scripts/test.sh

check: install-test
	cargo fmt --all --check
	find kernels -name '*.[ch]' -o -name '*.cl' -o -name '*.cu' | xargs clang-format --dry-run --Werror
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps

install-build:
	@scripts/install.sh build

install-test:
	@scripts/install.sh test

nvrtc: install-test
	@scripts/nvrtc.sh

# Programs that benches are measured against; `godwit bench` finds them in target/peers. Needs libdpdk and libipsec-mb (scripts/install.sh test).
peers: $(patsubst bench/peers/%.c,target/peers/%,$(wildcard bench/peers/*.c))

target/peers/ipsec_mb: bench/peers/ipsec_mb.c
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ -lIPSec_MB

target/peers/%: bench/peers/%.c
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ $$(pkg-config --cflags --libs libdpdk)
