# `make setup` installs everything that a fresh Debian or Ubuntu machine needs; the other targets call it.
# Existing packages are left alone.

# One output directory and one kind of binary, whatever the environment or ~/.cargo sets for other projects:
# without these settings, the binary would be elsewhere, or not static. If you want that, call cargo
# directly.
export CARGO_TARGET_DIR := $(CURDIR)/target
# This machine's architecture. `make build ARCHITECTURE=aarch64` builds for another one; Debian's and
# Docker's names for architectures also work.
HERE := $(shell uname -m)
ARCHITECTURE := $(HERE)
override ARCHITECTURE := $(or $(patsubst amd64,x86_64,$(patsubst arm64,aarch64,$(ARCHITECTURE))),$(HERE))
export CARGO_BUILD_TARGET := $(ARCHITECTURE)-unknown-linux-gnu
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
# `make setup` may have installed cargo there.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# If `make setup` has downloaded a libclang, rdma-sys is built with it. This is checked when a recipe runs,
# after the set-up.
LIBCLANG := target/libclang
CARGO_ENVIRONMENT = $(shell test ! -e $(LIBCLANG)/libclang.so || echo env LIBCLANG_PATH=$(CURDIR)/$(LIBCLANG) \
  BINDGEN_EXTRA_CLANG_ARGS=-I$$(gcc -print-file-name=include))
CARGO = $(CARGO_ENVIRONMENT) sh tests/cross.sh $(ARCHITECTURE) cargo

# Makes the bytes independent of the paths of the clone and the crates: rustc writes source paths into the
# program for panic messages. Only the release gets this setting, so that it does not rebuild the tests.
REMAP := --config 'target.$(CARGO_BUILD_TARGET).rustflags=["--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo", "--remap-path-prefix=$(CURDIR)=/rdma-init"]'

TARGET := target/$(CARGO_BUILD_TARGET)/release/rdma-init
# What runs a program for that architecture here: nothing, or QEMU.
RUN := $(if $(filter $(ARCHITECTURE),$(HERE)),,qemu-$(ARCHITECTURE)-static)
ARCHITECTURES := x86_64 aarch64
LARGEST := 8388608
DENY_VERSION := 0.20.2

.PHONY: all setup build build-all image demo measure test test-all test-arm64 test-arm64-build test-build test-quick test-repeat test-setup lanes test-torch test-ray test-admission test-custom test-podman test-nixl test-watch test-dist soak dist release follow manual check bench bench-idle bench-kept order fuzz fuzz-corpus clean

all: build

setup:
	@sh tests/setup.sh build $(ARCHITECTURE)

# Builds the binary, and checks that it is static, small, and able to run with libibverbs and the providers
# inside.
build: setup
	$(CARGO) build --release --locked $(REMAP)
	@python3 docker/dist/notices.py $(ARCHITECTURE) $(TARGET) || echo 'rdma-init licenses will say that this binary has no notices'
	@file $(TARGET) | grep -q 'statically linked' || { echo '$(TARGET) is not static'; exit 1; }
	@size=$$(stat -c %s $(TARGET)); echo "$(TARGET): $$size bytes, static"; \
	  test $$size -le $(LARGEST) || { echo "more than $(LARGEST) bytes"; exit 1; }
	@$(RUN) $(TARGET) --version
	@$(RUN) $(TARGET) verbs-probe >/dev/null

# Builds the binaries for all architectures.
build-all:
	@for architecture in $(ARCHITECTURES); do $(MAKE) build ARCHITECTURE=$$architecture || exit; done

# Makes one image index of these binaries for all architectures. IMAGE=docker://REGISTRY/NAME pushes it to a
# registry.
IMAGE := oci-archive:target/rdma-init.tar
image: build-all
	@sh tests/setup.sh image
	@sh docker/image.sh $(IMAGE)

# Makes the files of a release in target/dist: archives, packages, the image, checksums, and the bill of
# materials.
dist:
	@for architecture in $(ARCHITECTURES); do $(MAKE) build ARCHITECTURE=$$architecture || exit; done
	@sh tests/setup.sh image
	@sh docker/dist/dist.sh $(ARCHITECTURES)

# Makes the same files in a root directory of its own, a fresh Debian whose packages BUILDINFO lists. This is how a release
# is made; it needs root. DIST_PINS=FILE takes the versions of a BUILDINFO: see docker/dist/root.sh.
ROOT := target/root
release:
	@for architecture in $(ARCHITECTURES); do $(MAKE) setup ARCHITECTURE=$$architecture || exit; done
	@sh tests/setup.sh dist
	@rm -rf --one-file-system $(ROOT)
	sh docker/dist/root.sh make $(ROOT) $(ARCHITECTURES)
	env -u DIST_WITHOUT_SOURCES sh docker/dist/root.sh build $(ROOT) 1000 /build/rdma-init /build/cargo target/dist $(ARCHITECTURES)
	@cat target/dist/SHA256SUMS

