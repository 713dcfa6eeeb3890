# The two main commands are `make demo` and `make test`. Each first installs missing packages
# (scripts/install.sh).

.PHONY: demo test check deny fuzz fuzz-check soak install-build install-test nvrtc secgw crypto_mb peers help

help:
	@echo 'make demo    build Godwit and run generated traffic through a chain of functions (5 seconds)'
	@echo 'make test    run all checks and all tests'
	@echo 'make check   check format, lints, prose, dependencies and documentation, without the tests'
	@echo 'make fuzz    run each fuzz target for a minute, or for SECONDS=N'
	@echo 'make soak    run a router for an hour, or for SECONDS=N, under load and changes'
	@echo 'make peers   build the programs that benchmarks compare with (DPDK, ipsec-mb, OpenSSL, C++20 coroutines)'

demo: install-build
	cargo run --release --locked --package godwit -- demo $(DEMO)

# The tests come last, so that the output ends with their result.
test: install-test nvrtc secgw crypto_mb check
	cargo build --locked --workspace --all-targets
	$${CARGO_TARGET_DIR:-target}/debug/godwit demo --seconds 1
	scripts/test.sh

# Version of clang-format (Debian 12). Other versions format differently.
CLANG_FORMAT = 14

check: install-test
	cargo fmt --all --check
	@if clang-format --version | grep -q 'version $(CLANG_FORMAT)\.'; then \
		find kernels -name '*.[ch]' -o -name '*.cl' -o -name '*.cu' -o -name '*.cpp' | xargs clang-format --dry-run --Werror; \
	else echo 'skipped: format of C (clang-format $(CLANG_FORMAT) is not installed)'; fi
	cargo xtask tidy
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p godwit-io -p godwit-engine -p godwit --features dpdk --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps
	cargo xtask msrv
	@$(MAKE) --no-print-directory fuzz-check deny

fuzz:
	@scripts/fuzz.sh --seconds $(or $(SECONDS),60)

soak:
	cargo build --release --locked --package godwit
	@scripts/soak.py --seconds $(or $(SECONDS),3600) --godwit $${CARGO_TARGET_DIR:-target}/release/godwit

# The fuzz targets are a separate workspace that shares the build folder.
fuzz-check:
	cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target}

deny: install-test
	@scripts/deny.sh

install-build:
	@scripts/install.sh build

install-test:
	@scripts/install.sh test

nvrtc: install-test
	@scripts/nvrtc.sh

secgw: install-test
	@scripts/secgw.sh

crypto_mb: install-test
	@scripts/crypto_mb.sh

# Programs that benchmarks compare with; `godwit bench` finds them in target/peers.
# They need libdpdk and libipsec-mb (scripts/install.sh test); vectorscan needs libvectorscan-dev,
# and openssl needs libssl-dev.
peers: $(patsubst bench/peers/%.c,target/peers/%,$(wildcard bench/peers/*.c)) target/peers/coroutines

# The unmodified loops that the bench measures, compiled with the options of bench/build.rs.
LOOPS = $(patsubst %,bench/gopt/%.c,table cuckoo chase ipv6 dial)

target/peers/coroutines: bench/peers/coroutines.cc bench/gopt/table.h $(LOOPS)
	@mkdir -p target/peers/loops
	for loop in $(LOOPS); do $(CC) -O3 -std=c11 -Wall -Wextra -c $$loop -o target/peers/loops/$$(basename $$loop .c).o || exit 1; done
	$(CXX) -O3 -std=c++20 -Wall -Wextra $< target/peers/loops/*.o -o $@

target/peers/ipsec_mb: bench/peers/ipsec_mb.c
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ -lIPSec_MB

target/peers/crypto_mb: bench/peers/crypto_mb.c
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@

target/peers/openssl: bench/peers/openssl.c
	@mkdir -p target/peers
	@pkg-config --exists libcrypto || { echo 'peer openssl is left out: libssl-dev is not installed'; exit 0; }; \
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ $$(pkg-config --cflags --libs libcrypto)

target/peers/vectorscan: bench/peers/vectorscan.c
	@mkdir -p target/peers
	@pkg-config --exists libhs || { echo 'peer vectorscan is left out: libvectorscan-dev is not installed'; exit 0; }; \
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ $$(pkg-config --cflags --libs libhs)

target/peers/%: bench/peers/%.c bench/peers/peer.h
	@mkdir -p target/peers
	$(CC) -O3 -march=native -Wall -Wextra $< -o $@ $$(pkg-config --cflags --libs libdpdk)
