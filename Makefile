# SPDX-License-Identifier: Apache-2.0
# mm-train: one non-recursive makefile. Every folder has a module.mk that declares what it holds with four calls:
#
#   $(call library,NAME,SOURCES,PACKAGES)              -> $(BUILD)/lib/NAME.a
#   $(call program,NAME,SOURCES,LIBRARIES,PACKAGES)    -> $(BUILD)/NAME
#   $(call unit_test,NAME,SOURCES,LIBRARIES,PACKAGES)  -> $(BUILD)/tests/NAME, run by `make check`
#   $(call test_tool,NAME,SOURCES,LIBRARIES,PACKAGES)  -> $(BUILD)/tests/NAME, called by tests
#
# SOURCES are paths from here, LIBRARIES are names of our libraries in link order (users before what they use), PACKAGES are
# names from the table in tools/packages.mk. Flags for one source: $(BUILD)/obj/PATH.o: CXXFLAGS += ...
#
#   make               build everything             make check      unit tests, man pages, tests on a private Slurm
#   make demo          train on a private Slurm     make bench-PART ratios against peers and limits
#   make deps          install the packages         make install    DESTDIR= PREFIX= SYSCONFDIR=
#   make SAN=address,undefined | SAN=thread         builds in build-SAN/
#   make format        clang-format                 make lint-man   mandoc on every page

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SECONDEXPANSION:
MAKEFLAGS += --no-builtin-rules --no-builtin-variables

VERSION := 0.1.0
SAN ?=
comma := ,
BUILD ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
# The CPU that the trainer's kernels are compiled for. All nodes of a job must have it.
ARCH ?= $(if $(filter x86_64,$(shell uname -m)),x86-64-v3,native)

CXX := g++
CC := gcc
AR := ar
MPICXX ?= mpicxx
OPT ?= -O2
# Line tables are enough for a backtrace; for a debugger: make DEBUG=-g
DEBUG ?= -g1
WARN := -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual -Werror
CPPFLAGS += -I. -DMM_VERSION='"$(VERSION)"' -D_GNU_SOURCE
CXXFLAGS += -std=c++20 $(OPT) $(DEBUG) -fPIC -pthread -fno-plt -fvisibility=hidden $(WARN)
LDFLAGS += -pthread
ifneq ($(SAN),)
CXXFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
endif

.PHONY: all
all:

# ---------------------------------------------------------------- packages found once
$(BUILD)/packages.mk: tools/find-packages Makefile
	@mkdir -p $(@D)
	@tools/find-packages >$@
ifeq ($(filter deps clean help format check demo,$(MAKECMDGOALS)),)
include $(BUILD)/packages.mk
endif

# ---------------------------------------------------------------- the four calls
LIBRARIES :=
PROGRAMS :=
UNIT_TESTS :=
TEST_TOOLS :=
OBJECTS :=
FORMAT := $(wildcard */*.h */*.cc */*/*.h */*/*.cc */*/*/*.h */*/*/*.cc)

objects = $(patsubst %.cc,$(BUILD)/obj/%.o,$(filter %.cc,$(1)))
flags_of = $(foreach p,$(2),$($(p).$(1)))
archives = $(foreach l,$(1),$(BUILD)/lib/$(l).a)
# what a library needs, its own packages and those of the libraries that it names
packages_of = $(sort $(foreach l,$(1),$($(l).packages)))

define library_rule
LIBRARIES += $(BUILD)/lib/$(1).a
$(1).packages := $(3)
OBJECTS += $(call objects,$(2))
$(call objects,$(2)): PACKAGES := $(3)
$(BUILD)/lib/$(1).a: $(call objects,$(2))
endef
library = $(eval $(call library_rule,$(strip $(1)),$(2),$(strip $(3))))

define link_rule
OBJECTS += $(call objects,$(2))
$(call objects,$(2)): PACKAGES := $(sort $(4) $(call packages_of,$(3)))
$(5): $(call objects,$(2)) $(call archives,$(3))
$(5): LINK := $(call archives,$(3))
$(5): PACKAGES := $(sort $(4) $(call packages_of,$(3)))
endef
define program_rule
PROGRAMS += $(BUILD)/$(1)
$(call link_rule,$(1),$(2),$(3),$(4),$(BUILD)/$(1))
endef
program = $(eval $(call program_rule,$(strip $(1)),$(2),$(strip $(3)),$(strip $(4))))
define unit_test_rule
UNIT_TESTS += $(BUILD)/tests/$(1)
$(call link_rule,$(1),$(2),$(3),$(sort $(4) gtest),$(BUILD)/tests/$(1))
endef
define test_tool_rule
TEST_TOOLS += $(BUILD)/tests/$(1)
$(call link_rule,$(1),$(2),$(3),$(4),$(BUILD)/tests/$(1))
endef
test_tool = $(eval $(call test_tool_rule,$(strip $(1)),$(2),$(strip $(3)),$(strip $(4))))
unit_test = $(eval $(call unit_test_rule,$(strip $(1)),$(2),$(strip $(3)),$(strip $(4))))

include common/module.mk checkpoint/module.mk trainer/module.mk agent/module.mk spank_plugin/module.mk tests/module.mk

# ---------------------------------------------------------------- rules
$(BUILD)/obj/%.o: %.cc | $(BUILD)/packages.mk
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(call flags_of,CFLAGS,$(PACKAGES)) -MMD -MP -c $< -o $@

$(LIBRARIES):
	@mkdir -p $(@D)
	@echo "  AR    $@"
	@rm -f $@; $(AR) rcs $@ $(filter %.o,$^)

$(PROGRAMS) $(UNIT_TESTS) $(TEST_TOOLS):
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	@$(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(LINK) -Wl,--end-group $(call flags_of,LIBS,$(PACKAGES)) -o $@

-include $(OBJECTS:.o=.d)

all: $(PROGRAMS) $(BUILD)/spank_mm_train.so $(BUILD)/compile_commands.json
.PHONY: unit-tests
unit-tests: $(UNIT_TESTS) $(TEST_TOOLS)

$(BUILD)/compile_commands.json: Makefile $(filter %module.mk,$(MAKEFILE_LIST))
	@tools/compile-commands $(CXX) '$(CPPFLAGS) $(CXXFLAGS)' $(patsubst $(BUILD)/obj/%.o,%.cc,$(sort $(OBJECTS))) >$@

.PHONY: deps demo format clean help lint-man
deps:
	@tools/install-packages

# Each of the two does all of its own set-up.
JOBS ?= $(shell nproc)
demo: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@BUILD=$(BUILD) tools/demo

format:
	@command -v clang-format >/dev/null || { echo "make format: clang-format is not installed: apt-get install clang-format" >&2; exit 2; }
	clang-format -i $(FORMAT)

lint-man:
	@mandoc -Tlint -Wwarning man/*.[1-8] && echo "man pages: no warning"

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^#   make/make/p' Makefile

include tools/install.mk tests/check.mk
