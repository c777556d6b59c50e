# Everything a fresh Debian or Ubuntu machine needs is installed by `make setup`,
# which the other targets call; what is there is left alone.

# One place and one kind of binary, whatever the environment or ~/.cargo has for other
# projects: without these, the binary would be elsewhere, or not static. Who wants that
# calls cargo.
export CARGO_TARGET_DIR := $(CURDIR)/target
# This machine's architecture. `make build ARCHITECTURE=aarch64` builds for another one; the
# names that Debian and Docker have for them do as well.
HERE := $(shell uname -m)
ARCHITECTURE := $(HERE)
override ARCHITECTURE := $(or $(patsubst amd64,x86_64,$(patsubst arm64,aarch64,$(ARCHITECTURE))),$(HERE))
export CARGO_BUILD_TARGET := $(ARCHITECTURE)-unknown-linux-gnu
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
# Where `make setup` may have put it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Where `make setup` has put a libclang of its own, rdma-sys is built with that one. It is
# looked for when a recipe runs, after the set-up.
LIBCLANG := target/libclang
CARGO_ENVIRONMENT = $(shell test ! -e $(LIBCLANG)/libclang.so || echo env LIBCLANG_PATH=$(CURDIR)/$(LIBCLANG) \
  BINDGEN_EXTRA_CLANG_ARGS=-I$$(gcc -print-file-name=include))
CARGO = $(CARGO_ENVIRONMENT) sh tests/cross.sh $(ARCHITECTURE) cargo

# The same bytes, wherever the clone and the crates are: rustc writes the paths of the sources into the
# program, for panics. The release alone gets this, so that it does not rebuild the tests.
REMAP := --config 'target.$(CARGO_BUILD_TARGET).rustflags=["--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo", "--remap-path-prefix=$(CURDIR)=/rdma-init"]'

TARGET := target/$(CARGO_BUILD_TARGET)/release/rdma-init
# What runs a program of that architecture here: nothing, or QEMU.
RUN := $(if $(filter $(ARCHITECTURE),$(HERE)),,qemu-$(ARCHITECTURE)-static)
ARCHITECTURES := x86_64 aarch64
LARGEST := 8388608
DENY_VERSION := 0.20.2

.PHONY: all setup build build-all image demo test test-arm64 test-quick test-setup test-torch test-ray test-admission test-nixl test-dist soak dist follow manual check bench bench-kept order fuzz fuzz-corpus clean

all: build

setup:
	@sh tests/setup.sh build $(ARCHITECTURE)

# The binary, and the proof that it is what it says: static, small, and able to
# run with libibverbs and the providers inside.
build: setup
	$(CARGO) build --release --locked $(REMAP)
	@file $(TARGET) | grep -q 'statically linked' || { echo '$(TARGET) is not static'; exit 1; }
	@size=$$(stat -c %s $(TARGET)); echo "$(TARGET): $$size bytes, static"; \
	  test $$size -le $(LARGEST) || { echo "more than $(LARGEST) bytes"; exit 1; }
	@$(RUN) $(TARGET) --version
	@$(RUN) $(TARGET) verbs-probe >/dev/null

# The binaries for all architectures.
build-all:
	@for architecture in $(ARCHITECTURES); do $(MAKE) build ARCHITECTURE=$$architecture || exit; done

# One image index for all architectures, of these binaries. IMAGE=docker://REGISTRY/NAME puts it into a
# registry.
IMAGE := oci-archive:target/rdma-init.tar
image: build-all
	@sh tests/setup.sh image
	@sh docker/image.sh $(IMAGE)

# The files of a release, in target/dist: archives, packages, the image, checksums, and what they contain.
dist:
	@for architecture in $(ARCHITECTURES); do $(MAKE) build ARCHITECTURE=$$architecture || exit; done
	@sh tests/setup.sh image
	@sh docker/dist/dist.sh $(ARCHITECTURES)

