# make                    build/weft (float), build/weft-f64 (double), build/weft-faults (tests)
# make setup              installs what is missing (Debian 12 and 13)
# make quickstart         setup, build, prepare a text, train on 2 ranks, evaluate, plot, sample
# make check              setup, build, every test; ONLY=pattern runs the rows it matches
# make fault-campaign     200 kills and 300 bit flips (about 20 minutes)
# make failure-lab        one mistake after another, and the test that sees it (a few minutes)
# make continuity         the experiments of results/continuity (about 10 minutes)
# make variants           the FFN kinds against each other, results/variants (about an hour)
# make bench              all measurements, results/bench/table.txt (an hour); ONLY=section,
#                         PYTHON=one with torch for the peers
# make profile            the ten most expensive functions of a training step
# make lint | format      the house rules | reformats the sources
# make check-asan         unit tests and a 2-rank run under the address and undefined sanitizers
# make check-other-debian make check and a short quickstart in a fresh root of DEBIAN=trixie
#
# Variables: CC=clang, ARCH=native, V=1 (show commands),
#            QUICKSTART_DIR, QUICKSTART_SET="--set train.steps=200"

MAKEFLAGS += -rR
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
AR := ar
PACKAGES := ompi-c openblas hdf5-serial jansson inih libxxhash
ONLY :=
PYTHON := python3
DEBIAN := trixie
QUICKSTART_DIR := runs/quickstart
QUICKSTART_SET :=

# ---- compiler and flags -----------------------------------------------------------------------

# Bits are part of the contract: no contraction, and nothing of -ffast-math but the two flags
# that change no value.
MACHINE  := $(shell uname -m)
ARCH     ?= $(if $(filter x86_64,$(MACHINE)),x86-64-v3)
COMPILER := $(shell $(CC) --version 2>/dev/null | head -n 1)
OPENMP   := $(if $(findstring clang,$(COMPILER)),-fopenmp=libomp,-fopenmp)
CODE     := -std=c11 -D_GNU_SOURCE -O3 -g $(if $(ARCH),-march=$(ARCH)) -ffp-contract=off \
            -fno-math-errno -fno-trapping-math $(OPENMP)
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
# clang warns of every `omp simd` loop that it leaves scalar: those over libm in the f64 build.
WARNINGS += $(if $(findstring clang,$(COMPILER)),-Wno-pass-failed)
FLAGS    := $(CODE) $(WARNINGS)

# Before `make setup` pkg-config may be missing: then these are empty, and the goals that follow
# a setup read this file again in a second make.
system_include = $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(1) 2>/dev/null))
INCLUDE       := -Isrc -Ibuild/gen $(call system_include,$(PACKAGES))
TEST_INCLUDE  := -Itests $(call system_include,check)
LIBRARIES     := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lm
TEST_LIBRARIES := $(shell pkg-config --libs check 2>/dev/null)
# A fifth of the usual linker's time, where it is installed.
TEST_LINK     := $(if $(shell command -v ld.gold),-fuse-ld=gold)

VARIANTS       := f32 f64 faults asan
FLAGS_f32      :=
FLAGS_f64      := -DWEFT_REAL64
FLAGS_faults   := -DWEFT_FAULTS
FLAGS_asan     := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
                  -fno-sanitize-recover=undefined
PROGRAM_f32    := build/weft
PROGRAM_f64    := build/weft-f64
PROGRAM_faults := build/weft-faults
PROGRAM_asan   := build/weft-asan

# ---- sources ----------------------------------------------------------------------------------