# The package of `make release` installs and goes without a trace in fresh roots of four distributions; and a second build
# has the same bytes. Needs a checkout without changes, and the time of two builds for each architecture.
test-dist: release
	sh tests/dist/install.sh
	sh tests/dist/reproduce.sh $(ROOT) $(ARCHITECTURES)

# Compares the newest versions of the modeled libraries with the model; downloads some hundreds of
# megabytes.
follow: setup
	@sh tests/cross.sh $(ARCHITECTURE) sh tests/follow/follow.sh

# Shows the main job on a captured host with nine RoCE HCAs: the decision, and a command that prints what it
# gets. Then runs the real thing on this machine, as PID 1, without leaving anything on it.
demo: build
	@echo; echo '$$ rdma-init plan --facts demo:cce-roce'
	@$(TARGET) plan --facts demo:cce-roce
	@echo; echo '$$ eval "$$(rdma-init env --facts demo:cce-roce)"; env | grep ^NCCL_'
	@eval "$$($(TARGET) env --facts demo:cce-roce)"; env | grep ^NCCL_ | sort
	@echo; echo '$$ rdma-init -- sh -c ...      (as PID 1 of a namespace, where this machine allows one)'
	@run='unshare --user --map-root-user --pid --fork --mount-proc'; \
	  $$run true 2>/dev/null || run='unshare --pid --fork --mount-proc'; \
	  $$run true 2>/dev/null || run=; \
	  RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false \
	  $$run $(TARGET) -- sh -c 'echo "this shell is process $$$$, its parent is process $$PPID"'

# Not beside `setup`: apt-get does not wait for another one that reads the lists of packages.
test-setup: setup
	@sh tests/setup.sh test

# The tests run the binary that is delivered. The tests themselves use the debug profile, which builds in a
# tenth of the time.
TEST = RDMA_INIT_TEST_BINARY=$(CURDIR)/$(TARGET) $(CARGO) test --locked

# The suites are one program, and run in lanes beside each other, so that those that wait overlap with those that compute.
# A lane is what shares something scarce, with as many tests at the same time as that allows: emulated machines, the Docker
# engine, the libraries of NCCL, namespaces of this machine. The longest lanes come first. `tini` tests another init on what
# the suite `peers` asks of this one; `model` compares the real libraries with the code that models them.
LANES := machines vm engine launchers nccl pid1 nodes command tini model golden lib
# Scripts that need several machines have machines of their own: they mostly wait for each other, and would otherwise queue
# behind the scripts of one machine.
SUITES_machines := vm::three_nodes vm::two_nodes
THREADS_machines := 2
# Three machines run these. All tests wait for one from the beginning, so that the longest ones are known.
SUITES_vm := vm:: nccl::soft_roce $(addprefix --skip ,$(SUITES_machines))
THREADS_vm := 24
# These share the engine with the next lane, but mostly wait: for the controller of Slurm, and for their own timeouts.
THREADS_launchers := 4
SUITES_launchers := examples::slurm launchers::
THREADS_engine := 4
SUITES_engine := docker:: examples:: $(addprefix --skip ,$(filter examples::%,$(SUITES_launchers)))
THREADS_nccl := 2
SUITES_nccl := nccl::env_plugin_starts nccl::namespaces nccl::ras
SUITES_model := nccl:: ucx:: --skip nccl::soft_roce --skip docker:: $(addprefix --skip ,$(SUITES_nccl))
THREADS_pid1 := 6
SUITES_pid1 := init:: peers::
THREADS_nodes := 16
SUITES_nodes := preflight:: --skip docker::
THREADS_command := 8
SUITES_command := cli:: docs:: setup::

# Builds the program and the tests, and fetches what they need, all at the same time; and runs each lane once it can, also
# if another one fails.
test:
	@$(MAKE) --no-print-directory -k -j -O NEEDS='build test-setup' lanes
NEEDS :=

# The lanes alone, with the program as it is.
lanes: $(LANES:%=lane-%)

# These lanes see no interface of the machine.
lane-tini lane-pid1 lane-nodes lane-command lane-nccl lane-quick: IN_NETWORK := sh tests/network.sh
# These need no program. While it is linked, they leave a processor to that.
lane-lib lane-golden lane-model: IN_NETWORK := $(if $(NEEDS),nice) sh tests/network.sh

# Many of the unit tests wait for each other's ends, or for a time to pass.
lane-lib: test-build
	$(IN_NETWORK) $(CARGO) test --locked --lib -- --test-threads 8