# Two builds on this machine have the same bytes; and the package of `make dist` installs and goes without a
# trace in fresh roots of four distributions. Needs root, and the time of two builds for each architecture.
test-dist: dist
	@sh tests/setup.sh dist
	sh tests/dist/install.sh
	sh tests/dist/reproduce.sh $(ARCHITECTURES)

# The newest releases of the libraries that are modelled, beside the model: some hundreds of megabytes.
follow: setup
	@sh tests/cross.sh $(ARCHITECTURE) sh tests/follow/follow.sh

# The main job on a host with nine RoCE HCAs, captured: what is decided, and a
# command that prints what it gets. Then the real thing on this machine, as PID 1, which
# leaves nothing behind on it.
demo: build
	@echo; echo '$$ rdma-init plan --facts demo:cce-roce'
	@$(TARGET) plan --facts demo:cce-roce
	@echo; echo '$$ eval "$$(rdma-init env --facts demo:cce-roce)"; env | grep ^NCCL_'
	@eval "$$($(TARGET) env --facts demo:cce-roce)"; env | grep ^NCCL_ | sort
	@echo; echo '$$ NCCL_IB_HCA==mlx5_77 NCCL_RDMA_INIT=1:another-node:... rdma-init exec -- env      (a copy of another node'"'"'s value)'
	@NCCL_IB_HCA==mlx5_77 NCCL_RDMA_INIT=1:another-node:IB_HCA=71f75da5 RDMA_INIT_STATE_DIR= \
	  $(TARGET) exec -- env | grep ^NCCL_ || echo 'the copy is gone; a node with HCAs gets its own value'
	@echo; echo '$$ rdma-init -- sh -c ...      (as PID 1 of a namespace, where this machine allows one)'
	@run='unshare --user --map-root-user --pid --fork --mount-proc'; \
	  $$run true 2>/dev/null || run='unshare --pid --fork --mount-proc'; \
	  $$run true 2>/dev/null || run=; \
	  RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false \
	  $$run $(TARGET) -- sh -c 'echo "this shell is process $$$$, its parent is process $$PPID"'

test-setup:
	@sh tests/setup.sh test

# The tests drive the binary that is delivered. They themselves are of the debug profile, which is
# built in a tenth of the time.
TEST = RDMA_INIT_TEST_BINARY=$(CURDIR)/$(TARGET) $(CARGO) test --locked

# The last line runs what other inits promise against one of them.
test: build test-setup
	$(TEST) --no-fail-fast
	RDMA_INIT_TEST_PEER=tini $(TEST) --test peers

# The suites with the program for arm64, as far as QEMU can run them, on a machine of another
# architecture. SUITES chooses some. On an arm64 machine, `make test` runs all of them.
test-arm64:
	@$(MAKE) build ARCHITECTURE=aarch64
	@test $(HERE) = aarch64 || sh tests/arm64/setup.sh
	@test $(HERE) = aarch64 || sh tests/arm64/run.sh $(SUITES)

# What a change of the code breaks first; needs no Docker and no virtual machine, and
# fetches nothing. The debug profile, because it is built in seconds, and the release in minutes.
# Many of the tests only wait, so more of them run at once than there are processors.
test-quick: setup
	$(CARGO) test --locked --lib --test golden --test cli --test docs -- --test-threads 8

# The init of torchrun, and a job over Gloo; needs root. PyTorch goes to target/torch.
test-torch: build
	@sh tests/launchers/torch.sh >/dev/null
	$(TEST) --test launchers -- --ignored --test-threads 1 --skip ray::

# Ray on nodes that are containers, with the newest NCCL; needs a Docker engine. Ray, 80 MB to fetch, goes
# to target/ray.
NEWEST_NCCL = RDMA_INIT_TEST_NCCL=$$(tail -n 1 tests/nccl/versions)
test-ray: build
	@sh tests/launchers/ray.sh >/dev/null
	@$(NEWEST_NCCL) sh tests/nccl/setup.sh
	$(NEWEST_NCCL) $(TEST) --test launchers -- --ignored --test-threads 1 ray::