CLI_SOURCES  := $(wildcard src/cli/*.c)
LIB_SOURCES  := $(filter-out $(CLI_SOURCES),$(wildcard src/*/*.c))
SUPPORT      := $(wildcard tests/support/*.c)
UNIT_TESTS   := $(notdir $(basename $(wildcard tests/unit/*.c)))
TESTS        := $(UNIT_TESTS) $(notdir $(basename $(wildcard tests/mpi/*.c)))
# what the rows of tests/list run; what the row "failure lab" needs
LISTED       := $(sort $(shell sed -n 's/.*| *\(build\/tests\/[^ ]*\).*/\1/p' tests/list))
SHORT_LAB    := test_ffn_oracle test_model test_config_width test_checkpoint
FORMATTED     = $(wildcard src/*/*.[ch] src/*/*.inc tests/support/*.[ch] tests/unit/*.[ch] tests/mpi/*.[ch])

# ---- goals ------------------------------------------------------------------------------------

.PHONY: all programs test-programs asan-programs setup quickstart check \
        check-asan check-other-debian fault-campaign failure-lab continuity variants bench profile lint format flags clean FORCE

JOBS := $(shell nproc)
# A make of its own, as wide as the machine unless the caller said -j.
AGAIN = +@$(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

all: programs

programs: $(foreach v,f32 f64 faults,$(PROGRAM_$(v)))

# those of the failure lab
lab-programs: $(PROGRAM_faults) $(TESTS:%=build/tests/faults/%)

test-programs: $(LISTED) build/synthetic

asan-programs: $(PROGRAM_asan) $(UNIT_TESTS:%=build/tests/asan/%)

# with nothing to do, say nothing
programs test-programs lab-programs asan-programs:
	@:

setup:
	@launch/setup $(if $(findstring clang,$(CC)),libomp-dev)

quickstart: setup
	$(AGAIN) programs
	@data/prepare
	@launch/quickstart $(QUICKSTART_DIR) $(QUICKSTART_SET)

check: setup
	$(AGAIN) programs test-programs $(SHORT_LAB:%=build/tests/faults/%)
	@tests/run '$(ONLY)'

check-asan: setup
	$(AGAIN) asan-programs
	@tests/asan $(UNIT_TESTS)

fault-campaign: setup
	$(AGAIN) programs
	@tests/campaign/kills 200 7
	@tests/campaign/bitflips 300 5

failure-lab: setup
	$(AGAIN) lab-programs
	@tests/failure-lab/run '$(ONLY)'

continuity: setup
	$(AGAIN) programs
	@data/prepare
	@results/continuity/run

variants: setup
	$(AGAIN) programs
	@data/prepare
	@results/variants/run

bench: setup
	$(AGAIN) programs
	@data/prepare
	@PYTHON='$(PYTHON)' tests/bench/run $(if $(ONLY),'$(ONLY)')

profile: setup
	$(AGAIN) programs
	@data/prepare
	@OUT=results/bench/profile.txt tests/bench/profile

check-other-debian:
	tests/debian/run $(DEBIAN)

lint: setup
	$(AGAIN) build/gen/build_id.h
	@tests/lint/run

format:
	clang-format -i $(FORMATTED)

# What the linter compiles with.
flags:
	@echo $(FLAGS) $(INCLUDE) $(TEST_INCLUDE)

clean:
	rm -rf build

# ---- rules ------------------------------------------------------------------------------------

# Names what is made instead of showing long commands, unless V is set.
SAY = $(if $(V),,@echo "  $@" &&)

# Writes its input to $(1) only when that changes it, so that nothing is rebuilt in vain.
write_if_changed = { mkdir -p $(dir $(1)) && cat > $(1).new && \
	if cmp -s $(1).new $(1); then rm $(1).new; else mv $(1).new $(1); fi; }

REVISION := $(shell test -e .git && git describe --always --dirty --tags 2>/dev/null \
              || echo unversioned)

define BUILD_ID
#define WEFT_REVISION "$(REVISION)"
#define WEFT_BUILD_ID "$(REVISION), $(COMPILER), $(strip $(CODE))"
endef

build/gen/build_id.h: FORCE
	@pkg-config --exists --print-errors $(PACKAGES) || \
	  { echo 'Libraries are missing: run "make setup".' >&2; exit 1; }
	@printf '%s\n' '$(subst $(newline),' ',$(BUILD_ID))' | $(call write_if_changed,$@)

define newline


endef

define variant_rules
build/obj/$(1)/flags: FORCE
	@echo '$$(CC) $$(COMPILER) $$(FLAGS) $$(FLAGS_$(1)) $$(INCLUDE)' | $$(call write_if_changed,$$@)

build/obj/$(1)/src/%.o: src/%.c build/obj/$(1)/flags | build/gen/build_id.h
	@mkdir -p $$(@D)
	$$(SAY) $$(CC) $$(FLAGS) $$(FLAGS_$(1)) $$(INCLUDE) -MMD -MP -c -o $$@ $$<

build/obj/$(1)/tests/%.o: tests/%.c build/obj/$(1)/flags | build/gen/build_id.h
	@mkdir -p $$(@D)
	$$(SAY) $$(CC) $$(FLAGS) $$(FLAGS_$(1)) $$(INCLUDE) $$(TEST_INCLUDE) -MMD -MP -c -o $$@ $$<

build/lib/$(1)/libweft.a: $(LIB_SOURCES:%.c=build/obj/$(1)/%.o)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(SAY) $$(AR) rcs $$@ $$^

$(PROGRAM_$(1)): $(CLI_SOURCES:%.c=build/obj/$(1)/%.o) build/lib/$(1)/libweft.a
	$$(SAY) $$(CC) $$(FLAGS) $$(FLAGS_$(1)) -o $$@ $$^ $$(LIBRARIES)

TEST_OBJECTS_$(1) := $(SUPPORT:%.c=build/obj/$(1)/%.o) build/lib/$(1)/libweft.a

build/tests/$(1)/%: build/obj/$(1)/tests/unit/%.o $$(TEST_OBJECTS_$(1))
	@mkdir -p $$(@D)
	$$(SAY) $$(CC) $$(FLAGS) $$(FLAGS_$(1)) $$(TEST_LINK) -o $$@ $$^ $$(TEST_LIBRARIES) $$(LIBRARIES)

build/tests/$(1)/%: build/obj/$(1)/tests/mpi/%.o $$(TEST_OBJECTS_$(1))
	@mkdir -p $$(@D)
	$$(SAY) $$(CC) $$(FLAGS) $$(FLAGS_$(1)) $$(TEST_LINK) -o $$@ $$^ $$(TEST_LIBRARIES) $$(LIBRARIES)

-include $$(wildcard build/obj/$(1)/*/*/*.d)
endef

# What makes generated data (data/synthetic).
build/synthetic: data/synthetic.c build/lib/f32/libweft.a build/obj/f32/flags
	$(SAY) $(CC) $(FLAGS) $(INCLUDE) -o $@ $< build/lib/f32/libweft.a $(LIBRARIES)

$(foreach v,$(VARIANTS),$(eval $(call variant_rules,$(v))))