lane-golden: test-build
	$(IN_NETWORK) $(CARGO) test --locked --test golden

# A test that needs the program does not belong there, and fails.
lane-model: test-build $(filter-out build,$(NEEDS))
	$(IN_NETWORK) env RDMA_INIT_TEST_BINARY=/nonexistent $(CARGO) test --locked --test suite -- --test-threads 2 $(SUITES_model)

lane-tini: test-build $(NEEDS)
	$(IN_NETWORK) env RDMA_INIT_TEST_PEER=tini $(TEST) --test suite peers::

lane-%: test-build $(NEEDS)
	$(IN_NETWORK) env $(TEST) --test suite -- --test-threads $(THREADS_$*) $(SUITES_$*)

# All releases of NCCL, both kernels, and the program for arm64.
test-all:
	@RDMA_INIT_TEST_NCCL=all RDMA_INIT_TEST_ALL=1 $(MAKE) test
	@$(MAKE) test-arm64 test-podman

# Runs LANES, built before, N times beside two busy loops for each processor, and lists the tests that failed at least once.
N := 10
test-repeat: build test-build test-setup
	@sh tests/repeat.sh $(N) '$(LANES)'

# Runs the suites with the program for arm64, as far as QEMU can run them, on a machine of another
# architecture. SUITES chooses some. On an arm64 machine, `make test` runs all of them.
test-arm64: test-arm64-build
	@test $(HERE) = aarch64 || sh tests/arm64/setup.sh
	@test $(HERE) = aarch64 || sh tests/arm64/run.sh $(SUITES)

# Builds the tests without running them: all of them, or those in TESTS, such as --lib.
TESTS := --lib --test golden --test suite
test-build: setup
	$(CARGO) test --locked --no-run $(TESTS)

test-arm64-build:
	@$(MAKE) build ARCHITECTURE=aarch64
	@test $(HERE) = aarch64 || $(MAKE) test-build ARCHITECTURE=aarch64 TESTS=--lib

# Runs the tests that a code change breaks first; needs no Docker and no virtual machine, and downloads
# nothing. It uses the debug profile, which builds in seconds, while the release takes minutes. Many of the
# tests only wait, so more of them run at the same time than there are CPUs.
test-quick: export RDMA_INIT_SIMULATION := quick
test-quick: setup
	@$(CARGO) test --locked --no-run --lib --test golden --test suite
	@$(MAKE) --no-print-directory -k -j -O -o test-build TEST='$(CARGO) test --locked' LANES='golden lib quick' lanes
THREADS_quick := 8
SUITES_quick := cli:: docs::

# Tests rdma-init as the init of torchrun, and a job over Gloo; needs root. PyTorch is installed in
# target/torch.
test-torch: build
	@sh tests/launchers/torch.sh >/dev/null
	$(TEST) --test suite -- --ignored --test-threads 1 --skip ray:: launchers::

# Tests Ray on nodes that are containers, with the newest NCCL; needs a Docker engine. Ray, an 80 MB
# download, is installed in target/ray.
NEWEST_NCCL = RDMA_INIT_TEST_NCCL=$$(tail -n 1 tests/nccl/versions)
test-ray: build
	@sh tests/launchers/ray.sh >/dev/null
	@$(NEWEST_NCCL) sh tests/nccl/setup.sh
	$(NEWEST_NCCL) $(TEST) --test suite -- --ignored --test-threads 1 launchers::ray::

# Tests the policy for Kubernetes with the code of its API server. Go and that source, 3 GB, are stored in
# target/admission.
test-admission: build
	@sh tests/examples/admission/setup.sh judge >/dev/null
	$(TEST) --test suite -- --ignored examples::admission::

# The custom resources of the examples, applied to Kubernetes' own server for them. CRDS is a directory with the operators'
# definitions, each a file of its repository: tests/examples/custom.rs has their names.
test-custom: build
	@test -n "$(CRDS)" || { echo 'CRDS=DIRECTORY names the custom resource definitions of the operators'; exit 2; }
	@sh tests/examples/admission/setup.sh server >/dev/null
	RDMA_INIT_TEST_CRDS=$(abspath $(CRDS)) $(TEST) --test suite -- --ignored examples::custom::

# Podman, which is installed, with this init.
test-podman: build
	@sh tests/examples/setup.sh podman
	$(TEST) --test suite -- --ignored examples::podman::

# NIXL on the UCX of its wheel, in a virtual machine; 90 MB to fetch. NIXL goes to target/nixl.
test-nixl: build
	@sh tests/vm/nixl.sh >/dev/null
	$(TEST) --test suite -- --ignored vm::nixl

