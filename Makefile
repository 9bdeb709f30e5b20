# Cohort for newcomers. On a fresh Debian 12 with git, make and g++:
#
#     make run     installs what is missing, builds, and trains the first example
#     make test    the same, and runs every test
#
# `make help` lists the rest. This file only calls the tools that do the work: apt (packages.txt),
# cmake (CMakePresets.json), ninja, ctest and tools/.

# What you may set:
PRESET ?= release#           of CMakePresets.json: release, debug, asan, tsan
BUILD_TYPE ?=#               overrides the preset's: Debug, Release, RelWithDebInfo
LIBTORCH ?=#                 a folder of LibTorch, or `pypi`: the newest, fetched into build/
PREFIX ?= /usr/local#        where `make install` installs
PEERS ?=#                    1: `make bench` measures other systems too
PACKAGES ?=#                 skip: never look for missing packages
EXAMPLE ?= fashion_mnist#    of examples/, which `make run` runs
TESTS ?=#                    folders of tests/ to run; empty: all
CHECKS ?=#                   of `make lint`; empty: all that this LibTorch can do
SECONDS ?= 60#               of `make fuzz`, for each reader
CMAKE_ARGS ?=#               more arguments of cmake, for the first configuration

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules
export PEERS

# Each combination of settings has a build folder of its own, so that none undoes another's work.
# LIBTORCH=pypi gives build/pypi, PRESET=asan LIBTORCH=/opt/torch gives build/asan-opt-torch.
empty :=
space := $(empty) $(empty)
words := $(filter-out $(if $(LIBTORCH)$(BUILD_TYPE),release),$(PRESET)) $(BUILD_TYPE) \
         $(subst /, ,$(LIBTORCH))
BUILD := build/$(subst $(space),-,$(strip $(words)))

# One job a core, but not more than one for each 2 GB: LibTorch's headers are large.
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemTotal/ { jobs = int($$2 / 2e6); \
          print jobs < 1 ? 1 : jobs < cores ? jobs : cores }' /proc/meminfo)

TORCH := $(if $(filter pypi,$(LIBTORCH)),build/libtorch-pypi/torch,$(LIBTORCH))
build_packages := build $(if $(filter pypi,$(LIBTORCH)),pypi)
install_packages = @$(if $(filter skip,$(PACKAGES)),:,tools/packages)
build = cmake --build $(BUILD) -j $(JOBS)

.PHONY: run test bench lint format docs install oracle fuzz clean help packages configure build

run: configure  ## trains an example: examples/fashion_mnist.cpp, or EXAMPLE=transformer
	@$(build) --target $(EXAMPLE)
	@$(BUILD)/bin/$(EXAMPLE) $(ARGS)

test: configure  ## builds and runs every test; TESTS="base optim": only these
	@$(build) --target $(if $(TESTS),$(addsuffix _tests,$(TESTS)),tests)
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) \
	  $(if $(TESTS),-R '^($(subst $(space),|,$(strip $(TESTS))))$$'); status=$$?; \
	awk '/^\[  PASSED  \]/ { passed += $$4 } /^\[  FAILED  \] [0-9]+ tests?, listed/ { failed += $$4 } \
	  END { printf "cases: %d passed, %d failed\n", passed, failed }' \
	  $(BUILD)/Testing/Temporary/LastTest.log; exit $$status

bench: configure $(if $(PEERS),packages-oracle)  ## measures, into build/bench.json; PEERS=1: other systems too
	@$(build) --target benchmarks
	@rm -f build/bench.json
	@for program in $(BUILD)/bin/bench_*; do \
	  COHORT_BENCH_JSON=build/bench.json $$program || exit; done
	@tools/bench_peers $(if $(PEERS),,--local) $(BUILD)/bin build/bench.json

lint: packages-lint $(if $(LIBTORCH),packages-tidy) configure  ## layers, headers, formatting; with LIBTORCH=pypi also clang and clang-tidy; CHECKS="clang": only these
	@tools/lint --build $(BUILD) --jobs $(JOBS) $(if $(LIBTORCH),--clang --tidy) $(CHECKS)

format: packages-lint  ## formats every C++ file
	@tools/format --fix

docs: packages-docs  ## the reference pages, in build/docs/html
	@mkdir -p build/docs
	@doxygen docs/Doxyfile
	@echo "build/docs/html/index.html"

install: configure  ## installs the library for find_package(cohort); PREFIX=…
	@$(build) --target cohort
	@cmake --install $(BUILD) --prefix $(PREFIX)

oracle: packages-oracle  ## runs the cases of tests/data/oracle in TensorFlow itself, and compares
	@tools/oracle

fuzz: packages-fuzz  ## feeds the file readers with made-up bytes, a minute each; SECONDS=…
	@tools/fuzz --seconds $(SECONDS)

clean:  ## deletes every build folder
	rm -rf build

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo "Settings, with what they are now:"
	@echo "  PRESET=$(PRESET) BUILD_TYPE=$(BUILD_TYPE) LIBTORCH=$(LIBTORCH) PREFIX=$(PREFIX)" \
	      "PEERS=$(PEERS) JOBS=$(JOBS)"

packages:
	$(install_packages) $(build_packages)
packages-%:
	$(install_packages) $*

# Ninja configures again by itself when a CMakeLists.txt or the list of files changes.
configure: packages
	@$(if $(filter pypi,$(LIBTORCH)),tools/fetch_libtorch build/libtorch-pypi)
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) -B $(BUILD) \
	  $(if $(TORCH),-DCOHORT_TORCH="$(abspath $(TORCH))") \
	  $(if $(BUILD_TYPE),-DCMAKE_BUILD_TYPE=$(BUILD_TYPE)) $(CMAKE_ARGS)

build: configure
	@$(build)