# The policy for Kubernetes, judged by the code of its API server. Go and that source, 3 GB, go to target/admission.
test-admission: build
	@sh tests/examples/admission/setup.sh >/dev/null
	$(TEST) --test examples -- --ignored admission::

# NIXL on the UCX of its wheel, in a virtual machine; 90 MB to fetch. NIXL goes to target/nixl.
test-nixl: build
	@sh tests/vm/nixl.sh >/dev/null
	$(TEST) --test vm -- --ignored nixl

# Starts and stops with signals at any moment, for as long as SOAK says; needs root.
SOAK := 1h
soak: build
	RDMA_INIT_TEST_SOAK=$(SOAK) $(TEST) --test init -- --ignored --nocapture soak::

# Man pages, and completions for bash, zsh and fish.
manual: build
	@sh tests/manual.sh $(TARGET) target/manual
	@ls target/manual

# Advisories are checked where their data base can be had.
check: setup
	cargo fmt --check
	$(CARGO) clippy --release --locked --all-targets -- -D warnings
	@cargo deny --version 2>/dev/null | grep -q ' $(DENY_VERSION)$$' || \
	  cargo install --locked --debug --target-dir target/tools cargo-deny --version $(DENY_VERSION)
	cargo deny --locked check licenses bans sources
	@sh tests/advisories.sh

# What PID 1 costs beside tini, dumb-init and catatonit, and beside a script that does its work in shell; needs
# root. And what compare takes for ten thousand reports, what the env plugin costs a
# process, how the preflight grows with the nodes, and what node 0's watcher costs beside a thousand others; BENCHES
# chooses some of them.
BENCHES := pid1 compare env_plugin preflight judge watchers
bench: build
	@sh tests/setup.sh bench
	@set -e; for bench in $(BENCHES); do $(CARGO) bench --locked $(REMAP) --bench $$bench; done

# The run that is kept, with its commit: on a machine that does nothing else, after the build and its load.
KEPT = tests/bench/results/$(shell date +%F).md
bench-kept: build
	@sh tests/setup.sh bench
	@$(CARGO) bench --locked $(REMAP) --bench pid1 --no-run
	@echo 'waiting until the machine is quiet'; \
	  until awk '{ exit $$1 >= 0.2 }' /proc/loadavg; do sleep 5; done
	@$(CARGO) bench --locked $(REMAP) --bench pid1 >$(KEPT).new && mv $(KEPT).new $(KEPT) && cat $(KEPT)

# The list of the functions that a start runs (src/start.ld). Make it again after a change of many functions, or
# with another Rust; without that, a start is slower and nothing else changes. It needs valgrind and python3.
ORDER := target/order
order: setup
	@sh tests/setup.sh order
	@rm -rf $(ORDER) && mkdir -p $(ORDER)
	$(CARGO) build --release --locked $(REMAP) --config profile.release.strip=false
	@cp $(TARGET) $(TARGET).map $(ORDER)
	@RDMA_INIT_TEST_BINARY=$(CURDIR)/$(ORDER)/rdma-init \
	  $(CARGO) test --locked --bench pid1 -- profiles $(CURDIR)/$(ORDER)/profiles
	python3 tests/bench/order.py $(ORDER)/rdma-init $(ORDER)/rdma-init.map src/start.ld $(ORDER)/profiles/*
# The fuzzers, on the stable toolchain: each target of TARGETS for MINUTES. What they find new stays in target/fuzz,
# and an input that breaks a target is in target/fuzz/found.
MINUTES := 5
TARGETS := $(notdir $(wildcard fuzz/corpus/*))
fuzz: setup
	@$(CARGO_ENVIRONMENT) sh fuzz/run.sh $(MINUTES)m $(TARGETS)

# Ten seconds for each target. The unit tests run the kept inputs as well, without the build of the fuzzers.
fuzz-corpus: setup
	@$(CARGO_ENVIRONMENT) sh fuzz/run.sh 10s $(TARGETS)

clean:
	cargo clean