# The watcher is silent beside ten minutes of traffic over soft-RoCE, and reports a rail that falls behind; in virtual
# machines with Linux 6.1 and 6.12, one after the other.
test-watch: build
	@sh tests/vm/setup.sh
	@test $(HERE) != x86_64 || RDMA_INIT_VM_MACHINE=x86_64-6.12 sh tests/vm/setup.sh
	RDMA_INIT_TEST_ALL=1 $(TEST) --test suite -- --ignored --nocapture --test-threads 1 vm::watcher::

# Starts and stops the program with signals at any moment, for the time in SOAK; needs root.
SOAK := 1h
soak: build
	RDMA_INIT_TEST_SOAK=$(SOAK) $(TEST) --test suite -- --ignored --nocapture init::soak::

# Makes man pages, and completions for bash, zsh, and fish.
manual: build
	@sh tests/manual.sh $(TARGET) target/manual
	@ls target/manual

# Advisories are checked if their database is available.
check: setup measure
	cargo fmt --check
	$(CARGO) clippy --release --locked --all-targets -- -D warnings
	@cargo deny --version 2>/dev/null | grep -q ' $(DENY_VERSION)$$' || \
	  cargo install --locked --debug --target-dir target/tools cargo-deny --version $(DENY_VERSION)
	cargo deny --locked check licenses bans sources
	@sh tests/advisories.sh

# Lines by room, enums, and the files, functions and types that a fact passes on its way through the program.
measure:
	@python3 tests/measure.py

# The benchmarks measure the binary that is delivered. They have a profile of their own: with theirs, cargo would build a
# program with the features of their dependencies in its place.
BENCH = RDMA_INIT_TEST_BINARY=$(CURDIR)/$(TARGET) $(CARGO) bench --locked --profile measure

# What PID 1 costs beside tini, dumb-init and catatonit, and beside a script that does its work in shell; needs
# root. And what compare takes for ten thousand reports, what the env plugin costs a
# process, how the preflight grows with the nodes, and what node 0's watcher costs beside a thousand others; BENCHES
# chooses some of them.
BENCHES := pid1 compare env_plugin preflight judge watchers
bench: build
	@sh tests/setup.sh bench
	@set -e; for bench in $(BENCHES); do $(BENCH) --bench $$bench; done

# What the watcher costs beside a job that sleeps, and that of node 0 beside a thousand others: for an hour each, or for
# SECONDS. Run it on an idle machine.
SECONDS := 3600
bench-idle: build
	@sh tests/setup.sh bench
	@RDMA_INIT_BENCH_IDLE=$(SECONDS) $(BENCH) --bench pid1 -- idle
	@RDMA_INIT_BENCH_IDLE=$(SECONDS) $(BENCH) --bench watchers

# The run to keep, with its commit. Run it on an idle machine, after the build and its load.
KEPT = tests/bench/results/$(shell date +%F).md
bench-kept: build
	@sh tests/setup.sh bench
	@$(BENCH) --bench pid1 --no-run
	@echo 'waiting until the machine is quiet'; \
	  until awk '{ exit $$1 >= 0.2 }' /proc/loadavg; do sleep 5; done
	@$(BENCH) --bench pid1 >$(KEPT).new && mv $(KEPT).new $(KEPT) && cat $(KEPT)

# Makes the list of the functions that a start runs (src/start.ld). Make it again after many functions have
# changed, or with another Rust; otherwise a start is slower, but nothing else changes. It needs valgrind
# and python3.
ORDER := target/order
order: build
	@sh tests/setup.sh order
	@rm -rf $(ORDER) && mkdir -p $(ORDER)
	@cp $(TARGET) $(TARGET).map $(ORDER)
	@RDMA_INIT_TEST_BINARY=$(CURDIR)/$(ORDER)/rdma-init \
	  $(CARGO) test --locked --bench pid1 -- profiles $(CURDIR)/$(ORDER)/profiles
	python3 tests/bench/order.py $(ORDER)/rdma-init.map src/start.ld $(ORDER)/profiles/*

# The fuzzers, on the stable toolchain: each target of TARGETS for MINUTES, or for a number of INPUTS. What they find new
# stays in target/fuzz, and an input that breaks a target is in target/fuzz/found.
MINUTES := 5
INPUTS :=
TARGETS := $(notdir $(wildcard fuzz/corpus/*))
fuzz: setup
	@$(CARGO_ENVIRONMENT) sh fuzz/run.sh $(or $(INPUTS),$(MINUTES)m) $(TARGETS)

# Runs each target for ten seconds. The unit tests also run the kept inputs, without building the fuzzers.
fuzz-corpus: setup
	@$(CARGO_ENVIRONMENT) sh fuzz/run.sh 10s $(TARGETS)

clean:
	cargo clean
