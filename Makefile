# The two commands: `make demo` and `make test`. Both install what is missing first (scripts/install.sh).

.PHONY: demo test check install-build install-test nvrtc secgw peers help

help:
	@echo 'make demo    build Godwit and run generated traffic through a chain of functions (5 seconds)'
	@echo 'make test    everything that must hold: format, lints, documentation, all tests'
	@echo 'make check   format, lints and documentation alone'
	@echo 'make peers   what benches are measured against (DPDK, ipsec-mb, C++20 coroutines)'

demo: install-build
	cargo run --release --locked --package godwit -- demo $(DEMO)

# The tests come last: what they say is the last thing to read.
test: install-test nvrtc secgw check
	cargo build --locked --workspace --all-targets
	$${CARGO_TARGET_DIR:-target}/debug/godwit demo --seconds 1
	scripts/test.sh

# Debian 12's: each of them formats otherwise.
CLANG_FORMAT = 14

check: install-test
	cargo fmt --all --check
	@if clang-format --version | grep -q 'version $(CLANG_FORMAT)\.'; then \
		find kernels -name '*.[ch]' -o -name '*.cl' -o -name '*.cu' -o -name '*.cpp' | xargs clang-format --dry-run --Werror; \
	else echo 'check: the format of C is that of clang-format $(CLANG_FORMAT), which is not here: not checked'; fi
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p godwit-io -p godwit-engine -p godwit --features dpdk --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps

install-build:
	@scripts/install.sh build

install-test:
	@scripts/install.sh test

nvrtc: install-test
	@scripts/nvrtc.sh

secgw: install-test
	@scripts/secgw.sh

# Programs that benches are measured against; `godwit bench` finds them in target/peers. Needs libdpdk and libipsec-mb (scripts/install.sh test).
peers: $(patsubst bench/peers/%.c,target/peers/%,$(wildcard bench/peers/*.c)) target/peers/coroutines

# The same loops as written that the bench measures, compiled as it does (bench/build.rs).
LOOPS = $(patsubst %,bench/gopt/%.c,table cuckoo chase ipv6 dial)

target/peers/coroutines: bench/peers/coroutines.cc bench/gopt/table.h $(LOOPS)
	@mkdir -p target/peers/loops
	for loop in $(LOOPS); do $(CC) -O3 -std=c11 -Wall -Wextra -c $$loop -o target/peers/loops/$$(basename $$loop .c).o || exit 1; done
	$(CXX) -O3 -std=c++20 -Wall -Wextra $< target/peers/loops/*.o -o $@

target/peers/ipsec_mb: bench/peers/ipsec_mb.c
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ -lIPSec_MB

target/peers/%: bench/peers/%.c bench/peers/peer.h
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ $$(pkg-config --cflags --libs libdpdk)
